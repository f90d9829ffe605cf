"""Planners: sequences of actions that a score likes, found by sampling. They know no model, network or environment.

A plan is `[N, H, A]`: H steps of N environments in [−1, 1] units. A score maps candidates `[N, C, H, A]` to what they
are worth, `[N, C]`. The same noise is used for every environment, so that one plans in a batch as it would alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

Score = Callable[[Tensor], Tensor]

# What a candidate is worth whose score is no number: less than any other.
WORST = -1e30


def shifted(plan: Tensor) -> Tensor:
    """The plan one step later, its last step repeated."""
    return torch.cat([plan[:, 1:], plan[:, -1:]], 1)


def scored(score: Score, candidates: Tensor) -> Tensor:
    """The candidates' scores; NaN and infinities, which models that diverge give, are the worst there is."""
    values = score(candidates)
    return torch.where(values.isfinite(), values, WORST)


def truncated_normal(shape: tuple[int, ...], generator: torch.Generator, bound: float = 2.0) -> Tensor:
    """Standard normal numbers given that they lie within ±bound, by the inverse of the distribution function."""
    edge = math.erf(bound / math.sqrt(2))
    share = (2 * torch.rand(shape, generator=generator) - 1) * edge
    return (math.sqrt(2) * torch.erfinv(share)).clamp(-bound, bound)


def random_shooting(score: Score, plan: Tensor, generator: torch.Generator, candidates: int) -> tuple[Tensor, Tensor]:
    """(the best of uniformly random plans and the given one, its score `[N]`) (arXiv 1708.02596, sec. IV-C)."""
    N, H, A = plan.shape
    drawn = 2 * torch.rand(candidates, H, A, generator=generator) - 1
    actions = torch.cat([drawn.to(plan.device).expand(N, -1, -1, -1), plan[:, None]], 1)
    values, best = scored(score, actions).max(1)
    return actions[torch.arange(N, device=plan.device), best], values


def cross_entropy(
    score: Score,
    plan: Tensor,
    generator: torch.Generator,
    candidates: int,
    *,
    lb: float = -1.0,
    ub: float = 1.0,
    k_best: int = 5,
    iterations: int = 3,
    epsilon: float = 0.001,
    update_alpha: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """(mean plan, mean score of its last elites `[N]`) of the cross-entropy method as in PETS (arXiv 1805.12114).

    a ~ N(μ, v) truncated at ±2σ, v = min(var, ((μ − lb)/2)², ((ub − μ)/2)²), so that no candidate leaves [lb, ub];
    (μ, var) ← update_alpha·old + (1 − update_alpha)·(mean, population variance) of the k best, from
    var = ((ub − lb)/4)² until no variance reaches epsilon. An environment that is done stays as it is.
    """
    N, H, A = plan.shape
    mean, var = plan.clamp(lb, ub), torch.full_like(plan, ((ub - lb) / 4) ** 2)
    value = plan.new_full((N,), WORST)
    for _ in range(iterations):
        moves = var.amax((1, 2)) >= epsilon
        if not moves.any():
            break
        room = torch.minimum(mean - lb, ub - mean) / 2
        std = torch.minimum(var.sqrt(), room)
        noise = truncated_normal((candidates, H, A), generator).to(plan.device)
        actions = mean[:, None] + std[:, None] * noise
        values, best = scored(score, actions).topk(min(k_best, candidates), dim=1)
        elites = actions.gather(1, best[:, :, None, None].expand(-1, -1, H, A))
        elite_var, elite_mean = torch.var_mean(elites, dim=1, correction=0)
        rows = moves[:, None, None]
        mean = torch.where(rows, update_alpha * mean + (1 - update_alpha) * elite_mean, mean)
        var = torch.where(rows, update_alpha * var + (1 - update_alpha) * elite_var, var)
        value = torch.where(moves, values.mean(1), value)
    return mean, value


def categorical_cross_entropy(
    score: Score,
    plan: Tensor,
    generator: torch.Generator,
    candidates: int,
    *,
    k_best: int = 5,
    iterations: int = 3,
    epsilon: float = 0.001,
    update_alpha: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The same over choices among A: a plan holds 2p − 1 of their probabilities p, a candidate ±1.

    p ← update_alpha·p + (1 − update_alpha)·(frequencies among the k best), from halfway between the given plan's and
    uniform ones, until no variance p·(1 − p) reaches epsilon.
    """
    N, H, A = plan.shape
    p = (plan + 1) / 2
    p = (p / p.sum(-1, keepdim=True) + 1 / A) / 2
    value = plan.new_full((N,), WORST)
    for _ in range(iterations):
        moves = (p * (1 - p)).amax((1, 2)) >= epsilon
        if not moves.any():
            break
        share = torch.rand(candidates, H, 1, generator=generator).to(plan.device)
        choices = (share >= p.cumsum(-1)[:, None, :, :-1]).sum(-1)
        actions = 2 * one_hot(choices, A).to(plan) - 1
        values, best = scored(score, actions).topk(min(k_best, candidates), dim=1)
        elites = actions.gather(1, best[:, :, None, None].expand(-1, -1, H, A))
        frequencies = (elites.mean(1) + 1) / 2
        p = torch.where(moves[:, None, None], update_alpha * p + (1 - update_alpha) * frequencies, p)
        value = torch.where(moves, values.mean(1), value)
    return 2 * p - 1, value


def reward_weighted(
    score: Score,
    plan: Tensor,
    previous: Tensor,
    generator: torch.Generator,
    candidates: int,
    *,
    gamma: float = 1.0,
    beta: float = 0.5,
) -> tuple[Tensor, Tensor]:
    """(plan, weighted score `[N]`) of filtered, reward-weighted refinement as in PDDM (arXiv 1909.11652, eq. 3-5).

    u ~ N(0, 1); a_t = β(μ_t + u_t) + (1 − β)a_{t−1} within [−1, 1], where a_{−1} is the ``previous`` first action
    `[N, A]`; μ_t ← Σ_i w_i a_tⁱ with w_i ∝ exp(γ(R_i − max R)). Noise comes with its
    negative, so that it does not push to one side.
    """
    N, H, A = plan.shape
    half = torch.randn((candidates + 1) // 2, H, A, generator=generator).to(plan.device)
    noise = torch.cat([half, -half])[:candidates]
    wished = plan[:, None] + noise
    action, steps = previous[:, None].expand(N, candidates, A), []
    for t in range(H):
        action = (beta * wished[:, :, t] + (1 - beta) * action).clamp(-1, 1)
        steps.append(action)
    actions = torch.stack(steps, 2)
    values = scored(score, actions)
    weights = torch.softmax(gamma * (values - values.amax(1, keepdim=True)), 1)
    return torch.einsum("nc,ncha->nha", weights, actions), (weights * values).sum(1)
