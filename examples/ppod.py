"""PPO+D: five demonstrations of a way through ten rooms, recorded from a rule, are enough to learn it.

Run: python examples/ppod.py
"""

from typing import Any

import gymnasium as gym

import pytorchrl as prl


class Rooms(gym.Env[Any, Any]):
    """Ten rooms with four doors each, one of which leads on; the others lead back to the first room."""

    observation_space = gym.spaces.Discrete(10)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.room = self.time = 0
        return self.room, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.room = self.room + 1 if action == rule(self.room) else 0
        out = self.room == 10
        return min(self.room, 9), float(out), out, self.time == 40 and not out, {}


def rule(room: int) -> int:
    """The door that leads on."""
    return room * 7 % 4


def main(steps: int = 10_000, seed: int = 1) -> float:
    """Train for that many environment steps; returns the share of the last episodes that found the way out."""
    prl.record(Rooms, "demos", rule, episodes=5)
    settings = {"env.num_envs": 8, "storage.size": 64, "storage.initial_human_demos_dir": "demos"}
    run = prl.train("PPOD", Rooms, steps=steps, seed=seed, overrides=settings)
    return sum(run.scores) / len(run.scores)


if __name__ == "__main__":
    print(f"episodes that found the way out: {main():.0%}")
