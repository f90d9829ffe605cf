"""What a network reads of a box: its shape checked, whole numbers scaled."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.errors import SpaceError


def box(space: gym.Space[Any], reader: str, dimensions: int | None = None) -> spaces.Box:
    """The space itself, if it is a box (of so many dimensions)."""
    if not isinstance(space, spaces.Box) or (dimensions is not None and len(space.shape) != dimensions):
        expected = "Box" if dimensions is None else f"Box of {dimensions} dimensions"
        raise SpaceError(f"{reader} cannot read observation space {space}", f"Supported: {expected}.")
    return space


class Scaled(nn.Module):
    """Observations as float32: uint8 (pixels) over their upper bound, 1/255 as a rule; floats as they are."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.factor = 1.0 / max(float(space.high.max(initial=1)), 1.0) if space.dtype == np.uint8 else 1.0

    def forward(self, obs: Tensor) -> Tensor:
        return obs * self.factor if obs.dtype == torch.uint8 else obs.float()


class Image(Scaled):
    """Scaled images, in the memory order that convolutions are fastest on."""

    def forward(self, obs: Tensor) -> Tensor:
        return super().forward(obs).contiguous(memory_format=torch.channels_last)
