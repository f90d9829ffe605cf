"""Log-probabilities, entropies and KL divergences as plain functions, without distribution objects.

Diagonal Gaussians take mean and log σ, `[…, A]`; categoricals take unnormalized logits, `[…, K]`, of which some may be
−inf (actions that are ruled out). Every result is summed over the last axis, which stays: `[…, 1]`.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def gaussian_log_prob(x: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """log N(x; μ, σ²) = −Σ_j [½ ((x_j − μ_j) / σ_j)² + log σ_j + ½ log 2π], `[…, 1]`."""
    z = (x - mean) * torch.exp(-log_std)
    return -(0.5 * z.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1, keepdim=True)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """H = Σ_j [log σ_j + ½ log 2πe], `[…, 1]`."""
    return (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1, keepdim=True)


def gaussian_kl(p_mean: Tensor, p_log_std: Tensor, q_mean: Tensor, q_log_std: Tensor) -> Tensor:
    """KL(p ‖ q) = ½ Σ_j [σ_p²/σ_q² − 1 − log(σ_p²/σ_q²) + ((μ_p − μ_q) / σ_q)²], `[…, 1]`."""
    log_ratio = 2 * (p_log_std - q_log_std)
    z = (p_mean - q_mean) * torch.exp(-q_log_std)
    return 0.5 * (torch.expm1(log_ratio) - log_ratio + z.square()).sum(-1, keepdim=True)


def tanh_correction(u: Tensor) -> Tensor:
    """log |det d tanh(u)/du| = Σ_j log(1 − tanh² u_j) = Σ_j 2 (log 2 − u_j − softplus(−2u_j)), `[…, 1]`.

    The last form is finite for every u. −softplus(−2u) is written as logsigmoid(2u), its exact equal: PyTorch's
    softplus turns into the identity above 20, an error of 2e-9.
    """
    return 2 * (math.log(2) - u + logsigmoid(2 * u)).sum(-1, keepdim=True)


def squashed_log_prob(u: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """log π(tanh u) for u ~ N(μ, σ²), as a density over actions in [−1, 1], `[…, 1]`; takes u, before the tanh."""
    return gaussian_log_prob(u, mean, log_std) - tanh_correction(u)


def categorical_log_prob(logits: Tensor, action: Tensor) -> Tensor:
    """log π(a) for integer actions `[…, 1]`, `[…, 1]`."""
    return logits.log_softmax(-1).gather(-1, action)


def categorical_entropy(logits: Tensor) -> Tensor:
    """H = −Σ_a π_a log π_a with 0 log 0 = 0, `[…, 1]`."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    return -(p * torch.where(p == 0, 0.0, log_p)).sum(-1, keepdim=True)


def categorical_kl(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """KL(p ‖ q) = Σ_a p_a (log p_a − log q_a), `[…, 1]`; an action with p_a = 0 adds nothing.

    Infinite where p_a > 0 = q_a; the gradient in q_logits is finite even there.
    """
    log_p, log_q = p_logits.log_softmax(-1), q_logits.log_softmax(-1)
    p = log_p.exp()
    return (p * torch.where(p == 0, 0.0, log_p - log_q)).sum(-1, keepdim=True)
