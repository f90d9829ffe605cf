"""A place that chance does not reach."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class LongChain(gym.Env[Any, Any]):
    """Sixty places in a row; one action leads right and one left, and a reward of 1 lies at the right end.

    Which action leads right was drawn once for each place, so no habit leads there. An episode has 120 steps: a random
    walk gets 11 places far, and 59 with a probability below 1e-6.
    """

    LENGTH = 60
    RIGHT = np.random.default_rng(0).integers(2, size=LENGTH)
    observation_space = spaces.Discrete(LENGTH)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.time = 0
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.place = max(self.place + (1 if action == self.RIGHT[self.place] else -1), 0)
        done = self.place == self.LENGTH - 1
        return self.place, float(done), done, self.time == 120 and not done, {}
