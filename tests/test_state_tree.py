"""State trees survive the trip through JSON and safetensors, and nothing else does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytorchrl import state_tree
from pytorchrl.errors import CheckpointError

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**200), 2**200) | st.floats(allow_nan=False) | st.text() | st.binary()
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(TREES)
def test_plain_values_come_back_equal(tree: Any) -> None:
    assert state_tree.decode(*state_tree.encode(tree)) == tree


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16])
def test_tensors_keep_their_bits(dtype: torch.dtype) -> None:
    tensor = torch.randint(0, 2, (3, 0 if dtype is torch.bool else 4)).to(dtype)
    back = state_tree.decode(*state_tree.encode({"a": [tensor], 3: {"a": tensor}}))
    assert back["a"][0].dtype == dtype
    assert torch.equal(back["a"][0], tensor)
    assert torch.equal(back[3]["a"], tensor)


def test_views_of_one_storage_are_saved_apart() -> None:
    whole = torch.arange(6.0)
    back = state_tree.decode(*state_tree.encode({"whole": whole, "part": whole[2:4], "column": whole.view(2, 3).T}))
    back["part"][0] = 9.0
    assert back["whole"][2] == 2.0
    assert torch.equal(back["column"], whole.view(2, 3).T)


def test_arrays_come_back_as_arrays() -> None:
    back = state_tree.decode(*state_tree.encode({"a": np.arange(3, dtype=np.uint8)}))
    assert isinstance(back["a"], np.ndarray)
    assert back["a"].dtype == np.uint8


def test_keys_that_look_alike_stay_apart() -> None:
    tree = {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}}
    back = state_tree.decode(*state_tree.encode(tree))
    assert back["a/b"].item() == 0.0
    assert back["a"]["b"].item() == 1.0


def test_a_mapping_that_looks_like_a_marker_is_a_mapping() -> None:
    tree = {"$tensor": "x"}
    assert state_tree.decode(*state_tree.encode(tree)) == tree


@pytest.mark.parametrize("value", [object(), lambda: None, {1, 2}, 1j, np.float32(1.0)])
def test_what_has_no_place_is_refused_by_name(value: Any) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        state_tree.encode({"here": value})


@pytest.mark.parametrize(
    ("structure", "tensors"),
    [
        (b'{"$tensor": "gone"}', state_tree.encode({})[1]),
        (b"not json", state_tree.encode({})[1]),
        (b"{}", b"not safetensors"),
        (b"{}", b""),
        (b"{}", (2**63 - 1).to_bytes(8, "little") + b"{}"),
        (b'{"$items": [1, 2]}', state_tree.encode({})[1]),
        (b'{"$bytes": 3}', state_tree.encode({})[1]),
        (b"[" * 100_000, state_tree.encode({})[1]),
    ],
)
def test_damage_is_told(structure: bytes, tensors: bytes) -> None:
    with pytest.raises(CheckpointError, match="damaged"):
        state_tree.decode(structure, tensors)
