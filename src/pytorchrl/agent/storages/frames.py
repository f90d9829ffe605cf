"""Stacks of frames ``[N, k·C, …]``, oldest first: which frames they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.keys import OBS, OBS2
from pytorchrl.tree import Tree


def frame(obs: Tree, count: int, back: int = 0) -> Tree:
    """The frame ``back`` before the newest one of stacks of ``count``: a view; for ``count`` 1 all there is."""
    if count == 1:
        return obs

    def cut(stack: Tensor) -> Tensor:
        channels = stack.shape[1] // count
        return stack[:, (count - 1 - back) * channels : (count - back) * channels]

    return tree.tree_map(cut, obs)


def newest_frame(obs: Tree, count: int) -> Tree:
    """The last frame of stacks of ``count``; what cannot be one, and Dict observations, as a whole."""
    stacked = torch.is_tensor(obs) and obs.dim() > 1 and obs.shape[1] % count == 0
    return frame(obs, count) if stacked else obs


def not_repeated(stacks: Tensor, count: int) -> Tensor:
    """Which of the stacks ``[N, k·C, …]`` are not one frame again and again, as most are where an episode begins."""
    frames = as_frames(stacks, count)
    different: Tensor = (frames != frames[:, -1:]).flatten(1).any(1)
    return different.nonzero().flatten()


def as_frames(stacks: Tensor, count: int) -> Tensor:
    """Stacks ``[N, k·C, …]`` as ``[N, k, C, …]``."""
    return stacks.view(len(stacks), count, -1, *stacks.shape[2:])


def are_stacks(sample: Mapping[str, Any], count: int) -> bool:
    """Whether the observations of a transition are stacks of ``count`` frames that go on by one a step."""
    obs, successor = sample[OBS], sample[OBS2]
    if not torch.is_tensor(obs) or obs.dim() < 2 or obs.shape[1] % count:
        return False
    channels = obs.shape[1] // count
    return torch.equal(obs[:, channels:], successor[:, :-channels])
