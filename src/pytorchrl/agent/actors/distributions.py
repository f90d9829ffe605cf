"""Policy distributions: what a policy network's last layer says, as lean objects over the functions of ``functional``.

A head (module) turns features ``[B, F]`` into a distribution; a distribution samples, names its mode, and computes
log-probabilities and entropies ``[B, 1]``. Actions are in environment units; networks and log-probabilities live in
[−1, 1] units, which ``BoxScale`` maps to the bounds.
"""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.initialization import orthogonal
from pytorchrl.errors import SpaceError
from pytorchrl.functional.log_probs import gaussian_entropy, gaussian_log_prob

# A first policy that is nearly uniform (or centered) explores best.
POLICY_GAIN = 0.01


class Distribution(Protocol):
    """A policy at B observations."""

    def sample(self, generator: torch.Generator) -> Tensor: ...

    def mode(self) -> Tensor: ...

    def log_prob(self, action: Tensor) -> Tensor: ...

    def entropy(self) -> Tensor: ...

    def executed(self, action: Tensor) -> Tensor:
        """The action as the environment may take it."""
        ...


class Categorical:
    """π(a) ∝ exp(logits_a); actions are ``[B, 1]`` integers."""

    def __init__(self, logits: Tensor) -> None:
        self.log_probs = logits.log_softmax(-1)

    def sample(self, generator: torch.Generator) -> Tensor:
        # The first of competing exponential clocks with rates π: argmin_a E_a / π_a.
        clocks = torch.empty_like(self.log_probs).exponential_(generator=generator)
        return (self.log_probs - clocks.log_()).argmax(-1, keepdim=True)

    def mode(self) -> Tensor:
        return self.log_probs.argmax(-1, keepdim=True)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs.gather(-1, action)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1, keepdim=True)

    def executed(self, action: Tensor) -> Tensor:
        return action


class BoxScale(nn.Module):
    """The affine map between [−1, 1] and a box."""

    low: Tensor
    high: Tensor

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.register_buffer("low", torch.as_tensor(space.low, dtype=torch.float32).reshape(-1), persistent=False)
        self.register_buffer("high", torch.as_tensor(space.high, dtype=torch.float32).reshape(-1), persistent=False)
        self.register_buffer("center", (self.low + self.high) / 2, persistent=False)
        self.register_buffer("half", (self.high - self.low) / 2, persistent=False)

    def to_box(self, u: Tensor) -> Tensor:
        return self.center + self.half * u  # type: ignore[operator]

    def from_box(self, action: Tensor) -> Tensor:
        return (action - self.center) / self.half  # type: ignore[operator]


class DiagGaussian:
    """N(mean, diag σ²) in [−1, 1] units; actions are ``[B, A]``, sampled without clipping."""

    def __init__(self, mean: Tensor, log_std: Tensor, scale: BoxScale) -> None:
        self.mean = mean
        self.log_std = log_std
        self.scale = scale

    def sample(self, generator: torch.Generator) -> Tensor:
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.scale.to_box(self.mean + self.log_std.exp() * noise)

    def mode(self) -> Tensor:
        return self.scale.to_box(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        return gaussian_log_prob(self.scale.from_box(action), self.mean, self.log_std)

    def entropy(self) -> Tensor:
        return gaussian_entropy(self.log_std).expand(len(self.mean), 1)

    def executed(self, action: Tensor) -> Tensor:
        return torch.clamp(action, self.scale.low, self.scale.high)


class CategoricalHead(nn.Module):
    """Logits from one linear layer."""

    def __init__(self, num_features: int, num_actions: int) -> None:
        super().__init__()
        self.linear = orthogonal(nn.Linear(num_features, num_actions), POLICY_GAIN)

    def forward(self, features: Tensor) -> Categorical:
        return Categorical(self.linear(features))


class GaussianHead(nn.Module):
    """Means from one linear layer; log σ is a parameter of its own, the same in every state."""

    def __init__(self, num_features: int, space: spaces.Box) -> None:
        super().__init__()
        self.scale = BoxScale(space)
        self.linear = orthogonal(nn.Linear(num_features, len(self.scale.low)), POLICY_GAIN)
        self.log_std = nn.Parameter(torch.zeros(len(self.scale.low)))

    def forward(self, features: Tensor) -> DiagGaussian:
        return DiagGaussian(self.linear(features), self.log_std, self.scale)


def stochastic_head(num_features: int, space: gym.Space[Any]) -> nn.Module:
    """The head of a stochastic policy over the action space."""
    if isinstance(space, spaces.Discrete):
        return CategoricalHead(num_features, int(space.n))
    if isinstance(space, spaces.Box):
        return GaussianHead(num_features, space)
    raise SpaceError(f"no stochastic policy for action space {space}", "Supported: Discrete, Box.")
