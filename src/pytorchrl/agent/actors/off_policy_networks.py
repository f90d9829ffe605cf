"""The networks of an off-policy actor: what its policy is made of, and its critics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.feature_extractors import fitting_extractor, make_extractor
from pytorchrl.agent.actors.initialization import orthogonal
from pytorchrl.agent.actors.memory_networks import Memory, make_memory
from pytorchrl.agent.actors.parallel import ParallelLinear, make_extractors
from pytorchrl.tree import Tree

# A network by name or class, and its parameters.
Network = str | type[nn.Module]
Choice = tuple[Network | None, dict[str, Any] | None]

PASS_ON: dict[str, Any] = {"hidden_sizes": ()}
TWO_LAYERS: dict[str, Any] = {"hidden_sizes": (256, 256), "activation": "relu"}


@dataclass(frozen=True)
class Recipe:
    """What each network is made of: features of the observation [and action], common layers, memory.

    Unless chosen otherwise vectors are passed on, images and dicts have the extractor that fits, and the common part is
    two layers of 256 ReLUs, or nothing above an image alone.
    """

    input_space: gym.Space[Any]
    obs: Choice
    act: Choice
    common: Choice
    memory: Choice

    def obs_features(self) -> tuple[gym.Space[Any], Network, dict[str, Any]]:
        fitting = fitting_extractor(self.input_space)
        return self.input_space, *chosen(self.obs, fitting, PASS_ON if fitting.__name__ == "MLP" else {})

    def act_features(self, size: int) -> tuple[gym.Space[Any], Network, dict[str, Any]]:
        return vectors(size), *chosen(self.act, "MLP", PASS_ON)

    def common_features(self, size: int, with_action: bool) -> tuple[gym.Space[Any], Network, dict[str, Any]]:
        image_alone = len(self.input_space.shape or ()) == 3 and not with_action
        return vectors(size), *chosen(self.common, "MLP", PASS_ON if image_alone else TWO_LAYERS)

    def memories(self, count: int, size: int) -> list[Memory]:
        network, kwargs = self.memory
        return [] if network is None else [make_memory(size, network, kwargs) for _ in range(count)]


def chosen(choice: Choice, network: Network, kwargs: dict[str, Any]) -> tuple[Network, dict[str, Any]]:
    """The user's choice, or the given network and parameters under those that the user gave."""
    if choice[0] is not None:
        return choice[0], choice[1] or {}
    return network, {**kwargs, **(choice[1] or {})}


def vectors(size: int) -> spaces.Box:
    """The space of what other networks return."""
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def remember(memory: Memory, x: Tensor, rhs: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
    """The memory over rows in the order of a replay: sequence by sequence, ``[n·L, F]``."""
    n = rhs.shape[0]
    if x.shape[0] == n:
        return memory(x, rhs, done)  # type: ignore[no-any-return]
    x, done = (rows.view(n, -1, rows.shape[-1]).transpose(0, 1).flatten(0, 1) for rows in (x, done))
    y, rhs = memory(x, rhs, done)
    return y.view(-1, n, y.shape[-1]).transpose(0, 1).flatten(0, 1), rhs


class PolicyFeatures(nn.Module):
    """Everything of a policy network below its head."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.obs_features = make_extractor(*recipe.obs_features())
        size: int = self.obs_features.num_features  # type: ignore[assignment]
        self.common_features = make_extractor(*recipe.common_features(size, with_action=False))
        self.num_features: int = self.common_features.num_features  # type: ignore[assignment]
        self.memory: Memory | None = None
        for memory in recipe.memories(1, self.num_features):
            self.memory, self.num_features = memory, memory.num_features

    def forward(self, obs: Tree, rhs: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """(features, next hidden states)."""
        x = self.common_features(self.obs_features(obs))
        return (x, rhs) if self.memory is None else remember(self.memory, x, rhs, done)


class Critics(nn.Module):
    """K critics with weights and memories of their own: Q(o, a), or the scores of n discrete actions."""

    def __init__(self, count: int, recipe: Recipe, action_size: int | None, outputs: int, gain: float) -> None:
        super().__init__()
        self.obs_features = make_extractors(count, *recipe.obs_features())
        size: int = self.obs_features.num_features  # type: ignore[assignment]
        self.act_features = None
        if action_size is not None:
            self.act_features = make_extractors(count, *recipe.act_features(action_size))
            size += self.act_features.num_features  # type: ignore[operator,assignment]
        self.common_features = make_extractors(count, *recipe.common_features(size, action_size is not None))
        size = self.common_features.num_features  # type: ignore[assignment]
        self.memories = nn.ModuleList(recipe.memories(count, size))
        for memory in self.memories:
            size = memory.num_features  # type: ignore[assignment]
        self.heads = ParallelLinear([orthogonal(nn.Linear(size, outputs), gain) for _ in range(count)])

    def forward(
        self, obs: Tree, action: Tensor | None, rhs: Sequence[Tensor], done: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """(scores ``[k, B, outputs]``, next hidden states) of the first k critics, one per hidden state in ``rhs``.

        Actions may be those of several passes over the observations, which are read once.
        """
        count = len(rhs)
        x = self.obs_features(obs, count)
        following = list(rhs)
        if self.act_features is not None:
            passes = action.shape[0] // x.shape[1]  # type: ignore[union-attr]
            if passes > 1:
                x, done = x.repeat(1, passes, 1), done.repeat(passes, 1)
                following = [state.repeat(passes, *[1] * (state.ndim - 1)) for state in rhs]
            x = torch.cat([x, self.act_features(action, count)], -1)
        x = self.common_features.each(x)
        if len(self.memories):
            features = []
            for k, memory in enumerate(self.memories[:count]):
                y, following[k] = remember(memory, x[k], following[k], done)  # type: ignore[arg-type]
                features.append(y)
            x = torch.stack(features)
        return self.heads(x), following
