"""DDQN, DDPG, TD3, SAC and MPO learn: small worlds with known answers in seconds, and the zoo's presets of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import pytorchrl
from pytorchrl.agent.actors import OffPolicyActor
from pytorchrl.agent.algorithms.off_policy import ddpg, td3
from pytorchrl.agent.algorithms.off_policy.base import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.off_policy.mpo import MPO
from pytorchrl.agent.algorithms.off_policy.sac import SAC
from pytorchrl.agent.env import VecEnv
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.config import resolve
from pytorchrl.keys import DONE2, REW, TERMINAL
from pytorchrl.learner import Learner
from pytorchrl.registry import load_class
from pytorchrl.run import evaluate
from pytorchrl.scheme import Scheme

GAMMA = 0.9
LENGTH = 4


class Corridor(gym.Env[Any, Any]):
    """Four places in a row, and a reward of 1 behind the last one; a time limit of 20 steps.

    Discrete actions: 1 leads on, 0 back to the start. Continuous ones between −2 and 4: within 1 of the number of the
    place leads on, everything else leaves things as they are, and a step costs a tenth of the squared distance.
    """

    observation_space = spaces.Discrete(LENGTH)

    def __init__(self, continuous: bool = False) -> None:
        self.continuous = continuous
        self.action_space = spaces.Box(-2.0, 4.0, (1,), np.float32) if continuous else spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.time = 0
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        cost = 0.0
        if self.continuous:
            distance = abs(float(action[0]) - self.place)
            self.place += distance < 1
            cost = 0.1 * distance**2
        else:
            self.place = self.place + 1 if action == 1 else 0
        done = self.place == LENGTH
        return min(self.place, LENGTH - 1), float(done) - cost, done, self.time == 20 and not done, {}


class Salary(gym.Env[Any, Any]):
    """Reward 1 per step under a time limit that cannot be seen: everything is worth 1 / (1 − γ) = 10."""

    observation_space = spaces.Discrete(2)

    def __init__(self, continuous: bool = False) -> None:
        self.action_space = spaces.Box(-2.0, 4.0, (1,), np.float32) if continuous else spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.length = 0, int(self.np_random.integers(3, 20))
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return 0, 1.0, False, self.time == self.length, {}


# Few updates, so each of MPO's may be large.
LOOSE = {"kl_mean_constraint": 0.1, "kl_var_constraint": 0.1, "kl_constraint": 0.1}
# By name: (algorithm, whether actions are continuous, parameters of its own).
AGENTS: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "DDQN": ("DDQN", False, {"lr": 5e-3, "epsilon_decay": 0.99}),
    "DDPG": ("DDPG", True, {"lr_q": 5e-3, "lr_pi": 2e-3}),
    "TD3": ("TD3", True, {"lr_q": 5e-3, "lr_pi": 2e-3, "target_update_interval": 2, "polyak": 0.9}),
    "SAC": (
        "SAC",
        True,
        {"lr_q": 5e-3, "lr_pi": 2e-3, "lr_alpha": 5e-3, "initial_alpha": 0.01, "target_entropy": -2.0},
    ),
    "SAC-discrete": (
        "SAC",
        False,
        {"lr_q": 5e-3, "lr_pi": 5e-3, "lr_alpha": 5e-3, "initial_alpha": 0.01, "target_entropy": 0.05},
    ),
    "MPO": ("MPO", True, {"lr_q": 5e-3, "lr_pi": 2e-3, "sample_action_num": 16, "dual_constraint": 1.0, **LOOSE}),
    "MPO-discrete": ("MPO", False, {"lr_q": 5e-3, "lr_pi": 5e-3, **LOOSE}),
}


def learn(agent: str, env: type[Any], rounds: int, seed: int = 1) -> Scheme:
    """An agent through the real VecEnv, Collector and ReplayBuffer: 4 environments, an update per vector step."""
    name, continuous, parameters = AGENTS[agent]
    envs_factory, action_space, observation_space = VecEnv.create_factory(
        lambda: env(continuous), {}, 4, backend="sync"
    )
    shared = {"gamma": GAMMA, "polyak": 0.95, "num_updates": 1, "update_every": 1, "mini_batch_size": 64}
    shared |= {"start_steps": 100, "max_grad_norm": 10.0, "test_every": 0}
    cls: Any = load_class("algorithm", name)
    algo_factory, _ = cls.create_factory(**shared | parameters)
    actor_factory = OffPolicyActor.create_factory(
        observation_space, action_space, name, common_feature_extractor_kwargs={"hidden_sizes": [32]}
    )
    scheme = Scheme(algo_factory, actor_factory, ReplayBuffer.create_factory(size=2000), envs_factory, seed=seed)
    learner = Learner(scheme, 4 * rounds)
    while not learner.done():
        learner.step()
    return scheme


def corridor(agent: str) -> None:
    """The shortest way is found from every place, and the first critic knows what it is worth."""
    scheme = learn(agent, Corridor, 400)
    obs, rhs, done = torch.eye(LENGTH), scheme.actor.initial_rhs(LENGTH), torch.ones(LENGTH, 1)
    with torch.no_grad():
        action = scheme.actor.get_action(obs, rhs, done, True)[0].flatten()
        value = scheme.actor.get_value(obs, rhs, done)["value_net1"].flatten()
    if AGENTS[agent][1]:
        assert (action - torch.arange(4.0)).abs().max().item() < 0.5, action
    else:
        assert action.tolist() == [1] * LENGTH
    expected = GAMMA ** torch.arange(LENGTH - 1, -1, -1.0)
    torch.testing.assert_close(value, expected, rtol=0.2, atol=0.0)


def salary(agent: str) -> None:
    """The value of being paid for ever is 10, wherever time limits cut."""
    scheme = learn(agent, Salary, 1000)
    with torch.no_grad():
        found = scheme.actor.get_value(torch.eye(2)[:1], scheme.actor.initial_rhs(1), torch.ones(1, 1))["value_net1"]
    assert found.item() == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize("agent", AGENTS)
def test_the_way_through_a_corridor(agent: str) -> None:
    corridor(agent)


@pytest.mark.parametrize("agent", ["DDQN", "DDPG"])
def test_truncation_is_no_end(agent: str) -> None:
    salary(agent)


# A learning test that a broken loss passes is no test.

loss_of_policy = ddpg.deterministic_policy_loss
target_of = OffPolicyAlgorithm.target_of
sac_loss = SAC._loss_pi
mpo_step = MPO.m_step


def flipped(*arguments: Any) -> Any:
    loss, dist = loss_of_policy(*arguments)
    return -loss, dist


def flipped_sac(self: Any, *arguments: Any) -> Any:
    loss, *others = sac_loss(self, *arguments)
    return (-loss, *others)


def flipped_mpo(self: Any, *arguments: Any) -> Any:
    loss, *others = mpo_step(self, *arguments)
    return (-loss, *others)


def no_successor(self: Any, batch: Any, bootstrap: Tensor, n_step: Any) -> Any:
    return batch[REW] + 0 * bootstrap


def truncation_taken_for_an_end(self: Any, batch: Any, bootstrap: Tensor, n_step: Any) -> Any:
    return target_of(self, {**batch, TERMINAL: batch[DONE2]}, bootstrap, n_step)


# What is replaced, by what, and whose world must notice.
BREAKAGES: dict[str, tuple[Any, str, Any, Callable[[str], None], str]] = {
    "DDPG's policy flees": (ddpg, "deterministic_policy_loss", flipped, corridor, "DDPG"),
    "TD3's policy flees": (td3, "deterministic_policy_loss", flipped, corridor, "TD3"),
    "SAC's policy flees": (SAC, "_loss_pi", flipped_sac, corridor, "SAC-discrete"),
    "MPO's policy flees": (MPO, "m_step", flipped_mpo, corridor, "MPO-discrete"),
    "no successor": (OffPolicyAlgorithm, "target_of", no_successor, corridor, "DDQN"),
    "truncation taken for an end": (
        OffPolicyAlgorithm,
        "target_of",
        truncation_taken_for_an_end,
        salary,
        "DDQN",
    ),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_is_noticed(monkeypatch: pytest.MonkeyPatch, breakage: str) -> None:
    owner, name, replacement, check, agent = BREAKAGES[breakage]
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(AssertionError):
        check(agent)


# The zoo


def score(algorithm: str, env: str, seed: int, folder: Path) -> float:
    """Mean return of 100 deterministic episodes of the preset's final policy, through the command's own way."""
    run = pytorchrl.train(algorithm, env, seed=seed, run=folder / "run")
    episodes = evaluate(run.policy, 100, seed=100 + seed)
    assert len(episodes) == 100
    return sum(episode.ret for episode in episodes) / 100


# (algorithm, environment): (steps at most, score at least).
PRESETS = {
    ("ddqn", "CartPole-v1"): (50_000, 475),
    ("sac", "CartPole-v1"): (50_000, 450),
    ("mpo", "CartPole-v1"): (50_000, 450),
    ("ddpg", "Pendulum-v1"): (20_000, -200),
    ("td3", "Pendulum-v1"): (20_000, -200),
    ("sac", "Pendulum-v1"): (20_000, -200),
    ("mpo", "Pendulum-v1"): (20_000, -200),
}


@pytest.mark.parametrize(("algorithm", "env"), PRESETS)
def test_steps_of_the_presets(algorithm: str, env: str) -> None:
    assert resolve(algorithm, env).run.steps <= PRESETS[algorithm, env][0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize(("algorithm", "env"), PRESETS)
def test_presets_reach_their_scores(tmp_path: Path, algorithm: str, env: str, seed: int) -> None:
    assert score(algorithm, env, seed, tmp_path) >= PRESETS[algorithm, env][1]
