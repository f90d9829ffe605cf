"""Policies over boxes. Actions are ``[B, A]`` in environment units; densities are those of [−1, 1] units."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.distributions.scale import BoxScale
from pytorchrl.functional.draws import normal_like
from pytorchrl.functional.log_probs import (
    gaussian_entropy,
    gaussian_kl,
    gaussian_log_prob,
    squashed_log_prob,
    tanh_correction,
)

# How close to its bounds a stored action may come before it is un-squashed: u stays below 8.
NEAREST = 1 - 2**-22
# Gauss-Hermite quadrature: E[f(z)] ≈ Σ_i w_i f(z_i) for z ~ N(0, 1).
_NODES, _WEIGHTS = (torch.as_tensor(part) for part in np.polynomial.hermite_e.hermegauss(32))


class DiagGaussian:
    """N(mean, diag σ²), sampled without clipping; ``log_std`` is ``[B, A]``, or ``[A]`` for one σ in all states."""

    def __init__(self, mean: Tensor, log_std: Tensor, scale: BoxScale) -> None:
        self.mean = mean
        self.log_std = log_std
        self.scale = scale

    def _draw(self, generator: torch.Generator) -> Tensor:
        noise = normal_like(self.mean, generator)
        return torch.addcmul(self.mean, self.log_std.exp(), noise)

    def sample(self, generator: torch.Generator) -> Tensor:
        return self.scale.to_box(self._draw(generator))

    def rsample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(action, log-prob), through which gradients reach mean and log σ."""
        u = self._draw(generator)
        return self.scale.to_box(u), gaussian_log_prob(u, self.mean, self.log_std)

    def mode(self) -> Tensor:
        return self.scale.to_box(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        return gaussian_log_prob(self.scale.from_box(action), self.mean, self.log_std)

    def entropy(self) -> Tensor:
        return gaussian_entropy(self.log_std).expand(self.mean.shape[0], 1)

    def executed(self, action: Tensor) -> Tensor:
        return self.scale.clip(action)

    def kl(self, other: DiagGaussian) -> Tensor:
        """Of the Gaussians; an invertible map behind both of them, as the tanh is, changes nothing."""
        return gaussian_kl(self.mean, self.log_std, other.mean, other.log_std)

    def floored(self, eps: float) -> DiagGaussian:
        return self


class SquashedGaussian(DiagGaussian):
    """tanh(u) with u ~ N(mean, diag σ²): SAC's policy (arXiv 1812.05905, appendix C)."""

    def sample(self, generator: torch.Generator) -> Tensor:
        return self.scale.to_box(self._draw(generator).tanh())

    def rsample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(action, log-prob) from u itself, without undoing the tanh."""
        u = self._draw(generator)
        return self.scale.to_box(u.tanh()), squashed_log_prob(u, self.mean, self.log_std)

    def mode(self) -> Tensor:
        return self.scale.to_box(self.mean.tanh())

    def log_prob(self, action: Tensor) -> Tensor:
        """Of a stored action: a float32 near a bound does not tell exactly which u it came from."""
        u = self.scale.from_box(action).clamp(-NEAREST, NEAREST).atanh()
        return squashed_log_prob(u, self.mean, self.log_std)

    def entropy(self) -> Tensor:
        """H(u) + E[log |d tanh(u)/du|]; the expectation by quadrature in each dimension."""
        nodes, weights = _NODES.to(self.mean), _WEIGHTS.to(self.mean)
        u = self.mean.unsqueeze(-1) + self.log_std.exp().unsqueeze(-1) * nodes
        correction = tanh_correction(u.unsqueeze(-1)).squeeze(-1) @ (weights / weights.sum())
        return super().entropy() + correction.sum(-1, keepdim=True)


class Deterministic(DiagGaussian):
    """Always ``mean``. Where a density is asked for (policy-loss add-ons), it is that of N(mean, 1)."""

    def __init__(self, mean: Tensor, scale: BoxScale) -> None:
        super().__init__(mean, torch.zeros_like(mean[0]), scale)

    def _draw(self, generator: torch.Generator) -> Tensor:
        return self.mean
