"""Heads: the last layer of a policy network, from features ``[B, F]`` to a distribution."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.distributions.continuous import Deterministic, DiagGaussian, SquashedGaussian
from pytorchrl.agent.actors.distributions.discrete import RULED_OUT, Bernoulli, Categorical, MultiCategorical
from pytorchrl.agent.actors.distributions.scale import BoxScale
from pytorchrl.agent.actors.initialization import orthogonal
from pytorchrl.errors import SpaceError

# A first policy that is nearly uniform (or centered) explores best.
POLICY_GAIN = 0.01
# The range of predicted log σ (SAC).
LOG_STD_RANGE = (-20.0, 2.0)


class CategoricalHead(nn.Module):
    """Logits from one linear layer."""

    def __init__(self, num_features: int, space: spaces.Discrete, gain: float) -> None:
        super().__init__()
        self.linear = orthogonal(nn.Linear(num_features, int(space.n)), gain)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Categorical:
        """``mask`` ``[B, n]``: 0 rules an action out."""
        logits = self.linear(features)
        return Categorical(logits if mask is None else logits.masked_fill(mask == 0, RULED_OUT))


class MultiCategoricalHead(nn.Module):
    """The logits of all categoricals from one linear layer, then one row per categorical."""

    places: Tensor

    def __init__(self, num_features: int, space: spaces.MultiDiscrete, gain: float) -> None:
        super().__init__()
        sizes = [int(n) for n in space.nvec.reshape(-1)]
        self.shape = (len(sizes), max(sizes))
        places = [row * max(sizes) + column for row, size in enumerate(sizes) for column in range(size)]
        self.register_buffer("places", torch.tensor(places), persistent=False)
        self.linear = orthogonal(nn.Linear(num_features, len(places)), gain)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> MultiCategorical:
        """``mask`` ``[B, Σ n]``: 0 rules a choice out."""
        logits = self.linear(features)
        if mask is not None:
            logits = logits.masked_fill(mask == 0, RULED_OUT)
        rows, columns = self.shape
        padded = logits.new_full((logits.shape[0], rows * columns), RULED_OUT).index_copy(1, self.places, logits)
        return MultiCategorical(padded.view(-1, rows, columns))


class BernoulliHead(nn.Module):
    """A logit per switch from one linear layer."""

    def __init__(self, num_features: int, space: spaces.MultiBinary, gain: float) -> None:
        super().__init__()
        self.linear = orthogonal(nn.Linear(num_features, math.prod(space.shape)), gain)

    def forward(self, features: Tensor) -> Bernoulli:
        return Bernoulli(self.linear(features))


class GaussianHead(nn.Module):
    """Means from one linear layer; log σ is a parameter of its own, the same in every state."""

    def __init__(self, num_features: int, space: gym.Space[Any], gain: float) -> None:
        super().__init__()
        self.scale = BoxScale(space)
        self.linear = orthogonal(nn.Linear(num_features, len(self.scale.low)), gain)
        self.log_std = nn.Parameter(torch.zeros(len(self.scale.low)))

    def forward(self, features: Tensor) -> DiagGaussian:
        return DiagGaussian(self.linear(features), self.log_std, self.scale)


class StateGaussianHead(nn.Module):
    """Means, kept in [−1, 1] by a tanh, and log σ, both predicted from the state: MPO's policy."""

    def __init__(self, num_features: int, space: gym.Space[Any], gain: float) -> None:
        super().__init__()
        self.scale = BoxScale(space)
        self.linear = orthogonal(nn.Linear(num_features, 2 * len(self.scale.low)), gain)

    def forward(self, features: Tensor) -> DiagGaussian:
        mean, log_std = self.linear(features).chunk(2, -1)
        return DiagGaussian(mean.tanh(), log_std.clamp(*LOG_STD_RANGE), self.scale)


class SquashedGaussianHead(StateGaussianHead):
    """Mean and log σ of the Gaussian before the tanh: SAC's policy."""

    def forward(self, features: Tensor) -> SquashedGaussian:
        mean, log_std = self.linear(features).chunk(2, -1)
        return SquashedGaussian(mean, log_std.clamp(*LOG_STD_RANGE), self.scale)


class DeterministicHead(nn.Module):
    """One action per state: DDPG's and TD3's policy."""

    def __init__(self, num_features: int, space: gym.Space[Any], gain: float) -> None:
        super().__init__()
        self.scale = BoxScale(space)
        self.linear = orthogonal(nn.Linear(num_features, len(self.scale.low)), gain)

    def forward(self, features: Tensor) -> Deterministic:
        return Deterministic(self.linear(features).tanh(), self.scale)


_STOCHASTIC: dict[type[gym.Space[Any]], Any] = {
    spaces.Discrete: CategoricalHead,
    spaces.MultiDiscrete: MultiCategoricalHead,
    spaces.MultiBinary: BernoulliHead,
    spaces.Box: GaussianHead,
}


def stochastic_head(num_features: int, space: gym.Space[Any], gain: float = POLICY_GAIN) -> nn.Module:
    """The head of a stochastic policy over the action space."""
    if type(space) not in _STOCHASTIC:
        raise SpaceError(
            f"no stochastic policy for action space {space}",
            f"Supported: {', '.join(kind.__name__ for kind in _STOCHASTIC)}.",
        )
    return _STOCHASTIC[type(space)](num_features, space, gain)  # type: ignore[no-any-return]
