"""Exploration noise for deterministic policies, in [−1, 1] units, of its own in every environment and dimension."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.errors import ConfigError, suggestion
from pytorchrl.functional.draws import normal_like


class Noise:
    """Base of all noises."""

    @abstractmethod
    def __call__(self, action: Tensor, done: Tensor, generator: torch.Generator) -> Tensor:
        """The action with noise, clipped to [−1, 1]; where ``done`` is 1, a new episode begins."""

    def get_state(self) -> dict[str, Any]:
        """What the next noise depends on."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""


class GaussianNoise(Noise):
    """N(0, σ²), independent from step to step (TD3, arXiv 1802.09477)."""

    def __init__(self, sigma: float = 0.1) -> None:
        self.sigma = sigma

    def __call__(self, action: Tensor, done: Tensor, generator: torch.Generator) -> Tensor:
        noise = normal_like(action, generator, self.sigma)
        return (action + noise).clamp(-1.0, 1.0)


class OrnsteinUhlenbeckNoise(Noise):
    """x ← x + θ(μ − x) + σ·N(0, 1): drifts from step to step (DDPG, arXiv 1509.02971); at μ when an episode begins."""

    def __init__(self, mu: float = 0.0, theta: float = 0.15, sigma: float = 0.2) -> None:
        self.mu, self.theta, self.sigma = mu, theta, sigma
        self.x: Tensor | None = None

    def __call__(self, action: Tensor, done: Tensor, generator: torch.Generator) -> Tensor:
        if self.x is None or self.x.shape != action.shape:
            self.x = torch.full_like(action, self.mu)
        x = self.x.to(action.device).masked_fill(done != 0, self.mu)
        self.x = x + self.theta * (self.mu - x) + normal_like(x, generator, self.sigma)
        return (action + self.x).clamp(-1.0, 1.0)

    def get_state(self) -> dict[str, Any]:
        return {} if self.x is None else {"x": self.x.clone()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.x = state["x"].clone() if state else None


NOISES: dict[str, type[Noise] | None] = {"Gauss": GaussianNoise, "OU": OrnsteinUhlenbeckNoise, "NoNoise": None}


def make_noise(name: str) -> Noise | None:
    """The noise of a name; None for "NoNoise"."""
    if name not in NOISES:
        raise ConfigError(f"unknown noise '{name}'", suggestion(name, NOISES))
    noise = NOISES[name]
    return None if noise is None else noise()
