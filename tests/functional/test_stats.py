"""Running moments and the forward filter against NumPy and SciPy over everything at once."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter
from torch.testing import assert_close

from pytorchrl.functional import ForwardDiscountedSum, RunningMeanStd


def double(x: object) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.sampled_from([(), (3,), (2, 2)]), st.integers(0, 99))
def test_moments_are_those_of_all_batches_put_together(sizes: list[int], shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches = [rng.normal(rng.normal(scale=5.0), 2.0, size=(n, *shape)) for n in sizes]
    stats = RunningMeanStd(shape)
    for batch in batches:
        stats.update(torch.from_numpy(batch))
    # The start counts as 1e-4 samples of mean 0 and variance 1: weights of a plain weighted mean.
    data, count = np.concatenate(batches), sum(sizes) + 1e-4
    mean = data.sum(0) / count
    var = ((data - mean) ** 2).sum(0) / count + 1e-4 * (1 + mean**2) / count
    assert_close(stats.mean, torch.as_tensor(mean), rtol=1e-10, atol=1e-10)
    assert_close(stats.var, torch.as_tensor(var), rtol=1e-10, atol=1e-10)
    assert stats.count == pytest.approx(count, rel=1e-12)


def test_moments_start_at_zero_and_one_and_survive_a_single_sample() -> None:
    stats = RunningMeanStd((2,))
    assert stats.mean.tolist() == [0.0, 0.0]
    assert stats.var.tolist() == [1.0, 1.0]
    assert stats.count == 1e-4
    stats.update(torch.tensor([[3.0, -1.0]]))
    assert_close(stats.mean, double([3.0, -1.0]), rtol=1e-3, atol=0)
    assert torch.isfinite(stats.var).all()
    assert (stats.var < 1e-2).all()
    assert torch.isfinite(stats.normalize(torch.tensor([[3.0, -1.0]]))).all()


def test_moments_of_images_and_large_offsets_are_kept_in_float64() -> None:
    images = torch.randint(0, 256, (50, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    stats = RunningMeanStd((4, 4))
    stats.update(images)
    expected = images.numpy().astype(np.float64)
    assert_close(stats.mean.numpy(), expected.mean(0), rtol=1e-5, atol=0)
    assert_close(stats.var.numpy(), expected.var(0), rtol=1e-3, atol=0)
    assert stats.normalize(images).dtype == torch.float32

    far = RunningMeanStd()
    far.count = 0.0  # without the start, which would weigh heavily at such an offset
    for _ in range(100):
        far.update(torch.tensor([1e6 - 1, 1e6 + 1]))
    assert far.var.item() == pytest.approx(1.0, rel=1e-9)


def test_normalize_whitens_and_clips() -> None:
    stats = RunningMeanStd((2,))
    stats.set_state({"mean": double([1.0, -2.0]), "var": double([4.0, 0.25]), "count": 10.0})
    x = torch.tensor([[3.0, -2.0], [101.0, -102.0]])
    assert_close(stats.normalize(x), torch.tensor([[1.0, 0.0], [50.0, -200.0]]))
    assert_close(stats.normalize(x, clip=5.0), torch.tensor([[1.0, 0.0], [5.0, -5.0]]))
    stats.set_state({"mean": double([0.0, 0.0]), "var": double([0.0, 0.0]), "count": 10.0})
    assert_close(stats.normalize(torch.ones(1, 2)), torch.full((1, 2), 1e4))  # divided by √1e-8


def test_state_of_the_moments_round_trips_and_is_a_copy() -> None:
    stats, twin = RunningMeanStd((2,)), RunningMeanStd((2,))
    stats.update(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
    state = stats.get_state()
    assert set(state) == {"mean", "var", "count"}
    twin.set_state(state)
    for key in ("mean", "var"):
        state[key] += 1.0
    more = torch.tensor([[0.0, 7.0]])
    stats.update(more)
    twin.update(more)
    assert torch.equal(twin.mean, stats.mean)
    assert torch.equal(twin.var, stats.var)
    assert twin.count == stats.count


@pytest.mark.parametrize("key", ["mean", "var"])
def test_state_of_another_shape_is_refused_and_changes_nothing(key: str) -> None:
    stats = RunningMeanStd((2,))
    state = stats.get_state() | {"count": 5.0, key: double(1.0)}
    with pytest.raises(ValueError, match=rf"{key} has shape \(\), expected \(2,\)"):
        stats.set_state(state)
    assert stats.count == 1e-4


def test_example_of_the_forward_sum_and_its_variance() -> None:
    intrinsic = double([[1, 0], [2, 1], [0, 3]])
    sums = ForwardDiscountedSum(0.5).update(intrinsic)
    assert_close(sums, double([[1, 0], [2.5, 1], [1.25, 3.5]]))
    stats = RunningMeanStd()
    stats.update(sums.flatten())
    assert stats.var.item() == pytest.approx(1.300382, abs=1e-6)
    assert_close(intrinsic[-1] / stats.std, double([0, 2.630788]), rtol=0, atol=1e-6)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sampled_from([0.0, 0.5, 0.99]), st.integers(0, 99))
def test_forward_sum_over_rollouts_is_one_filter(lengths: list[int], gamma: float, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(sum(lengths), 3, 1))
    expected = lfilter([1.0], [1.0, -gamma], x, axis=0)
    forward = ForwardDiscountedSum(gamma)
    actual = torch.cat([forward.update(part) for part in torch.from_numpy(x).split(lengths)])
    assert_close(actual, torch.as_tensor(expected), rtol=1e-10, atol=1e-10)


def test_forward_sum_leaves_its_input_alone_and_its_state_round_trips() -> None:
    x = torch.ones(3, 2)
    forward, twin = ForwardDiscountedSum(0.5), ForwardDiscountedSum(0.5)
    first = forward.update(x)
    assert first.dtype == torch.float64
    assert torch.equal(x, torch.ones(3, 2))
    state = forward.get_state()
    twin.set_state(state)
    state["last"].zero_()
    first.zero_()
    assert_close(twin.update(x)[0], double([1.875, 1.875]))
    assert_close(forward.update(x)[0], double([1.875, 1.875]))


def test_forward_sum_uses_a_new_gamma_at_once() -> None:
    forward = ForwardDiscountedSum(0.5)
    forward.update(torch.ones(1, 1))
    forward.gamma = 0.1
    assert_close(forward.update(torch.ones(2, 1)), double([[1.1], [1.11]]))
