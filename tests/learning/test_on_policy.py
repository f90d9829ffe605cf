"""What the on-policy family learns beside PPO's presets: A2C, stale data, memories, several actions at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl
from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import A2C, PPO
from pytorchrl.agent.env import VecEnv
from pytorchrl.agent.storages import GAEBuffer, VTraceBuffer
from pytorchrl.learner import Learner
from pytorchrl.run import evaluate
from pytorchrl.scheme import Scheme

SEEDS = range(1, 6)
CARTPOLE_LAG = 4


def mean_return(policy: Any, seed: int, env: Any = None) -> float:
    """Of 100 deterministic episodes."""
    episodes = evaluate(policy, 100, seed=100 + seed, env=env)
    assert len(episodes) == 100
    return sum(episode.ret for episode in episodes) / 100


# A2C


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a2c_balances_the_pole(tmp_path: Path, seed: int) -> None:
    run = pytorchrl.train("a2c", "CartPole-v1", seed=seed, run=tmp_path / "run")
    assert mean_return(run.policy, seed) >= 475


# Stale data


def lag(scheme: Scheme, learner: Learner, rounds: int) -> Callable[[], None]:
    """One round in which the policy acts with the weights of ``rounds`` rounds ago, as a worker far behind does."""
    past = deque([deepcopy(scheme.actor.state_dict())], maxlen=rounds + 1)
    behind: Any = copy(scheme.algorithm)
    behind.actor = deepcopy(scheme.actor)
    present = scheme.algorithm.acting_step

    def act(obs: Any, rhs: Any, done: Any, deterministic: bool = False) -> Any:
        return (present if deterministic else behind.acting_step)(obs, rhs, done, deterministic)

    scheme.algorithm.acting_step = act  # type: ignore[method-assign]

    def step() -> None:
        behind.actor.load_state_dict(past[0])
        learner.step()
        past.append(deepcopy(scheme.actor.state_dict()))

    return step


def behind_the_learner(storage: type[Any], seed: int, steps: int = 100_000, size: int = 64, **ppo: Any) -> float:
    """PPO on CartPole, acting four rounds behind; the mean return of 50 deterministic episodes."""
    envs_factory, action_space, observation_space = VecEnv.create_factory(
        lambda: gym.make("CartPole-v1"), {}, 8, backend="sync"
    )
    algo_factory, name = PPO.create_factory(
        **{
            "lr": 1e-3,
            "num_epochs": 4,
            "num_mini_batch": 4,
            "entropy_coef": 0.0,
            "use_clipped_value_loss": False,
            "num_test_episodes": 50,
            **ppo,
        }
    )
    actor_factory = OnPolicyActor.create_factory(
        observation_space, action_space, name, shared_policy_value_network=False
    )
    scheme = Scheme(algo_factory, actor_factory, storage.create_factory(size=size), envs_factory, seed=seed)
    learner = Learner(scheme, steps, anneal={"lr": 0.0, "clip_param": 0.0}, eval_every=0)
    step = lag(scheme, learner, CARTPOLE_LAG)
    while not learner.done():
        step()
    return float(np.mean([episode.ret for episode in scheme.evaluate()]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_v_trace_balances_the_pole_four_rounds_behind(seed: int) -> None:
    assert behind_the_learner(VTraceBuffer, seed) >= 475


# Memory


class WithoutVelocities(gym.ObservationWrapper[Any, Any, Any]):
    """CartPole that shows place and angle alone."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observation(self, observation: Any) -> Any:
        return observation[[0, 2]]


BLIND = {
    "algorithm.lr": 1e-3,
    "algorithm.num_epochs": 10,
    "algorithm.num_mini_batch": 4,
    "algorithm.entropy_coef": 0.0,
    "algorithm.use_clipped_value_loss": False,
    "algorithm.test_every": 0,
    "storage.size": 128,
    "env.num_envs": 16,
    "env.normalize_rewards": True,
    "actor.normalize_observations": True,
    "anneal.lr": 0.0,
}
GRU = {"actor.recurrent_net": "GRU", "actor.recurrent_net_kwargs": {"output_size": 64}}


