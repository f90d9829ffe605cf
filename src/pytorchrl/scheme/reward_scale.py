"""Rewards in units of the spread of their discounted sums, as they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.functional.stats import RunningMeanStd

CLIP = 10.0


class RewardScale:
    """Divides rewards by the running standard deviation of g_t = γ·g_{t−1} + r_t, which begins anew with each episode.

    No mean is subtracted, so that the sign of a reward stays; the result is clipped to ±10.
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.moments = RunningMeanStd()
        self.sums = torch.zeros(1, 1)

    def __call__(self, reward: Tensor, done: Tensor) -> Tensor:
        """Scaled rewards ``[N, 1]`` of transitions that ended episodes where ``done`` is 1."""
        self.sums = self.gamma * self.sums.to(reward.device) + reward
        self.moments.update(self.sums.flatten())
        self.sums = self.sums * (1.0 - done)
        return (reward / self.moments.std.to(reward)).clamp(-CLIP, CLIP)

    def get_state(self) -> dict[str, Any]:
        return {"moments": self.moments.get_state(), "sums": self.sums}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.moments.set_state(state["moments"])
        self.sums = state["sums"]
