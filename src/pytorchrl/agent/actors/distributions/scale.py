"""The units of actions: networks work in [−1, 1], environments in their box."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.errors import SpaceError


class BoxScale(nn.Module):
    """The affine map between [−1, 1] and a box."""

    low: Tensor
    high: Tensor
    center: Tensor
    radius: Tensor

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        if not isinstance(space, spaces.Box):
            raise SpaceError(f"no continuous policy for action space {space}", "Supported: Box.")
        if not np.isfinite([space.low, space.high]).all() or (space.low >= space.high).any():
            raise SpaceError(
                f"action space {space} cannot be scaled to: its bounds are infinite or equal",
                "Wrap the environment with gymnasium.wrappers.RescaleAction.",
            )
        low, high = (torch.as_tensor(bound, dtype=torch.float32).reshape(-1) for bound in (space.low, space.high))
        bounds = {"low": low, "high": high, "center": (low + high) / 2, "radius": (high - low) / 2}
        for name, bound in bounds.items():
            self.register_buffer(name, bound, persistent=False)

    def to_box(self, u: Tensor) -> Tensor:
        return torch.addcmul(self.center, self.radius, u)

    def from_box(self, action: Tensor) -> Tensor:
        return (action - self.center) / self.radius

    def clip(self, action: Tensor) -> Tensor:
        """The nearest action inside the box."""
        return torch.clamp(action, self.low, self.high)
