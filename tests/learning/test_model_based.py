"""Planners learn: a small world in seconds, rewards and ends included, and the zoo's presets of well-known ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl
from pytorchrl.agent.actors import WorldModel
from pytorchrl.agent.actors.distributions import BoxScale
from pytorchrl.config import resolve
from pytorchrl.run import evaluate


class Ledge(gym.Env[Any, Any]):
    """A point on a line: stay near 0.7, and fall off beyond 1. Nothing is told but by rewards and ends.

    Continuous actions lie between -1 and 3, and 1 leaves the point where it is; discrete ones go left, stay, go right.
    """

    observation_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, continuous: bool) -> None:
        self.continuous = continuous
        self.action_space = spaces.Box(-1.0, 3.0, (1,), np.float32) if continuous else spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = float(self.np_random.uniform(-1.0, 0.5)), 0
        return np.float32([self.place]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 0.2 * ((float(action[0]) - 1) / 2 if self.continuous else float(action) - 1)
        self.place, self.time = max(self.place, -1.5), self.time + 1
        reward = 1 - abs(self.place - 0.7)
        return np.float32([self.place]), reward, self.place > 1, self.time == 20, {}


SMALL = {
    "algorithm.start_steps": 150,
    "algorithm.update_every": 50,
    "algorithm.mb_epochs": 60,
    "algorithm.lr": 3e-3,
    "algorithm.mini_batch_size": 64,
    "actor.horizon": 8,
    "actor.n_planner": 60,
    "actor.particles": 2,
    "actor.world_model_kwargs": {"hidden_size": 32, "num_members": 2, "probabilistic": True},
    "run.logger": ["csv"],
}


def mean_return(run: pytorchrl.Run, episodes: int, seed: int, env: Any = None) -> float:
    played = evaluate(run.policy, episodes, seed=seed, env=env)
    assert len(played) == episodes
    return sum(episode.ret for episode in played) / episodes


def ledge(algorithm: str, continuous: bool, folder: Path) -> None:
    """Most of what can be earned in 20 steps; whoever falls has 7 at most, and usually 4."""

    def env() -> gym.Env[Any, Any]:
        return Ledge(continuous)

    run = pytorchrl.train(algorithm, env, steps=300, seed=1, overrides=SMALL, run=folder / "run")
    assert mean_return(run, 8, 1, env) > 11


@pytest.mark.parametrize(("algorithm", "continuous"), [("mpc_rs", False), ("mpc_cem", True), ("mpc_pddm", True)])
def test_the_way_to_the_ledge(algorithm: str, continuous: bool, tmp_path: Path) -> None:
    ledge(algorithm, continuous, tmp_path)


# A learning test that a broken part passes is no test.

step = WorldModel.step


def the_wrong_way(self: Any, obs: Any, *arguments: Any) -> Any:
    obs2, reward, terminal = step(self, obs, *arguments)
    return 2 * obs - obs2, -reward, terminal


def not_learned(self: Any, train_input: Any, *arguments: Any) -> Any:
    return 0 * sum(parameter.sum() for parameter in self.parameters())


BREAKAGES: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "the model is turned around": (WorldModel, "step", the_wrong_way),
    "the model is not learned": (WorldModel, "loss", not_learned),
    "actions in other units than the environment's": (BoxScale, "to_box", lambda self, u: u),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_is_noticed(monkeypatch: pytest.MonkeyPatch, breakage: str, tmp_path: Path) -> None:
    owner, name, replacement = BREAKAGES[breakage]
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(AssertionError):
        ledge("mpc_pddm", True, tmp_path)


# The zoo

# (algorithm, environment): (steps at most, mean return at least); CartPole's episodes end after 200 steps.
PRESETS = {
    ("mpc_cem", "Pendulum-v1"): (3_000, -300),
    ("mpc_pddm", "Pendulum-v1"): (3_000, -300),
    ("mpc_rs", "Pendulum-v1"): (3_000, -400),
    ("mpc_cem", "CartPole-v1"): (3_000, 190),
    ("mpc_pddm", "CartPole-v1"): (3_000, 190),
    ("mpc_rs", "CartPole-v1"): (3_000, 190),
}


@pytest.mark.parametrize(("algorithm", "env"), PRESETS)
def test_steps_of_the_presets(algorithm: str, env: str) -> None:
    assert resolve(algorithm, env).run.steps <= PRESETS[algorithm, env][0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize(("algorithm", "env"), PRESETS)
def test_presets_reach_their_scores(tmp_path: Path, algorithm: str, env: str, seed: int) -> None:
    torch.set_num_threads(1)
    kwargs = {"env.kwargs": {"max_episode_steps": 200}}
    run = pytorchrl.train(algorithm, env, seed=seed, overrides=kwargs, run=tmp_path / "run")
    assert mean_return(run, 20, 100 + seed) >= PRESETS[algorithm, env][1]
