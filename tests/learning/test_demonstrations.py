"""A sparse MiniGrid task that PPO+D solves from five demonstrations, and PPO does not within the same steps."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl

LEFT, RIGHT, FORWARD, PICK_UP, TOGGLE = 0, 1, 2, 3, 5
LAYOUT, EPISODE = 7, 100


class DoorKey(gym.Wrapper[Any, Any, Any, Any]):
    """Find the key, open the door, reach the goal: one layout, 100 steps, and nothing is paid on the way.

    The observation is what MiniGrid shows of the 7 x 7 cells ahead, and where the agent faces.
    """

    def __init__(self) -> None:
        import minigrid  # noqa: F401  registers the environment

        super().__init__(gym.make("MiniGrid-DoorKey-8x8-v0", max_steps=EPISODE, disable_env_checker=True))
        self.observation_space = spaces.Box(0.0, 1.0, (7 * 7 * 3 + 4,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = self.env.reset(seed=LAYOUT)
        return self._flat(observation), info

    def step(self, action: Any) -> Any:
        observation, *rest = self.env.step(action)
        return self._flat(observation), *rest

    def _flat(self, observation: Any) -> Any:
        facing = np.eye(4)[observation["direction"]]
        return np.concatenate([observation["image"].reshape(-1) / 10, facing]).astype(np.float32)


def way_to(grid: Any, place: tuple[int, int], facing: int, target: tuple[int, int]) -> list[int]:
    """The shortest list of actions after which the agent stands before ``target`` and faces it."""
    steps = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    queue = deque([(place, facing, [])])  # type: ignore[var-annotated]
    seen = set()
    while queue:
        (x, y), facing, way = queue.popleft()
        ahead = x + steps[facing][0], y + steps[facing][1]
        if ahead == target:
            return list(way)
        if ((x, y), facing) in seen:
            continue
        seen.add(((x, y), facing))
        queue.append(((x, y), (facing - 1) % 4, [*way, LEFT]))
        queue.append(((x, y), (facing + 1) % 4, [*way, RIGHT]))
        cell = grid.get(*ahead)
        if cell is None or cell.can_overlap():
            queue.append((ahead, facing, [*way, FORWARD]))
    raise AssertionError("no way")


def demonstrate(folder: Path) -> None:
    """Five episodes of an expert that turns the wrong way now and then."""
    env, random = DoorKey(), np.random.default_rng(0)
    world: Any = env.unwrapped

    def expert(observation: Any) -> int:
        cells = {world.grid.get(x, y).type: (x, y) for x in range(8) for y in range(8) if world.grid.get(x, y)}
        door = world.grid.get(*cells["door"])
        kind, last = ("goal", FORWARD) if door.is_open else ("door", TOGGLE) if world.carrying else ("key", PICK_UP)
        if random.random() < 0.1:
            return int(random.integers(2))
        return [*way_to(world.grid, tuple(world.agent_pos), world.agent_dir, cells[kind]), last][0]

    assert len(prl.record(lambda: env, folder, expert, 5)) == 5


def success(algorithm: str, seed: int, steps: int, folder: Path) -> float:
    """The share of the last 20 training episodes that reached the goal."""
    settings = {
        "env.num_envs": 8,
        "env.backend": "sync",
        "storage.size": 64,
        "algorithm.lr": 3e-3,
        "algorithm.num_epochs": 8,
        "algorithm.clip_param": 0.1,
        "algorithm.num_mini_batch": 4,
        "algorithm.entropy_coef": 0.0,
        "anneal.lr": 0.0,
    }
    if algorithm == "PPOD":
        settings |= {"storage.initial_human_demos_dir": str(folder / "demos"), "storage.rho": 0.5, "storage.phi": 0.1}
    run = prl.train(algorithm, DoorKey, steps=steps, seed=seed, overrides=settings, run=folder / algorithm)
    return sum(score > 0 for score in run.scores[-20:]) / 20


def side_by_side(seed: int, steps: int, folder: Path) -> None:
    demonstrate(folder / "demos")
    with_demos, without = (success(algorithm, seed, steps, folder) for algorithm in ("PPOD", "PPO"))
    assert with_demos >= 0.8
    assert without <= 0.1


def test_five_demonstrations_make_the_difference(tmp_path: Path) -> None:
    side_by_side(1, 12_000, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_five_demonstrations_make_the_difference_for_every_seed(seed: int, tmp_path: Path) -> None:
    side_by_side(seed, 20_000, tmp_path)
