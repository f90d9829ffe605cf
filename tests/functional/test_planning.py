"""Planners find the optimum of known functions, as their papers' formulas say, whoever else plans beside them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from pytorchrl.functional import planning
from pytorchrl.functional.planning import (
    WORST,
    categorical_cross_entropy,
    cross_entropy,
    random_shooting,
    reward_weighted,
    shifted,
    truncated_normal,
)

H, A = 3, 2
TARGETS = torch.tensor([[[0.3, -0.7], [0.0, 0.5], [-0.2, 0.9]], [[-0.4, 0.1], [0.6, -0.6], [0.2, 0.0]]])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def quadratic(candidates: Tensor, targets: Tensor = TARGETS) -> Tensor:
    """−‖a − a*‖², with another optimum for each environment."""
    return -(candidates - targets[:, None]).square().sum((2, 3))


def weighted(score: Any, plan: Tensor, random: torch.Generator, candidates: int, **settings: Any) -> Any:
    return reward_weighted(score, plan, plan[:, 0], random, candidates, **settings)


# Each planner, how often it is called with its own plan, and how near it comes.
PLANNERS: dict[str, tuple[Callable[..., Any], int, float]] = {
    "rs": (random_shooting, 400, 0.25),
    "cem": (partial(cross_entropy, iterations=20, k_best=20, epsilon=1e-7), 1, 1e-2),
    "pddm": (partial(weighted, gamma=20.0, beta=1.0), 40, 0.25),
}


@pytest.mark.parametrize("name", PLANNERS)
def test_the_optimum_of_a_quadratic(name: str) -> None:
    planner, calls, near = PLANNERS[name]
    random, plan = generator(), torch.zeros(2, H, A)
    for _ in range(calls):
        plan, value = planner(quadratic, plan, random, 2000)
    assert (plan - TARGETS).abs().max().item() < near
    assert plan.abs().max().item() <= 1
    assert value.shape == (2,)
    # The mean of a set scores better than its members do on average.
    assert (value <= quadratic(plan[:, None])[:, 0] + 1e-6).all()


@pytest.mark.parametrize("name", PLANNERS)
def test_planning_repeats_under_a_seed_and_in_any_company(name: str) -> None:
    planner, _, _ = PLANNERS[name]
    both, _ = planner(quadratic, torch.zeros(2, H, A), generator(3), 50)
    again, _ = planner(quadratic, torch.zeros(2, H, A), generator(3), 50)
    other, _ = planner(quadratic, torch.zeros(2, H, A), generator(4), 50)
    alone, _ = planner(partial(quadratic, targets=TARGETS[1:]), torch.zeros(1, H, A), generator(3), 50)
    assert torch.equal(both, again)
    assert not torch.equal(both, other)
    torch.testing.assert_close(both[1:], alone)


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("scale", [1e6, -1e6])
def test_large_scores_do_not_overflow_and_no_number_is_the_worst(name: str, scale: float) -> None:
    """NaN is no good score, least of all where all others are negative."""
    planner, _, _ = PLANNERS[name]

    def score(candidates: Tensor) -> Tensor:
        first = candidates[:, :, 0, 0]
        return torch.where(first > 0, math.nan, scale * (first + 2))

    plan, value = planner(score, torch.zeros(1, H, A), generator(), 200)
    assert plan.isfinite().all()
    assert value.isfinite().all()
    assert plan[0, 0, 0] <= 0
    plan, _ = planner(lambda candidates: candidates.sum((2, 3)) * math.inf, torch.zeros(1, H, A), generator(), 20)
    assert plan.isfinite().all()


def test_shifted() -> None:
    plan = torch.arange(6.0).view(1, 3, 2)
    assert shifted(plan).tolist() == [[[2, 3], [4, 5], [4, 5]]]
    assert shifted(plan[:, :1]).tolist() == [[[0, 1]]]


def test_random_shooting_covers_the_box_and_keeps_what_is_better() -> None:
    seen = []

    def score(candidates: Tensor) -> Tensor:
        seen.append(candidates)
        return -candidates.abs().sum((2, 3))

    plan, value = random_shooting(score, torch.zeros(1, H, A), generator(), 4000)
    assert value.item() == 0
    assert not plan.any()
    assert seen[0].min().item() == pytest.approx(-1, abs=1e-3)
    assert seen[0].max().item() == pytest.approx(1, abs=1e-3)
    assert seen[0][:, :-1].mean().item() == pytest.approx(0, abs=0.02)


def test_truncated_normal() -> None:
    """Moments of N(0, 1) within ±2: variance 1 − 2·2φ(2)/(Φ(2) − Φ(−2)) = 0.7737."""
    drawn = truncated_normal((200_000,), generator())
    assert drawn.abs().max().item() <= 2
    assert drawn.mean().item() == pytest.approx(0, abs=0.01)
    assert drawn.var().item() == pytest.approx(0.7737, abs=0.01)


def test_one_fit_of_cem_by_hand() -> None:
    """Elites, mean and population variance of given samples, and the mixture with what was before."""
    seen: list[Tensor] = []

    def score(candidates: Tensor) -> Tensor:
        seen.append(candidates)
        return quadratic(candidates, TARGETS[:1])

    start, kept = torch.full((1, H, A), 0.8), 0.25
    plan, value = cross_entropy(
        score, start, generator(), 40, k_best=4, iterations=2, epsilon=0.0, update_alpha=kept, lb=-1, ub=1
    )
    first, second = seen
    assert first.min().item() >= 0.6 - 1e-6  # ±2σ with σ = (ub − μ)/2 ends at the bound, and as far on the other side
    assert first.max().item() <= 1
    scores = quadratic(first, TARGETS[:1])[0]
    elites = first[0, scores.argsort(descending=True)[:4]]
    mean = kept * start[0] + (1 - kept) * elites.mean(0)
    var = kept * 0.25 + (1 - kept) * elites.var(0, correction=0)
    room = torch.minimum(mean + 1, 1 - mean) / 2
    std = torch.minimum(var.sqrt(), room)
    assert ((second[0] - mean).abs() <= 2 * std + 1e-6).all()
    assert ((second[0] - mean).abs().amax(0) > 1.5 * std).all()
    scores = quadratic(second, TARGETS[:1])[0]
    best = scores.argsort(descending=True)[:4]
    torch.testing.assert_close(plan[0], kept * mean + (1 - kept) * second[0, best].mean(0))
    torch.testing.assert_close(value[0], scores[best].mean())


def test_cem_ends_where_the_variance_is_small_each_environment_for_itself() -> None:
    calls = 0

    def score(candidates: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        flat = torch.zeros(candidates.shape[1])
        return torch.stack([1000 * quadratic(candidates)[0], flat])

    plan, value = cross_entropy(score, torch.zeros(2, H, A), generator(), 300, k_best=3, iterations=50, epsilon=0.01)
    assert 1 < calls < 50
    assert (plan[0] - TARGETS[0]).abs().max().item() < 0.3
    nothing, worst = cross_entropy(score, plan, generator(), 9, iterations=3, epsilon=9.0)
    torch.testing.assert_close(nothing, plan)
    assert worst.tolist() == pytest.approx([WORST, WORST])
    assert value[1].item() == 0


WANTED = torch.tensor([[2, 0, 1, 1], [0, 0, 2, 1]])


def hits(candidates: Tensor) -> Tensor:
    """How many choices are the wanted ones, the first counting most."""
    worth = torch.tensor([2.0, 1.5, 1.0, 1.0])
    return ((candidates.argmax(-1) == WANTED[:, None]) * worth).sum(-1)


def test_cem_over_choices_finds_the_wanted_ones_and_changes_its_mind() -> None:
    seen: list[Tensor] = []

    def score(candidates: Tensor) -> Tensor:
        seen.append(candidates)
        return hits(candidates)

    plan, _ = categorical_cross_entropy(score, torch.zeros(2, 4, 3), generator(), 300, k_best=20, iterations=6)
    assert torch.equal(plan.argmax(-1), WANTED)
    assert plan.amax(-1).min().item() > 0.9
    frequencies = (seen[0].argmax(-1)[..., None] == torch.arange(3)).float().mean((0, 1))
    torch.testing.assert_close(frequencies, torch.full((4, 3), 1 / 3), atol=0.1, rtol=0)
    assert (seen[0].sum(-1) == -1).all()  # one choice each
    # What it was sure of before keeps half of its weight, no more.
    plan, _ = categorical_cross_entropy(score, plan.flip(0), generator(), 300, k_best=20, iterations=6)
    assert torch.equal(plan.argmax(-1), WANTED)


def test_one_fit_of_cem_over_choices_by_hand() -> None:
    seen: list[Tensor] = []

    def score(candidates: Tensor) -> Tensor:
        seen.append(candidates)
        return hits(candidates)[:1] + 0.01 * torch.arange(candidates.shape[1])

    start = torch.tensor([[[0.2, -1.0, -0.2], [1.0, -1.0, -1.0], [-1.0, 0.0, 0.0], [-1.0, -1.0, 1.0]]])
    plan, value = categorical_cross_entropy(
        score, start, generator(), 50, k_best=5, iterations=1, epsilon=0.0, update_alpha=0.25
    )
    scores = hits(seen[0])[0] + 0.01 * torch.arange(50)
    best = scores.argsort(descending=True)[:5]
    p = torch.tensor([[0.6, 0.0, 0.4], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]) / 2 + 1 / 6
    frequencies = (seen[0][0, best] > 0).float().mean(0)
    torch.testing.assert_close((plan[0] + 1) / 2, 0.25 * p + 0.75 * frequencies)
    torch.testing.assert_close(value[0], scores[best].mean())
    again, worst = categorical_cross_entropy(score, start, generator(), 50, epsilon=0.5)
    torch.testing.assert_close((again[0] + 1) / 2, p)
    assert worst.tolist() == pytest.approx([WORST])


def test_pddm_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter and the weights, step by step, from given noise."""
    noise = torch.randn(5, H, A, generator=generator(1))
    monkeypatch.setattr(planning.torch, "randn", lambda *_, **__: noise)
    plan, previous, beta, gamma = TARGETS[:1] / 2, torch.tensor([[0.5, -0.5]]), 0.7, 3.0
    found, value = reward_weighted(quadratic, plan, previous, generator(), 5, gamma=gamma, beta=beta)
    rows = []
    for i in range(5):
        action, steps = previous[0], []
        for t in range(H):
            action = (beta * (plan[0, t] + noise[i, t]) + (1 - beta) * action).clamp(-1, 1)
            steps.append(action)
        rows.append(torch.stack(steps))
    actions = torch.stack(rows)
    scores = quadratic(actions[None], TARGETS)[0]
    powers = (gamma * (scores - scores.max())).exp()
    weights = powers / powers.sum()
    torch.testing.assert_close(found[0], (weights[:, None, None] * actions).sum(0))
    torch.testing.assert_close(value[0], (weights * scores).sum())
