"""What plans promised, beside what came of them."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.storages.ring import SCALARS, Ring
from pytorchrl.keys import TERMINAL

# Rows of the ring's scalars.
_TERMINAL = SCALARS.index(TERMINAL)


class Forecasts:
    """Predicted sums of the next rewards, kept until those rewards are there.

    Parameters
        size: how many vector steps are kept at most.
    """

    def __init__(self, size: int) -> None:
        self.kept: deque[tuple[int, Tensor]] = deque(maxlen=size)

    def add(self, step: int, predicted: Tensor) -> None:
        """What every environment was promised at a step of the ring's life, ``[N, 1]``."""
        self.kept.append((step, predicted.flatten().cpu()))

    def settle(self, ring: Ring, horizon: int) -> dict[str, Tensor]:
        """Means of what was predicted and of what was realized, of all forecasts that have come due; {} if none has.

        One has when its ``horizon`` steps are over, or the MDP ended before. Those that a time limit cut are dropped.
        """
        oldest, due = ring.steps - ring.length, ring.steps - horizon
        known = [(step, values) for step, values in self.kept if oldest <= step <= due]
        self.kept = deque(((step, values) for step, values in self.kept if step > due), self.kept.maxlen)
        if not known:
            return {}
        N = ring.num_envs
        ids = torch.cat([torch.arange(step * N, (step + 1) * N) for step, _ in known]).to(ring.device)
        predicted = torch.cat([values for _, values in known])
        rewards, counted = ring.windows(ids, horizon)
        last = ids + (counted.sum(1) - 1) * N
        whole = counted.all(1) | (ring.scalars(last)[:, _TERMINAL] > 0)
        if not whole.any():
            return {}
        realized = (rewards * counted).sum(1)[whole]
        return {"predicted_return": predicted[whole.cpu()].mean(), "realized_return": realized.mean().cpu()}

    def get_state(self) -> list[Any]:
        return [[step, values] for step, values in self.kept]

    def set_state(self, state: Any) -> None:
        self.kept = deque(((step, values) for step, values in state), self.kept.maxlen)