def without_velocities(seed: int, folder: Path, **more: Any) -> float:
    run = pytorchrl.train(
        "ppo", WithoutVelocities, steps=50_000, seed=seed, overrides=BLIND | more, preset="none", run=folder / "run"
    )
    return mean_return(run.policy, seed, WithoutVelocities)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_memory_balances_what_it_sees_half_of(tmp_path: Path, seed: int) -> None:
    assert without_velocities(seed, tmp_path, **GRU) >= 400


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_memory_half_is_not_enough(tmp_path: Path, seed: int) -> None:
    assert without_velocities(seed, tmp_path) < 150


class Recall(gym.Env[Any, Any]):
    """A number is shown once, at the start; after four blank steps it has to be named. Guessing earns 1/3."""

    DELAY = 4
    observation_space = spaces.Discrete(5)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.number, self.time = int(self.np_random.integers(3)), 0
        return self.number, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        asked = self.time > self.DELAY
        return 4 if self.time == self.DELAY else 3, float(asked and action == self.number), asked, False, {}


# Several actions at once


class Arms(gym.Env[Any, Any]):
    """One step per episode: choose in every part of the action what is shown there; the reward is the share right."""

    def __init__(self, binary: bool) -> None:
        self.binary = binary
        sizes = [2, 2, 2] if binary else [3, 2, 4]
        self.observation_space = spaces.MultiDiscrete(sizes)
        self.action_space = spaces.MultiBinary(3) if binary else spaces.MultiDiscrete(sizes)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.shown = self.np_random.integers(0, self.observation_space.nvec)  # type: ignore[attr-defined]
        return self.shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.shown, float(np.mean(action == self.shown)), True, False, {}


def learned(env: Callable[[], Any], algorithm: Any, rounds: int, size: int, actor: Any = None, **more: Any) -> float:
    """The mean return of 60 deterministic episodes after some rounds of 16 environments, lr annealed to 0."""
    envs_factory, action_space, observation_space = VecEnv.create_factory(env, {}, 16, backend="sync")
    algo_factory, name = algorithm.create_factory(gamma=0.9, num_test_episodes=60, test_every=0, **more)
    actor_factory = OnPolicyActor.create_factory(
        observation_space, action_space, name, feature_extractor_kwargs={"hidden_sizes": [32]}, **(actor or {})
    )
    scheme = Scheme(algo_factory, actor_factory, GAEBuffer.create_factory(size=size), envs_factory, seed=1)
    rates = [rate for rate in ("lr", "lr_pi", "lr_v") if rate in more]
    learner = Learner(scheme, rounds * size * 16, anneal=dict.fromkeys(rates, 0.0))
    while not learner.done():
        learner.step()
    return float(np.mean([episode.ret for episode in scheme.evaluate()]))


QUICK_PPO = {"lr": 1e-2, "num_mini_batch": 4, "entropy_coef": 0.0, "use_clipped_value_loss": False}
QUICK_A2C = {"lr_pi": 2e-2, "lr_v": 2e-2}


@pytest.mark.parametrize("binary", [False, True], ids=["multi-discrete", "multi-binary"])
@pytest.mark.parametrize(("algorithm", "rates", "rounds"), [(PPO, QUICK_PPO, 20), (A2C, QUICK_A2C, 80)])
def test_several_actions_at_once(algorithm: Any, rates: dict[str, Any], rounds: int, binary: bool) -> None:
    assert learned(lambda: Arms(binary), algorithm, rounds, 16, **rates) > 0.95


@pytest.mark.parametrize(
    ("memory", "low", "high"),
    [("LSTM", 0.95, 1.0), (None, 0.0, 0.6)],
)
def test_what_was_shown_at_the_start_is_recalled(memory: str | None, low: float, high: float) -> None:
    actor = (
        {} if memory is None else {"recurrent_net": memory, "recurrent_net_kwargs": {"layer_size": 32, "num_layers": 1}}
    )
    assert low <= learned(Recall, PPO, 40, 25, actor, **QUICK_PPO) <= high
