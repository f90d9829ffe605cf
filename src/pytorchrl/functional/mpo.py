"""The numerics of maximum a posteriori policy optimization (arXiv 1806.06920, 1812.02256).

Of S states each has K actions that a prior draws with the given log-probabilities, ``[S, K]`` (−log K of K samples).
The improved policy is q(a|s) ∝ prior(a|s)·exp(Q(s, a)/η).
"""

import math

import torch
from torch import Tensor

from pytorchrl.functional.log_probs import gaussian_kl, gaussian_log_prob

SMALLEST_TEMPERATURE = 1e-6
# How far from its constraint, relatively, the divergence at the temperature may stay.
TOLERANCE = 1e-10


def dual(eta: float, scores: Tensor, log_prior: Tensor, constraint: float) -> Tensor:
    """g(η) = ηε + η·mean_s log Σ_a prior(a|s)·exp(Q(s, a)/η) (1806.06920, eq. 9), a scalar."""
    return eta * constraint + eta * (log_prior + scores / eta).logsumexp(-1).mean()


def improved_policy(eta: float, scores: Tensor, log_prior: Tensor) -> Tensor:
    """q(a|s), ``[S, K]``."""
    return (log_prior + scores / eta).softmax(-1)


def temperature(scores: Tensor, log_prior: Tensor, constraint: float, start: float = 1.0) -> float:
    """η ≥ 1e-6 that minimizes the dual g.

    g is convex and g'(η) = ε − mean_s KL(q_η ‖ prior), so η is where the divergence meets its constraint: a root that
    Newton's method finds in the logarithms of both, where the divergence of a wide prior is nearly a line, within
    bounds that always hold one. Where even the smallest η diverges less, it is the minimum.
    """
    scores, log_prior = scores.double(), log_prior.double()
    scores = scores - scores.amax(-1, keepdim=True)
    # KL(q ‖ prior) ≤ (spread of the scores / η)² / 8.
    bound = -scores.amin().item() / math.sqrt(8 * constraint)
    if not math.isfinite(bound):
        return bound
    if bound <= SMALLEST_TEMPERATURE or _divergence(SMALLEST_TEMPERATURE, scores, log_prior)[0] <= constraint:
        return SMALLEST_TEMPERATURE
    low, high = math.log(SMALLEST_TEMPERATURE), math.log(bound)
    x = min(max(math.log(start), low), high)
    for _ in range(200):
        kl, slope = _divergence(math.exp(x), scores, log_prior)
        if abs(kl - constraint) <= TOLERANCE * constraint:
            break
        low, high = (x, high) if kl > constraint else (low, x)
        newton = x + kl * math.log(kl / constraint) / slope if min(kl, slope) > 0 else low
        x = newton if low < newton < high else (low + high) / 2
    return math.exp(x)


def _divergence(eta: float, scores: Tensor, log_prior: Tensor) -> tuple[float, float]:
    """(mean KL(q_η ‖ prior), how fast it falls with log η: mean Var_q(Q)/η²)."""
    logits = log_prior + scores / eta
    q = logits.softmax(-1)
    mean = (q * scores).sum(-1)
    kl = mean / eta - logits.logsumexp(-1)
    variance = (q * (scores - mean.unsqueeze(-1)).square()).sum(-1)
    falls = variance.mean() / eta**2
    return kl.mean().item(), falls.item()


def decoupled_log_prob(x: Tensor, old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor]) -> Tensor:
    """log N(x; μ, σ̄) + log N(x; μ̄, σ) of old and new (mean, log σ): mean and scale learn apart, ``[…, 1]``."""
    return gaussian_log_prob(x, new[0], old[1]) + gaussian_log_prob(x, old[0], new[1])


def decoupled_kl(old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """(C_μ, C_Σ) = (KL(N(μ̄, σ̄) ‖ N(μ, σ̄)), KL(N(μ̄, σ̄) ‖ N(μ̄, σ))) of old and new (mean, log σ), ``[…, 1]`` each."""
    return gaussian_kl(*old, new[0], old[1]), gaussian_kl(*old, old[0], new[1])


def ascend(multiplier: Tensor, kl: Tensor, constraint: float, scale: float, largest: float) -> Tensor:
    """α ← clip(α − scale·(ε − C), 0, largest): a constraint that is broken weighs more."""
    return torch.clamp(multiplier - scale * (constraint - kl), 0.0, largest)
