"""The one file that looks into nested dicts of tensors: a lone tensor and a dict of them behave alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytorchrl import tree


def example(rows: int = 3) -> Any:
    return {"image": torch.arange(rows * 4, dtype=torch.uint8).reshape(rows, 2, 2), "speed": torch.rand(rows, 1)}


@pytest.fixture(params=["tensor", "dict"])
def both(request: pytest.FixtureRequest) -> Any:
    """The example as it is, or one tensor of it."""
    return example() if request.param == "dict" else example()["image"]


def assert_same(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_map_and_zip(both: Any) -> None:
    doubled = tree.tree_map(lambda tensor: tensor * 2, both)
    summed = tree.tree_zip(lambda one, other: one + other, both, both)
    assert_same(doubled, summed)
    assert type(doubled) is type(both)
    assert not any(one is other for one, other in zip(tree.leaves(doubled), tree.leaves(both), strict=True))


def test_leaves_come_in_the_order_of_the_keys() -> None:
    data = {"b": torch.zeros(1), "a": torch.ones(1)}
    assert [leaf.item() for leaf in tree.leaves(data)] == [0.0, 1.0]
    assert tree.first_leaf(data) is data["b"]
    assert list(tree.leaves(data["a"])) == [data["a"]]


def test_zip_takes_the_keys_of_the_first() -> None:
    more = example() | {"extra": torch.zeros(3)}
    assert set(tree.tree_zip(torch.add, example(), more)) == {"image", "speed"}  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        tree.tree_zip(torch.add, more, example())


def test_stack_and_concatenate(both: Any) -> None:
    stacked, joined = tree.stack([both, both]), tree.concatenate([both, both])
    for leaf, high, long in zip(tree.leaves(both), tree.leaves(stacked), tree.leaves(joined), strict=True):
        assert high.shape == (2, *leaf.shape)
        assert long.shape == (6, *leaf.shape[1:])
        assert high.dtype == long.dtype == leaf.dtype
    assert_same(tree.index(stacked, 1), both)
    assert_same(tree.index(joined, slice(3, 6)), both)
    assert_same(tree.index(tree.stack([both, both], dim=1), (slice(None), 0)), both)  # type: ignore[arg-type]


def test_index_and_copy_into(both: Any) -> None:
    target = tree.allocate(both, 2)
    tree.copy_into(target, 1, both)
    assert_same(tree.index(target, 1), both)
    assert all((leaf == 0).all() for leaf in tree.leaves(tree.index(target, 0)))
    rows = torch.tensor([2, 0])
    picked = tree.index(both, rows)
    assert_same(tree.index(picked, 1), tree.index(both, 0))
    first = tree.first_leaf(picked)
    first.fill_(9)
    assert not (tree.first_leaf(both) == 9).all()  # rows by number are a copy


def test_copy_into_ignores_what_the_target_does_not_have() -> None:
    target = {"speed": torch.zeros(3, 1)}
    source = example()
    tree.copy_into(target, slice(None), source)
    assert_same(target["speed"], source["speed"])


def test_allocate_keeps_shapes_and_dtypes(both: Any) -> None:
    for leaf, room in zip(tree.leaves(both), tree.leaves(tree.allocate(both, 5, 2)), strict=True):
        assert room.shape == (5, 2, *leaf.shape)
        assert room.dtype == leaf.dtype
        assert (room == 0).all()


def test_to_and_copy(both: Any) -> None:
    assert_same(tree.to(both, "cpu"), both)
    for moved, copied, leaf in zip(
        tree.leaves(tree.to(both, "cpu")), tree.leaves(tree.copy(both, "cpu")), tree.leaves(both), strict=True
    ):
        assert moved.data_ptr() == leaf.data_ptr()
        assert copied.data_ptr() != leaf.data_ptr()
        assert_same(copied, leaf)
    assert all(leaf.device.type == "meta" for leaf in tree.leaves(tree.copy(both, "meta")))


def test_flatten_time_is_time_major() -> None:
    data = torch.arange(12).reshape(4, 3, 1)
    assert tree.flatten_time(data, 2).flatten().tolist() == [0, 1, 2, 3, 4, 5]  # type: ignore[union-attr]
    flat = tree.flatten_time({"one": data, "two": data.reshape(4, 3)}, 3)
    assert flat["one"].shape == (9, 1)  # type: ignore[index]
    assert flat["two"].shape == (9,)  # type: ignore[index]
