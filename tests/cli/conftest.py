"""What the tests of the program share: a finished run, and environments that no algorithm can serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl

SMALL = ["--envs", "2", "--set", "storage.size=32", "--set", "algorithm.num_epochs=2"]


class Odd(gym.Env[Any, Any]):
    """An environment with the given spaces; it is never stepped."""

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


BOX = spaces.Box(-1.0, 1.0, (2,))
ODD = {
    "Unbounded-v0": (BOX, spaces.Box(-np.inf, np.inf, (2,))),
    "Flat-v0": (BOX, spaces.Box(1.0, 1.0, (2,))),
    "Words-v0": (BOX, spaces.Text(5)),
    "Wordy-v0": (spaces.Text(5), spaces.Discrete(2)),
}


@pytest.fixture(autouse=True, scope="session")
def odd_environments() -> None:
    for name, (observation_space, action_space) in ODD.items():
        kwargs = {"observation_space": observation_space, "action_space": action_space}
        gym.register(name, Odd, kwargs=kwargs)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 256 steps with checkpoints at 128 and 256; tests only read it."""
    overrides = {"env.num_envs": 2, "storage.size": 32, "run.checkpoint_every": 128, "algorithm.num_epochs": 2}
    folder = tmp_path_factory.mktemp("runs") / "finished"
    return prl.train("PPO", "CartPole-v1", steps=256, seed=3, overrides=overrides, run=folder).path
