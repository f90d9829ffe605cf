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


def pixel_scale(space: spaces.Box) -> float:
    """What brings uint8 to [0, 1]: 1/255 as a rule."""
    return 1.0 / max(float(space.high.max(initial=1)), 1.0) if space.dtype == np.uint8 else 1.0


def as_float(obs: Tensor, scale: float) -> Tensor:
    """Observations as float32: uint8 times ``scale``, floats as they are."""
    return obs * scale if obs.dtype == torch.uint8 else obs.float()


class Image(nn.Module):
    """Images as floats, in the memory order that convolutions are fastest on."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.scale = pixel_scale(space)

    def forward(self, obs: Tensor) -> Tensor:
        return as_float(obs, self.scale).contiguous(memory_format=torch.channels_last)
