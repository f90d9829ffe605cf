"""Every off-policy algorithm on every replay, for every kind of observation and number of environments.

Each of them trains, or is refused by name. The whole product is slow; without it every algorithm still meets every
replay, and every replay every kind of observation.
"""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from pytorchrl.build import build_scheme
from pytorchrl.config import resolve
from pytorchrl.errors import ConfigError, RLError, SpaceError
from pytorchrl.keys import ACT, N_STEP, PER_WEIGHTS, REW
from pytorchrl.parameters import Node

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": VECTOR,
    "image": spaces.Box(0, 255, (36, 36, 1), np.uint8),
    "dict": spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), VECTOR)),
    "recurrent": VECTOR,
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32)),
}
# By name: (algorithm, action space, parameters of its own).
ALGORITHMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "DDQN": ("DDQN", "discrete", {}),
    "DDPG": ("DDPG", "box", {}),
    "TD3": ("TD3", "box", {}),
    "SAC": ("SAC", "box", {}),
    "SAC-discrete": ("SAC", "discrete", {}),
    "MPO": ("MPO", "box", {"sample_action_num": 3, "mstep_iterations": 2}),
    "MPO-discrete": ("MPO", "discrete", {"mstep_iterations": 2}),
}
# By name: (storage, its parameters).
STORAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("ReplayBuffer", {}),
    "n-step": ("NStepBuffer", {"n_step": 3}),
    "PER": ("PERBuffer", {"alpha": 0.6, "beta": 0.4}),
    "ERE": ("EREBuffer", {"eta": 0.99, "cmin": 40}),
    "HER": ("HERBuffer", {}),
    "PER + n-step + ERE": ("PERBuffer", {"alpha": 0.6, "n_step": 3, "eta": 0.99, "cmin": 40}),
}


class Noise(gym.Env[Any, Any]):
    """Random observations; every action must lie in the action space, and episodes end in both ways."""

    def __init__(self, observation: str, action: str) -> None:
        self.observation_space, self.action_space = OBSERVATIONS[observation], ACTIONS[action]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        ended = self.np_random.random(2) < 0.2
        return self.observation_space.sample(), self.np_random.normal(), bool(ended[0]), bool(ended[1]), {}


class Goals(Noise):
    """The same with Gymnasium's goal interface."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.abs(achieved - desired).sum(-1)


def scheme_of(algorithm: str, storage: str, observation: str, N: int) -> Any:
    name, action, own = ALGORITHMS[algorithm]
    replay, parts = STORAGES[storage]
    settings: dict[str, Any] = {
        "run.steps": 100,
        "env.num_envs": N,
        "env.backend": "sync",
        "storage.name": replay,
        "storage.size": 40,
        "algorithm.start_steps": 12,
        "algorithm.update_every": 6,
        "algorithm.num_updates": 2,
        "algorithm.mini_batch_size": 8,
        "actor.common_feature_extractor_kwargs": {"hidden_sizes": [8]},
        **{f"algorithm.{key}": value for key, value in own.items()},
        **{f"storage.{key}": value for key, value in parts.items()},
    }
    if observation == "recurrent":
        settings |= {"actor.recurrent_net": "GRU", "actor.recurrent_net_kwargs": {"output_size": 6}}
        if replay != "HERBuffer":
            settings["storage.sequence_length"] = 4

    def make() -> gym.Env[Any, Any]:
        return (Goals if observation == "dict" else Noise)(observation, action)

    config = resolve(
        name, "Noise-v0", preset="none", overrides=[(path, Node.of(value)) for path, value in settings.items()]
    )
    return build_scheme(config, make, "cpu")


def check(algorithm: str, storage: str, observation: str, N: int) -> None:
    """Eighteen vector steps, and the updates of two rounds."""
    if storage == "HER" and observation != "dict":
        reason = "no sequences for actors with memory" if observation == "recurrent" else "compute_reward"
        with pytest.raises(ConfigError, match=reason):
            scheme_of(algorithm, storage, observation, N)
        return
    scheme = scheme_of(algorithm, storage, observation, N)
    try:
        before = [parameter.detach().clone() for parameter in scheme.actor.parameters()]
        rounds = [scheme.step() for _ in range(3)]
        assert [result.updates for result in rounds] == [0, 2, 2]
        assert all(torch.isfinite(value) for result in rounds for value in result.losses.values())
        moved = [not torch.equal(*pair) for pair in zip(before, scheme.actor.parameters(), strict=True)]
        assert any(moved)
        assert scheme.storage.size == 18
        batch = scheme.current_batch
        assert len(batch[REW]) == len(batch[ACT]) == 8
        assert (PER_WEIGHTS in batch) == ("PER" in storage)
        assert (batch[N_STEP].max() > 1) == ("n-step" in storage)
    finally:
        scheme.close()


PRODUCT = list(itertools.product(ALGORITHMS, STORAGES, OBSERVATIONS, (1, 4)))
# A Latin square of it.
CHOSEN = [
    (algorithm, storage, list(OBSERVATIONS)[(i + j) % 4], (1, 4)[(i + j // 2) % 2])
    for (i, algorithm), (j, storage) in itertools.product(enumerate(ALGORITHMS), enumerate(STORAGES))
]


@pytest.mark.parametrize(("algorithm", "storage", "observation", "N"), CHOSEN)
def test_trains_or_is_refused_by_name(algorithm: str, storage: str, observation: str, N: int) -> None:
    check(algorithm, storage, observation, N)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "storage", "observation", "N"), [p for p in PRODUCT if p not in CHOSEN])
def test_the_rest_of_the_product(algorithm: str, storage: str, observation: str, N: int) -> None:
    check(algorithm, storage, observation, N)


@pytest.mark.parametrize("algorithm", ["DDQN", "DDPG", "TD3"])
def test_the_other_kind_of_actions_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    name, action, own = ALGORITHMS[algorithm]
    other = {"discrete": "box", "box": "discrete"}[action]
    monkeypatch.setitem(ALGORITHMS, algorithm, (name, other, own))
    with pytest.raises(SpaceError, match=f"{name} cannot act in action space"):
        scheme_of(algorithm, "plain", "vector", 1)


def test_a_replay_needs_an_algorithm_that_learns_from_it() -> None:
    for algorithm, storage in (("PPO", "ReplayBuffer"), ("SAC", "GAEBuffer")):
        with pytest.raises(RLError, match=storage):
            resolve(algorithm, "CartPole-v1", preset="none", overrides=[("storage.name", Node.of(storage))])
