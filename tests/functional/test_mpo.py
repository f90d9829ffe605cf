"""MPO's temperature, improved policy, decoupled divergences and multipliers, against worked numbers and oracles."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence
from torch.testing import assert_close

from pytorchrl.functional.mpo import (
    SMALLEST_TEMPERATURE,
    ascend,
    decoupled_kl,
    decoupled_log_prob,
    dual,
    improved_policy,
    temperature,
)

SCORES = torch.tensor([[1.0, 2.0, 4.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
EVEN = torch.full_like(SCORES, 1 / 3).log()


def divergence(eta: float, scores: Tensor, log_prior: Tensor) -> float:
    """mean_s KL(q ‖ prior), by its definition."""
    q = improved_policy(eta, scores, log_prior)
    return (q * (q.log() - log_prior)).sum(-1).mean().item()


def test_worked_example() -> None:
    assert dual(1.0, SCORES, EVEN, 0.1).item() == pytest.approx(1.862033, abs=1e-6)
    eta = temperature(SCORES, EVEN, 0.1)
    assert eta == pytest.approx(2.119099, abs=1e-6)
    weights = improved_policy(eta, SCORES, EVEN)
    assert weights[0].tolist() == pytest.approx([0.148757, 0.238462, 0.612781], abs=1e-6)
    assert weights.sum(-1).tolist() == pytest.approx([1.0, 1.0])


@given(
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([1e-3, 1.0, 300.0]),
    constraint=st.sampled_from([1e-3, 0.1, 0.5]),
    start=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_it_minimizes_the_dual_where_the_divergence_meets_its_constraint(
    seed: int, spread: float, constraint: float, start: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(4, 6, generator=generator, dtype=torch.float64)
    log_prior = torch.randn(4, 6, generator=generator, dtype=torch.float64).log_softmax(-1)
    eta = temperature(scores, log_prior, constraint, start)
    assert divergence(eta, scores, log_prior) == pytest.approx(constraint, rel=1e-6)
    oracle = minimize_scalar(
        lambda x: dual(math.exp(x), scores, log_prior, constraint).item(),
        bounds=(math.log(eta) - 3, math.log(eta) + 3),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert dual(eta, scores, log_prior, constraint).item() <= oracle.fun + 1e-9 * max(1.0, abs(oracle.fun))
    assert eta == pytest.approx(math.exp(oracle.x), rel=1e-3)


def test_where_no_temperature_meets_the_constraint_it_is_the_smallest() -> None:
    assert temperature(torch.zeros_like(SCORES), EVEN, 0.1) == SMALLEST_TEMPERATURE
    assert temperature(SCORES, EVEN, 2.0) == SMALLEST_TEMPERATURE  # log 3 is the largest divergence
    one_action = torch.tensor([[3.0], [5.0]])
    assert temperature(one_action, torch.zeros(2, 1), 0.1) == SMALLEST_TEMPERATURE
    assert_close(improved_policy(SMALLEST_TEMPERATURE, torch.zeros_like(SCORES), EVEN), EVEN.exp())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_ends(value: float) -> None:
    scores = SCORES.clone()
    scores[0, 0] = value
    assert not math.isfinite(temperature(scores, EVEN, 0.1))


def test_the_prior_counts() -> None:
    """q ∝ prior·exp(Q/η): with equal scores it is the prior."""
    log_prior = torch.tensor([[0.7, 0.2, 0.1]]).log()
    assert_close(improved_policy(0.5, torch.zeros(1, 3), log_prior), log_prior.exp())
    found = improved_policy(2.0, torch.tensor([[0.0, 2.0, 0.0]]), log_prior)
    expected = torch.tensor([[0.7, 0.2 * math.e, 0.1]])
    assert_close(found, expected / expected.sum())


def gaussians(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mean, log_std = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    return mean, log_std


def test_decoupled_divergences() -> None:
    """C_μ takes the old scale, C_Σ the old mean; each is the divergence of torch.distributions."""

    def normal(mean: Tensor, log_std: Tensor) -> Independent:
        return Independent(Normal(mean, log_std.exp()), 1)

    old, new = gaussians(1), gaussians(2)
    by_mean, by_var = decoupled_kl(old, new)
    assert_close(by_mean, kl_divergence(normal(*old), normal(new[0], old[1])).unsqueeze(-1))
    assert_close(by_var, kl_divergence(normal(*old), normal(old[0], new[1])).unsqueeze(-1))
    x = gaussians(3)[0]
    expected = normal(new[0], old[1]).log_prob(x) + normal(old[0], new[1]).log_prob(x)
    assert_close(decoupled_log_prob(x, old, new), expected.unsqueeze(-1))


def test_divergences_by_hand() -> None:
    """½·(0.5/0.5)² + ½·(1/2)² for two dimensions; ½·(¼ − 1 + log 4) of a doubled scale."""
    zeros = torch.zeros(1, 2)
    old = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 2.0]]).log()
    assert [kl.item() for kl in decoupled_kl(old, old)] == [0.0, 0.0]
    by_mean, by_var = decoupled_kl(old, (old[0] + torch.tensor([[0.5, 1.0]]), old[1]))
    assert (by_mean.item(), by_var.item()) == (pytest.approx(0.625), 0.0)
    by_mean, by_var = decoupled_kl(old, (old[0], old[1] + torch.tensor([[math.log(2), 0.0]])))
    assert (by_mean.item(), by_var.item()) == (0.0, pytest.approx(0.5 * (0.25 - 1 + math.log(4))))
    mean = torch.tensor([[1.0, 2.0]], requires_grad=True)
    log_std = torch.zeros(1, 2, requires_grad=True)
    by_mean, by_var = decoupled_kl((zeros, zeros), (mean, log_std))
    assert torch.autograd.grad(by_mean, [mean, log_std], allow_unused=True)[1] is None
    assert torch.autograd.grad(by_var, [mean, log_std], allow_unused=True)[0] is None


def test_multipliers_climb_where_a_constraint_is_broken_and_fall_elsewhere() -> None:
    zero = torch.zeros(())
    assert ascend(zero, torch.tensor(0.03), 0.01, 10.0, 1.0).item() == pytest.approx(0.2)
    assert ascend(zero, torch.tensor(0.005), 0.01, 10.0, 1.0).item() == 0.0
    assert ascend(torch.tensor(0.5), torch.tensor(0.0), 0.01, 10.0, 1.0).item() == pytest.approx(0.4)
    assert ascend(torch.tensor(0.5), torch.tensor(9.0), 0.01, 10.0, 1.0).item() == 1.0
