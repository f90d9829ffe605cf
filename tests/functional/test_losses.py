"""The shared losses against published numbers and their case distinctions."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from pytorchrl.functional import (
    categorical_log_prob,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    value_loss,
)


def test_clipped_surrogate_of_rlax(oracles: dict[str, Any]) -> None:
    f = oracles["rlax/_src/policy_gradients_test.py"]["clipped_surrogate"]
    for actions, advantages, expected in zip(f["actions"], f["advantages"], f["expected_loss"], strict=True):
        action = torch.tensor(actions)[:, None]
        new, old = (categorical_log_prob(torch.tensor(f[key]), action) for key in ("logits", "old_logits"))
        loss = clipped_surrogate(new - old, torch.tensor(advantages)[:, None], f["epsilon"])
        assert_close(loss, torch.tensor(expected), rtol=0, atol=f["atol"])


RATIOS = torch.tensor([0.7, 1.0, 1.5, 0.5], dtype=torch.float64)
ADVANTAGES = torch.tensor([1.0, -1.0, 2.0, -0.5], dtype=torch.float64)


def test_example_of_the_clipped_surrogate_and_its_gradient() -> None:
    log_ratios = RATIOS.log().requires_grad_()
    loss = clipped_surrogate(log_ratios, ADVANTAGES, 0.2)
    assert loss.item() == pytest.approx(-0.425, abs=1e-9)
    (grad,) = torch.autograd.grad(loss, log_ratios)
    # Rows 2 and 3 are clipped; elsewhere the derivative in log π is −ρA / 4.
    assert_close(grad, torch.tensor([-0.175, 0.25, 0.0, 0.0], dtype=torch.float64))


def test_the_share_that_is_clipped_counts_ratios_not_their_logarithms() -> None:
    ratios = torch.tensor([0.81, 1.19, 0.79, 1.21, 1.0], dtype=torch.float64)  # log 0.81 < −0.2, log 1.21 < 0.2
    assert clip_fraction(ratios.log(), 0.2).item() == pytest.approx(0.4)
    assert clip_fraction(ratios[:2].log(), 0.2).item() == 0.0


def test_an_infinite_clip_is_the_plain_surrogate() -> None:
    loss = clipped_surrogate(RATIOS.log(), ADVANTAGES, float("inf"))
    assert_close(loss, -(RATIOS * ADVANTAGES).mean())


def test_value_losses_case_by_case() -> None:
    values = torch.tensor([[1.0], [1.0], [1.0], [1.0]], requires_grad=True)
    old = torch.tensor([[0.9], [0.0], [0.0], [2.0]])
    returns = torch.tensor([[2.0], [2.0], [-1.0], [0.0]])
    assert_close(value_loss(values, returns), torch.tensor(0.5 * (1 + 1 + 4 + 1) / 4))
    # Within the clip; clipped to 0.2 and worse; clipped to 0.2 and better, so not used; clipped to 1.8 and worse.
    loss = clipped_value_loss(values, old, returns, 0.2)
    assert_close(loss, torch.tensor(0.5 * (1 + 1.8**2 + 4 + 1.8**2) / 4))
    (grad,) = torch.autograd.grad(loss, values)
    assert_close(grad, torch.tensor([[-0.25], [0.0], [0.5], [0.0]]))
    assert_close(clipped_value_loss(values, old, returns, float("inf")), value_loss(values, returns))
