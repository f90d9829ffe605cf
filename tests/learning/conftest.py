"""Small worlds with known answers, and agents that learn them in seconds; seeded, so the outcome does not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import A2C, PPO
from pytorchrl.agent.env import VecEnv
from pytorchrl.agent.storages import GAEBuffer, VTraceBuffer
from pytorchrl.learner import Learner
from pytorchrl.scheme import Scheme

GAMMA = 0.9


class ConstantReward(gym.Env[Any, Any]):
    """Reward 1 per step, whatever is done.

    ``ends="truncated"``: a time limit cuts anywhere between 10 and 50 steps, which the observation cannot see: the
    value is 1 / (1 − γ). ``"terminated"`` and ``"both"``: the end comes after ``LENGTH`` steps, and the observation is
    the time.
    """

    LENGTH = 8
    action_space = spaces.Discrete(2)

    def __init__(self, ends: str) -> None:
        self.ends = ends
        self.observation_space = spaces.Discrete(self.LENGTH + 1)

    def _observation(self) -> Any:
        return 0 if self.ends == "truncated" else self.time

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        self.length = int(self.np_random.integers(10, 51)) if self.ends == "truncated" else self.LENGTH
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        over = self.time == self.length
        return self._observation(), 1.0, over and self.ends != "truncated", over and self.ends != "terminated", {}

    @classmethod
    def values(cls, ends: str) -> list[float]:
        """V of each observation that can be seen: of the only one, or by time."""
        if ends == "truncated":
            return [1 / (1 - GAMMA)]
        return [(1 - GAMMA ** (cls.LENGTH - time)) / (1 - GAMMA) for time in range(cls.LENGTH)]


class Bandit(gym.Env[Any, Any]):
    """One step per episode: name the arm that is shown. A random policy earns 1/4."""

    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.arm = int(self.np_random.integers(4))
        return self.arm, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.arm, float(action == self.arm), True, False, {}


class Target(gym.Env[Any, Any]):
    """One step per episode: hit 1 + 2·o, with actions between −2 and 4; the reward is minus the squared distance."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-2.0, 4.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.place, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        distance = float(action[0]) - (1 + 2 * float(self.place[0]))
        return self.place, -(distance**2), True, False, {}


class Chain(gym.Env[Any, Any]):
    """Walk right along six places; the reward of 1 comes at the end, so actions are worth what follows them.

    Left leads back to the start. A random policy needs 126 steps on average, the best 6.
    """

    LENGTH = 6
    observation_space = spaces.Discrete(LENGTH)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.time = 0
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place, self.time = (self.place + 1 if action == 1 else 0), self.time + 1
        done = self.place == self.LENGTH
        return min(self.place, self.LENGTH - 1), float(done), done, self.time == 60 and not done, {}


def learn(
    env: Callable[[], gym.Env[Any, Any]],
    rounds: int,
    num_envs: int = 8,
    size: int = 32,
    seed: int = 1,
    storage: Any = GAEBuffer,
    algorithm: Any = PPO,
    **chosen: Any,
) -> Scheme:
    """An algorithm on an environment through the real VecEnv, Collector and storage, lr annealed to 0."""
    envs_factory, action_space, observation_space = VecEnv.create_factory(lambda: env(), {}, num_envs, backend="sync")
    quick = {
        PPO: {"lr": 1e-2, "num_mini_batch": 4, "use_clipped_value_loss": False},
        A2C: {"lr_pi": 2e-2, "lr_v": 2e-2},
    }
    chosen = {"gamma": GAMMA, "test_every": 0, **quick[algorithm], **chosen}
    algo_factory, name = algorithm.create_factory(**chosen)
    actor_factory = OnPolicyActor.create_factory(
        observation_space, action_space, name, feature_extractor_kwargs={"hidden_sizes": [16]}
    )
    scheme = Scheme(algo_factory, actor_factory, storage.create_factory(size=size), envs_factory, seed=seed)
    rates = [name for name in chosen if name.startswith("lr")]
    learner = Learner(scheme, rounds * size * num_envs, anneal=dict.fromkeys(rates, 0.0))
    while not learner.done():
        learner.step()
    return scheme


def constant_reward(ends: str) -> None:
    """The learned value is the known one within 5 %."""
    scheme = learn(lambda: ConstantReward(ends), rounds=60, num_epochs=4)
    expected = torch.tensor(ConstantReward.values(ends))
    obs = torch.eye(ConstantReward.LENGTH + 1)[: len(expected)]
    rows = len(expected)
    with torch.no_grad():
        value = scheme.actor.get_value(obs, scheme.actor.initial_rhs(rows), torch.zeros(rows, 1))["value_net1"]
    torch.testing.assert_close(value.flatten(), expected, rtol=0.05, atol=0.0)


def bandit(rounds: int = 30, **chosen: Any) -> None:
    """Nearly every arm is named right."""
    scheme = learn(Bandit, rounds, size=16, entropy_coef=0.0, **chosen)
    obs = torch.eye(4)
    dist, _, _ = scheme.actor(obs, scheme.actor.initial_rhs(4), torch.ones(4, 1))
    right = dist.log_prob(torch.arange(4)[:, None]).exp()
    assert right.min().item() > 0.9, right


def target() -> None:
    """The mean action is within 0.15 of the target for every observation."""
    scheme = learn(Target, rounds=60, size=32, num_epochs=8, entropy_coef=0.0)
    obs = torch.linspace(-0.9, 0.9, 7)[:, None]
    dist, _, _ = scheme.actor(obs, scheme.actor.initial_rhs(7), torch.ones(7, 1))
    distance = (dist.mode() - (1 + 2 * obs)).abs()
    assert distance.max().item() < 0.15, distance


def chain(rounds: int = 40, **chosen: Any) -> None:
    """The shortest way is found: the delayed reward reaches the first step."""
    scheme = learn(Chain, rounds, entropy_coef=0.0, **chosen)
    obs = torch.eye(Chain.LENGTH)
    dist, values, _ = scheme.actor(obs, scheme.actor.initial_rhs(6), torch.ones(6, 1))
    assert dist.mode().flatten().tolist() == [1] * 6
    expected = GAMMA ** torch.arange(5, -1, -1.0)
    torch.testing.assert_close(values["value_net1"].detach().flatten(), expected, rtol=0.1, atol=0.0)


@pytest.fixture(
    params=["truncated", "terminated", "both", "bandit", "target", "chain", "bandit of A2C", "chain by V-trace"],
)
def check(request: pytest.FixtureRequest, checks: dict[str, Callable[[], None]]) -> Callable[[], None]:
    """Each small world in turn: learns it, and raises AssertionError if it was not learned."""
    return checks[request.param]


@pytest.fixture
def checks() -> dict[str, Callable[[], None]]:
    """Every check by name."""
    return {
        **{ends: lambda ends=ends: constant_reward(ends) for ends in ("truncated", "terminated", "both")},  # type: ignore[misc]
        "bandit": bandit,
        "target": target,
        "chain": chain,
        "bandit of A2C": lambda: bandit(60, algorithm=A2C),
        "chain by V-trace": lambda: chain(100, algorithm=A2C, storage=VTraceBuffer),
    }
