"""Stacks of frames ``[N, k·C, …]``, oldest first: which frames they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.keys import DONE, OBS, OBS2
from pytorchrl.tree import Tree


def frame(obs: Tree, count: int, back: int = 0) -> Tree:
    """The frame ``back`` before the newest one of stacks of ``count``: a view; for ``count`` 1 all there is."""
    if count == 1:
        return obs

    def cut(stack: Tensor) -> Tensor:
        channels = stack.shape[1] // count
        return stack[:, (count - 1 - back) * channels : (count - back) * channels]

    return tree.tree_map(cut, obs)


def repeats_one_frame(stacks: Tensor, count: int) -> bool:
    """Whether each of the stacks ``[N, k·C, …]`` is one frame again and again, as at the start of an episode."""
    frames = stacks.unflatten(1, (count, -1))
    return bool((frames == frames[:, -1:]).all())


def are_stacks(sample: Mapping[str, Any], count: int) -> bool:
    """Whether the observations of a transition are stacks of ``count`` frames that can be rebuilt from single ones.

    Then each begins with one frame repeated and goes on by one frame a step. Dicts and scalars are no stacks.
    """
    obs, successor = sample[OBS], sample[OBS2]
    if not torch.is_tensor(obs) or obs.dim() < 2 or obs.shape[1] % count:
        return False
    channels = obs.shape[1] // count
    begins = sample[DONE].flatten().bool()
    return repeats_one_frame(obs[begins], count) and torch.equal(obs[:, channels:], successor[:, :-channels])
