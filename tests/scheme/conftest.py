"""Scripted environments: every observation, reward and end is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import PPO
from pytorchrl.agent.env import VecEnv
from pytorchrl.agent.storages import GAEBuffer
from pytorchrl.scheme import Scheme
from pytorchrl.scheme.nursery import Nursery

# An episode of the script: its length, and how it ends.
Script = Sequence[tuple[int, str]]
SCRIPT: Script = ((3, "terminated"), (1, "truncated"), (4, "both"), (2, "truncated"), (1, "terminated"))


class ScriptedEnv(gym.Env[Any, Any]):
    """Plays a script over and over. Observation: (environment, episode, step); reward: 100·episode + step.

    ``log`` collects what happened to all instances: their mode when they are made, and every step's environment.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(
        self,
        script: Script = SCRIPT,
        log: list[Any] | None = None,
        index_env: int = 0,
        mode: str = "train",
        different: bool = True,
    ) -> None:
        # Environment i starts i episodes into the script, so that ends do not coincide.
        self.script, self.index, self.mode = script, index_env, mode
        self.first = index_env if different else 0
        self.log = [] if log is None else log
        self.log.append(("made", mode, index_env))
        self.episode, self.steps = -1, 0
        self.over = True

    def _observation(self) -> Any:
        return np.array([self.index, self.episode, self.time], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.log.append(("reset", self.mode, self.index, seed))
        self.episode += 1
        self.time, self.over = 0, False
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert not self.over, "stepped past an end"
        self.steps += 1
        assert self.steps < 10_000, "played for ever"
        self.log.append(("step", self.mode, self.index))
        length, end = self.script[(self.first + self.episode) % len(self.script)]
        self.time += 1
        reward = 100.0 * self.episode + self.time
        at_end = self.time == length
        terminated, truncated = at_end and end in ("terminated", "both"), at_end and end in ("truncated", "both")
        self.over = at_end
        return self._observation(), reward, terminated, truncated, {}


class RecordingBuffer(GAEBuffer):
    """Keeps a copy of every sample that it is given."""

    def init_tensors(self, sample: Any) -> None:
        super().init_tensors(sample)
        self.samples: list[dict[str, Any]] = []

    def insert_transition(self, sample: Any) -> None:
        super().insert_transition(sample)
        self.samples.append({key: value.clone() for key, value in sample.items() if torch.is_tensor(value)})


@pytest.fixture(scope="session")
def warm() -> Iterator[None]:
    """Keeps the process that forks workers from one test to the next."""
    nursery = Nursery.enter()
    yield
    nursery.leave()


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """One local Ray cluster for all tests; without a dashboard, with resources that are made up."""
    ray = pytest.importorskip("ray")
    ray.init(address="local", include_dashboard=False, num_cpus=8, log_to_driver=False, object_store_memory=2**28)
    yield
    ray.shutdown()


@pytest.fixture
def script() -> Script:
    return SCRIPT


@pytest.fixture
def scripted_env() -> type[ScriptedEnv]:
    return ScriptedEnv


@pytest.fixture
def make_scheme() -> Callable[..., Scheme]:
    """``make_scheme(env=…, env_kwargs=…, num_envs=…, size=…, seed=…, **ppo)``: a scheme over scripted environments."""

    def make(
        env: Any = ScriptedEnv,
        env_kwargs: dict[str, Any] | None = None,
        num_envs: int = 3,
        size: int = 8,
        seed: int = 0,
        storage: Any = None,
        **ppo: Any,
    ) -> Scheme:
        envs_factory, action_space, observation_space = VecEnv.create_factory(
            env, env_kwargs or {}, num_envs, backend="sync"
        )
        algo_factory, name = PPO.create_factory(**{"num_mini_batch": 2, "num_epochs": 2, "test_every": 0, **ppo})
        actor_factory = OnPolicyActor.create_factory(
            observation_space, action_space, name, feature_extractor_kwargs={"hidden_sizes": [8]}
        )

        def recording(*parts: Any) -> RecordingBuffer:
            return RecordingBuffer(size, *parts)

        return Scheme(algo_factory, actor_factory, storage or recording, envs_factory, seed=seed)

    return make
