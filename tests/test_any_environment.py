"""Any space that an environment may have: it trains, is saved, loaded and scored, or is refused by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.run import evaluate

SMALL = {"storage.size": 16, "env.num_envs": 2, "algorithm.num_epochs": 1, "algorithm.num_mini_batch": 2}

OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "float64": spaces.Box(-1.0, 1.0, (3,), np.float64),
    "scalar": spaces.Box(-1.0, 1.0, (), np.float32),
    "matrix": spaces.Box(-1.0, 1.0, (3, 2), np.float32),
    "image": spaces.Box(0, 255, (36, 40, 3), np.uint8),
    "discrete": spaces.Discrete(5, start=2),
    "multi-discrete": spaces.MultiDiscrete([3, 4]),
    "multi-binary": spaces.MultiBinary(4),
    "dict": spaces.Dict({"eye": spaces.Box(0, 255, (36, 36, 3), np.uint8), "speed": spaces.Box(-1.0, 1.0, (2,))}),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3, start=-1),
    "multi-discrete": spaces.MultiDiscrete([3, 2]),
    "multi-binary": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32)),
    "float16": spaces.Box(-1.0, 1.0, (2,), np.float16),
    "matrix": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
}
REFUSED = {
    "infinite": spaces.Box(-math.inf, math.inf, (2,), np.float32),
    "equal": spaces.Box(1.0, 1.0, (2,), np.float32),
    "text": spaces.Text(4),
}


class Noise(gym.Env[Any, Any]):
    """Random observations; every action must lie in the action space, and episodes end in both ways."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        ended = self.np_random.random(2) < 0.1
        return self.observation_space.sample(), 1.0, bool(ended[0]), bool(ended[1]), {}


def check(algorithm: str, observation: spaces.Space[Any], action: spaces.Space[Any], settings: Any, path: Path) -> None:
    def make() -> gym.Env[Any, Any]:
        return Noise(observation, action)

    run = prl.train(algorithm, make, steps=96, overrides=settings, run=path / "run", preset="none")
    policy = prl.load(run.path)
    seen = observation.sample()
    chosen, _ = policy.predict(seen)
    assert action.contains(chosen), chosen
    assert math.isfinite(policy.value(seen))
    assert len(evaluate(policy, 3, env=make)) == 3


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_every_kind_of_observation(name: str, tmp_path: Path) -> None:
    check("ppo", OBSERVATIONS[name], ACTIONS["discrete"], SMALL, tmp_path)


@pytest.mark.parametrize("name", ACTIONS)
def test_every_kind_of_action(name: str, tmp_path: Path) -> None:
    check("ppo", OBSERVATIONS["vector"], ACTIONS[name], SMALL, tmp_path)


@pytest.mark.parametrize("name", ["dict", "image"])
def test_with_a_memory(name: str, tmp_path: Path) -> None:
    memory = {"actor.recurrent_net": "LSTM", "actor.recurrent_net_kwargs": {"layer_size": 8, "num_layers": 1}}
    check("ppo", OBSERVATIONS[name], ACTIONS["multi-discrete"], SMALL | memory, tmp_path)


OFF_POLICY = {
    "storage.size": 100,
    "env.num_envs": 2,
    "algorithm.start_steps": 8,
    "algorithm.update_every": 4,
    "algorithm.num_updates": 1,
    "algorithm.mini_batch_size": 16,
}


@pytest.mark.parametrize("observation", ["vector", "image", "dict"])
@pytest.mark.parametrize(
    ("algorithm", "action"),
    [("ddqn", "discrete"), ("ddpg", "box"), ("td3", "matrix"), ("sac", "float16"), ("sac", "discrete")],
)
def test_off_policy(algorithm: str, action: str, observation: str, tmp_path: Path) -> None:
    check(algorithm, OBSERVATIONS[observation], ACTIONS[action], OFF_POLICY, tmp_path)


PLANNING = {
    "storage.size": 100,
    "env.num_envs": 2,
    "algorithm.start_steps": 20,
    "algorithm.update_every": 20,
    "algorithm.mb_epochs": 2,
    "actor.horizon": 3,
    "actor.n_planner": 8,
    "actor.terminal_function": "learned",
}


@pytest.mark.parametrize("observation", ["vector", "float64", "scalar", "matrix", "discrete", "multi-binary"])
@pytest.mark.parametrize(("algorithm", "action"), [("mpc_cem", "discrete"), ("mpc_pddm", "matrix")])
def test_planning(algorithm: str, action: str, observation: str, tmp_path: Path) -> None:
    check(algorithm, OBSERVATIONS[observation], ACTIONS[action], PLANNING, tmp_path)


@pytest.mark.parametrize("observation", ["image", "dict"])
def test_what_cannot_be_modeled_is_refused(observation: str, tmp_path: Path) -> None:
    with pytest.raises(prl.SpaceError, match="cannot model observation space"):
        check("mpc_rs", OBSERVATIONS[observation], ACTIONS["discrete"], PLANNING, tmp_path)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("algorithm", ["ppo", "sac", "mpc_rs"])
def test_what_cannot_work_is_refused_by_name(algorithm: str, name: str, tmp_path: Path) -> None:
    settings = {"ppo": SMALL, "sac": OFF_POLICY, "mpc_rs": PLANNING}[algorithm]
    with pytest.raises(prl.SpaceError, match="action space"):
        check(algorithm, OBSERVATIONS["vector"], REFUSED[name], settings, tmp_path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("algorithm", "action"), [("ddqn", "box"), ("ddpg", "discrete"), ("td3", "multi-discrete")])
def test_an_algorithm_that_does_not_fit_says_what_it_takes(algorithm: str, action: str, tmp_path: Path) -> None:
    with pytest.raises(prl.SpaceError, match="Supported"):
        check(algorithm, OBSERVATIONS["vector"], ACTIONS[action], OFF_POLICY, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sync", "async", "envpool"])
def test_backends_learn_alike(backend: str, tmp_path: Path) -> None:
    run = prl.train("ppo", "CartPole-v1", seed=1, overrides={"env.backend": backend}, run=tmp_path / "run")
    returns = [episode.ret for episode in evaluate(run.policy, 100)]
    assert sum(returns) / 100 >= 475
