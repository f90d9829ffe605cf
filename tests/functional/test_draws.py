"""Draws come from the CPU's generator, whatever device they are for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pytorchrl.functional.draws import exponential_like, normal_like, uniform_like

MOMENTS = [(normal_like, 0.0, 1.0), (uniform_like, 0.5, 12**-0.5), (exponential_like, 1.0, 1.0)]


@pytest.mark.parametrize(("draw", "mean", "std"), MOMENTS)
def test_distribution(draw: Callable[..., Tensor], mean: float, std: float) -> None:
    x = draw(torch.zeros(100_000, dtype=torch.float64), torch.Generator().manual_seed(1))
    assert x.dtype == torch.float64
    assert abs(float(x.mean()) - mean) < 0.02
    assert abs(float(x.std()) - std) < 0.02


@pytest.mark.parametrize("draw", [normal_like, uniform_like, exponential_like])
def test_the_tensor_lies_where_the_other_does_and_the_stream_moves_on(draw: Callable[..., Tensor]) -> None:
    generator, same = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    assert draw(torch.empty(3, 2, device="meta"), generator).device.type == "meta"
    draw(torch.empty(3, 2), same)
    assert torch.equal(draw(torch.empty(4), generator), draw(torch.empty(4), same))


def test_sigma_scales() -> None:
    one, two = (normal_like(torch.empty(5), torch.Generator().manual_seed(1), sigma) for sigma in (1.0, 2.0))
    torch.testing.assert_close(two, 2 * one)
