"""What a step of a scheme tells of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pytorchrl.agent.env.vec_env import Episode


@dataclass
class Round:
    """What one round of collecting and learning did."""

    env_steps: int
    updates: int
    losses: dict[str, Tensor]
    # (environment steps into the round, episode)
    episodes: list[tuple[int, Episode]]
    # Updates between the weights that collected and those that learned, on average over the units of the round.
    policy_lag: float = 0.0
    # Updates between the weights that a gradient was computed with and those that it was applied to.
    gradient_asynchrony: float = 0.0


def means_of(infos: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of every figure."""
    return {name: torch.stack([info[name].mean() for info in infos]).mean() for name in (infos[0] if infos else {})}
