"""Losses that more than one algorithm uses. Arguments have one common shape; results are scalars."""

import torch
from torch import Tensor


def clipped_surrogate(log_ratios: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """PPO's policy loss −mean min(ρA, clip(ρ, 1 − c, 1 + c) A), ρ = exp(log_ratios) (arXiv 1707.06347, eq. 7)."""
    ratios = log_ratios.exp()
    clipped = ratios.clamp(1 - clip, 1 + clip)
    return -torch.min(ratios * advantages, clipped * advantages).mean()


def approximate_kl(log_ratios: Tensor) -> Tensor:
    """KL(old ‖ new) ≈ mean (ρ − 1 − log ρ) over actions of the old policy: unbiased, and never below 0."""
    return (log_ratios.expm1() - log_ratios).mean()


def clip_fraction(log_ratios: Tensor, clip: float) -> Tensor:
    """The share of |ρ − 1| > c."""
    return (log_ratios.expm1().abs() > clip).float().mean()


def value_loss(values: Tensor, returns: Tensor) -> Tensor:
    """½ mean (V − R)²."""
    return 0.5 * (values - returns).square().mean()


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """½ mean max((V − R)², (V_old + clip(V − V_old, ±c) − R)²): no gain from moving V further than c at once."""
    clipped = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.max((values - returns).square(), (clipped - returns).square()).mean()
