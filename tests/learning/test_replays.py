"""What each kind of replay is for, side by side with the plain one: goals, rare rewards, and what cannot be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors import OffPolicyActor
from pytorchrl.agent.algorithms import DDQN
from pytorchrl.agent.storages.off_policy.per_buffer import PERBuffer
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.keys import ACT, DONE, DONE2, OBS, OBS2, REW, RHS, RHS2, TERMINAL
from pytorchrl.run import evaluate

# Goals


class BitFlipping(gym.Env[Any, Any]):
    """Flip one of n bits a step until they are those of the goal: −1 per step until then, and n steps at most (HER)."""

    def __init__(self, n: int = 15) -> None:
        self.n = n
        bits = spaces.Box(0.0, 1.0, (n,), np.float32)
        self.observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), bits))
        self.action_space = spaces.Discrete(n)

    def _observation(self) -> dict[str, Any]:
        return {"observation": self.bits.copy(), "achieved_goal": self.bits.copy(), "desired_goal": self.goal.copy()}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return (achieved == desired).all(-1).astype(np.float32) - 1

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return (achieved == desired).all(-1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.bits, self.goal = self.np_random.integers(0, 2, (2, self.n)).astype(np.float32)
        self.time = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.bits[action] = 1 - self.bits[action]
        self.time += 1
        done = bool(self.compute_terminated(self.bits, self.goal, {}))
        return self._observation(), float(done) - 1, done, self.time == self.n and not done, {}


def flips(storage: str, n: int, steps: int, seed: int, folder: Path) -> float:
    """The share of goals that the final policy reaches, of 100."""
    settings = {
        "storage.name": storage,
        "storage.size": 20_000,
        "env.num_envs": 4,
        "env.backend": "sync",
        "run.eval_every": 0,
        "actor.common_feature_extractor_kwargs": {"hidden_sizes": [128]},
        "algorithm.lr": 1e-3,
        "algorithm.gamma": 0.95,
        "algorithm.polyak": 0.98,
        "algorithm.num_updates": 2,
        "algorithm.update_every": 2,
        "algorithm.start_steps": 200,
        "algorithm.mini_batch_size": 128,
        "algorithm.epsilon_decay": 0.999,
        "algorithm.final_epsilon": 0.1,
        "algorithm.max_grad_norm": 10.0,
    }

    def make() -> gym.Env[Any, Any]:
        return BitFlipping(n)

    run = prl.train("ddqn", make, steps=steps, seed=seed, overrides=settings, preset="none", run=folder / storage)
    episodes = evaluate(run.policy, 100, seed=100 + seed, env=make)
    # A goal that is reached costs one less than its steps.
    return sum(episode.ret > -episode.length for episode in episodes) / 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_hindsight_flips_15_bits_where_plain_replay_fails(tmp_path: Path, seed: int) -> None:
    reached = {name: flips(name, 15, 40_000, seed, tmp_path) for name in ("HERBuffer", "ReplayBuffer")}
    assert reached["HERBuffer"] >= 0.9, reached
    assert reached["ReplayBuffer"] <= 0.1, reached


# Rare rewards

CLIFF = 9
CLIFF_GAMMA = 1 - 1 / CLIFF


def cliff_walks() -> list[tuple[int, int, float, bool]]:
    """All (place, action, reward, end) of every way along a cliff (PER, section 3.1): one of 2ⁿ arrives and is paid.

    At each of n places one action leads on, the other one over the edge.
    """
    ways = []
    for length in range(CLIFF):
        # Of 2ⁿ sequences of actions, so many fall first at this place.
        ways += [[(place, 1, 0.0, False) for place in range(length)] + [(length, 0, 0.0, True)]] * 2 ** (
            CLIFF - 1 - length
        )
    arrival = [(place, 1, float(place == CLIFF - 1), place == CLIFF - 1) for place in range(CLIFF)]
    return [step for way in [*ways, arrival] for step in way]


def updates_until_known(storage: Any, seed: int, most: int) -> int:
    """Updates of a table of scores, by double Q-learning, until their mean squared error is below 0.001."""
    observations, actions = spaces.Box(0.0, 1.0, (CLIFF,), np.float32), spaces.Discrete(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        table = {"common_feature_extractor_kwargs": {"hidden_sizes": ()}, "num_critics": 1}
        actor = OffPolicyActor.create_factory(observations, actions, "DDQN", **table)("cpu")
        create, _ = DDQN.create_factory(gamma=CLIFF_GAMMA, lr=5e-3, polyak=0.9, mini_batch_size=16, max_grad_norm=100.0)
        ddqn = create("cpu", actor, None)
        walks = cliff_walks()
        replay = storage(size=len(walks), device="cpu", actor=actor, algorithm=ddqn, envs=None)
    rhs, places = actor.initial_rhs(1), torch.eye(CLIFF)
    done = torch.ones(1, 1)
    for place, action, reward, end in walks:
        successor = places[min(place + 1, CLIFF - 1)][None]
        column = {REW: reward, DONE2: float(end), TERMINAL: float(end)}
        replay.insert_transition(
            {OBS: places[place][None], RHS: rhs, DONE: done, ACT: torch.tensor([[action]]), OBS2: successor, RHS2: rhs}
            | {key: torch.tensor([[value]]) for key, value in column.items()}
        )
        done = column[DONE2] * torch.ones(1, 1)
    expected = CLIFF_GAMMA ** torch.arange(CLIFF - 1, -1, -1.0)
    for update in range(most):
        if update % 50 == 0:
            with torch.no_grad():
                scores = actor.get_q_scores(places, actor.initial_rhs(CLIFF), torch.zeros(CLIFF, 1))["q1"]
            error = (scores - torch.stack([torch.zeros(CLIFF), expected], 1)).square().mean()
            if error < 1e-3:
                return update
        for batch in replay.generate_batches(1, 16):
            _, info = ddqn.compute_gradients(batch, grads_to_cpu=False)
            replay.after_gradients(batch, info)
            ddqn.apply_gradients()
    return most


def prioritized(**parts: Any) -> PERBuffer:
    return PERBuffer(epsilon=1e-3, alpha=0.8, beta=0.0, **parts)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_priorities_find_a_rare_reward_in_half_the_updates(seed: int) -> None:
    needed = updates_until_known(prioritized, seed, 20_000)
    assert needed < 5_000
    assert updates_until_known(ReplayBuffer, seed, 2 * needed) == 2 * needed


# What cannot be seen


class Ball(gym.Env[Any, Any]):
    """A ball on a ring shows its place alone; name the direction that it just went, +1 or −1 a step.

    It turns now and then, so only who remembers the last place can tell: everybody else earns 0 on average.
    """

    LENGTH = 20
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def _observation(self) -> Any:
        return np.array([np.cos(self.place), np.sin(self.place)], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.velocity = self.np_random.uniform(0, 2 * np.pi), 0.0
        self.velocity, self.time = self.np_random.choice([-0.8, 0.8]), 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = 1.0 if (action == 1) == (self.velocity > 0) else -1.0
        if self.time == 0:
            reward = 0.0  # it was not seen to move yet
        if self.np_random.random() < 0.2:
            self.velocity = -self.velocity
        self.place += self.velocity
        self.time += 1
        return self._observation(), reward, False, self.time == self.LENGTH, {}


def named(algorithm: str, seed: int, folder: Path, **memory: Any) -> float:
    """The mean reward of the final policy from the second step on: 1 if every direction was named right."""
    settings = {
        "storage.size": 5_000,
        "env.num_envs": 4,
        "env.backend": "sync",
        "run.eval_every": 0,
        "actor.common_feature_extractor_kwargs": {"hidden_sizes": [32]},
        "algorithm.gamma": 0.0,
        "algorithm.update_every": 4,
        "algorithm.num_updates": 1,
        "algorithm.start_steps": 100,
        "algorithm.mini_batch_size": 160,
        "algorithm.max_grad_norm": 10.0,
        **{f"actor.{name}": value for name, value in memory.items()},
    }
    own: dict[str, Any] = {
        "ddqn": {"lr": 5e-3, "epsilon_decay": 0.99},
        "sac": {"lr_q": 5e-3, "lr_pi": 5e-3, "initial_alpha": 0.01, "target_entropy": 0.05},
        "mpo": {"lr_q": 5e-3, "lr_pi": 5e-3, "kl_constraint": 0.1, "mstep_iterations": 1},
    }
    settings |= {f"algorithm.{name}": value for name, value in own[algorithm].items()}
    if memory:
        settings["storage.sequence_length"] = 10
    run = prl.train(algorithm, Ball, steps=6_000, seed=seed, overrides=settings, preset="none", run=folder)
    episodes = evaluate(run.policy, 50, seed=100 + seed, env=Ball)
    return sum(episode.ret for episode in episodes) / 50 / (Ball.LENGTH - 1)


GRU = {"recurrent_net": "GRU", "recurrent_net_kwargs": {"output_size": 32}}


SLOW = pytest.mark.slow
SEEDS = [
    ("ddqn", 1),
    *(pytest.param(name, seed, marks=SLOW) for name in ("ddqn", "sac", "mpo") for seed in range(1, 6)),
]


@pytest.mark.parametrize(("algorithm", "seed"), SEEDS)
def test_memory_tells_what_cannot_be_seen(algorithm: str, seed: int, tmp_path: Path) -> None:
    assert named(algorithm, seed, tmp_path / "memory", **GRU) >= 0.9
    assert named(algorithm, seed, tmp_path / "none") <= 0.3
