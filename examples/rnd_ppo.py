"""RND-PPO on a chain of rooms whose only reward lies at its far end: curiosity gets there, chance hardly ever does.

Run: python examples/rnd_ppo.py
"""

from typing import Any

import gymnasium as gym
import numpy as np

import pytorchrl as prl


class Chain(gym.Env[Any, Any]):
    """Thirty places in a row, a reward behind the last one, and a time limit of 45 steps; it begins at the first."""

    observation_space = gym.spaces.Discrete(30)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.time = 0
        return self.place, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.place = int(np.clip(self.place + (1 if action == 1 else -1), 0, 30))
        found = self.place == 30
        return min(self.place, 29), float(found), found, self.time == 45 and not found, {}


def main(steps: int = 40_000, seed: int = 1) -> float:
    """Train for that many environment steps; returns the share of the last episodes that found the reward."""
    settings = {
        "env.num_envs": 16,
        "storage.size": 64,
        "algorithm.lr": 2e-3,
        "algorithm.num_mini_batch": 4,
        "algorithm.predictor_proportion": 0.25,
        "algorithm.pre_normalization_steps": 4,
        "algorithm.pre_normalization_length": 64,
    }
    run = prl.train("RND_PPO", Chain, steps=steps, seed=seed, preset="none", overrides=settings)
    return sum(run.scores) / len(run.scores)


if __name__ == "__main__":
    print(f"episodes that found the reward: {main():.0%}")
