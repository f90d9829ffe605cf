"""Observation normalizers: running moments that are part of the networks' state, and travel with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.functional.stats import RunningMeanStd
from pytorchrl.tree import Tree

# Normalized observations end here.
CLIP = 10.0


class ObservationNormalizer(nn.Module):
    """(obs − mean) / std as float32, clipped; only ``update`` moves the moments (float64).

    Parameters
        shape: of one observation.
        clip: where normalized observations end.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...], clip: float = CLIP) -> None:
        super().__init__()
        fresh = RunningMeanStd(shape)
        self.shape, self.clip = shape, clip
        self.register_buffer("mean", fresh.mean)
        self.register_buffer("var", fresh.var)
        self.register_buffer("count", torch.tensor(fresh.count, dtype=torch.float64))

    def _moments(self) -> RunningMeanStd:
        moments = RunningMeanStd(self.shape, self.mean.device)
        moments.mean, moments.var = self.mean, self.var
        return moments

    def forward(self, obs: Tensor) -> Tensor:
        moments = self._moments()
        return ((obs - moments.mean) / moments.std).clamp(-self.clip, self.clip).float()

    @torch.no_grad()
    def update(self, obs: Tensor) -> None:
        """Merge observations ``[…, *shape]``."""
        moments = self._moments()
        moments.count = self.count.item()
        moments.update(obs.reshape(-1, *self.shape))
        self.mean.copy_(moments.mean)
        self.var.copy_(moments.var)
        self.count.fill_(moments.count)


class DictNormalizer(nn.Module):
    """A normalizer for each of the named entries of a Dict observation; the others stay as they are."""

    def __init__(self, space: spaces.Dict, keys: Sequence[str], clip: float = CLIP) -> None:
        super().__init__()
        self.keys = list(keys)
        self.entries = nn.ModuleList(ObservationNormalizer(space[key].shape or (), clip) for key in self.keys)

    def forward(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        normal = {key: entry(obs[key]) for key, entry in zip(self.keys, self.entries, strict=True)}
        return {**obs, **normal}

    def update(self, obs: dict[str, Tensor]) -> None:
        """Merge observations."""
        for key, entry in zip(self.keys, self.entries, strict=True):
            entry.update(obs[key])  # type: ignore[operator]


class Unchanged(nn.Module):
    """Observations as they are."""

    def forward(self, obs: Tree) -> Tree:
        return obs

    def update(self, obs: Tree) -> None:
        """There is nothing to learn."""


def _is_float_vector(space: gym.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) < 3 and np.issubdtype(space.dtype, np.floating)


def make_normalizer(space: gym.Space[Any]) -> nn.Module:
    """The normalizer of an observation space; images are scaled by their networks and stay as they are."""
    if isinstance(space, spaces.Dict):
        return DictNormalizer(space, [key for key, entry in space.spaces.items() if _is_float_vector(entry)])
    if _is_float_vector(space):
        return ObservationNormalizer(space.shape or ())
    return Unchanged()


def make_whitening(space: gym.Space[Any], clip: float) -> nn.Module:
    """The normalizer of everything that an observation holds, images too."""
    if isinstance(space, spaces.Dict):
        return DictNormalizer(space, list(space.spaces), clip)
    return ObservationNormalizer(space.shape or (), clip)
