"""Rewards and ends as functions of a transition, beside what the environments themselves say."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from pytorchrl.agent.actors.reward_functions import (
    REWARDS,
    TERMINALS,
    find_function,
    get_reward_function,
    get_terminal_function,
)
from pytorchrl.errors import ConfigError

EXACT = [
    "CartPole-v0",
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "InvertedPendulum-v5",
    "Reacher-v5",
]
# Their speed is the mean over a step, which no observation holds; ours is the one at its end.
BY_SPEED = ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Swimmer-v5"]


# Where episodes begin whose end random play would never see.
STARTS = {
    "Acrobot-v1": (1.0, 0.0, 3.5, 0.0),
    "MountainCar-v0": (0.3, 0.06),
    "MountainCarContinuous-v0": (0.3, 0.06),
}


def transitions(env_id: str, steps: int = 600) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(obs, action, next obs, reward, terminated) of random play, as storages hold them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CartPole-v0 is old
        env: Any = gym.make(env_id).unwrapped
    env.action_space.seed(0)
    rows: list[tuple[Any, ...]] = []
    terminated = True
    for number in range(steps):
        if terminated:
            obs, _ = env.reset(seed=number)
            if env_id in STARTS:
                env.state = np.array(STARTS[env_id])
        action = env.action_space.sample()
        obs2, reward, terminated, _, _ = env.step(action)
        rows.append((obs, np.atleast_1d(action), obs2, [reward], [terminated]))
        obs = obs2
    env.close()
    first, action, second, reward, over = (np.array(column) for column in zip(*rows, strict=True))
    discrete = isinstance(env.action_space, gym.spaces.Discrete)
    given = torch.from_numpy(action) if discrete else torch.from_numpy(action).float()
    return (
        torch.from_numpy(first).float(),
        given,
        torch.from_numpy(second).float(),
        torch.from_numpy(reward).float(),
        torch.from_numpy(over).float(),
    )


@pytest.mark.parametrize("env_id", [*EXACT, *BY_SPEED])
def test_rewards_and_ends_are_the_environments_own(env_id: str) -> None:
    s, a, s2, reward, over = transitions(env_id)
    function, end = get_reward_function(env_id), get_terminal_function(env_id)
    assert function is not None
    found = function(s, a, s2)
    assert found.shape == (len(s), 1)
    ends = torch.zeros_like(over) if end is None else end(s, a, s2)
    assert torch.equal(ends, over)
    if end is not None:
        assert 0 < over.sum() < len(over) / 2
    if env_id in EXACT:
        torch.testing.assert_close(found, reward, rtol=1e-5, atol=1e-4)
    else:
        correlation = torch.corrcoef(torch.cat([found, reward], 1).T)[0, 1]
        assert correlation > 0.9
        assert (found - reward).mean().abs() < 0.1 * reward.std()


def test_any_version_and_no_other_name() -> None:
    assert get_reward_function("Pendulum-v7") is get_reward_function("module:Pendulum-v1") is REWARDS["Pendulum"]
    assert get_reward_function("ALE/Pong-v5") is None
    assert get_terminal_function("Pendulum-v1") is None


def test_upright_earns_most() -> None:
    angles = torch.linspace(-3.1, 3.1, 63)
    s = torch.stack([angles.cos(), angles.sin(), torch.zeros(63)], 1)
    rewards = REWARDS["Pendulum"](s, torch.zeros(63, 1), s)
    assert rewards.argmax().item() == 31
    s = torch.zeros(3, 4)
    s[1, 2], s[2, 0] = 0.1, 1.0
    for name in ("CartPoleAngle", "InvertedPendulumAngle"):
        values = REWARDS[name](s, s, s[:, [0, 2, 1, 3]] if "Inverted" in name else s).flatten().tolist()
        assert values[0] > values[1]
    assert REWARDS["CartPoleAngle"](s, s, s)[2].item() == pytest.approx(0.99)


def mine(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    return s[:, :1]


def test_a_function_of_ones_own_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(REWARDS)
    assert find_function(mine, known, "reward function") is mine
    assert find_function("mine", known, "reward function") is mine
    assert find_function(None, known, "reward function") is None
    with pytest.raises(ConfigError, match=r"unknown reward function 'Pendlum'\nDid you mean 'Pendulum'"):
        find_function("Pendlum", known, "reward function")
    with pytest.raises(ConfigError, match="'learned'"):
        find_function("lernt", dict(TERMINALS), "terminal function", "learned")
    with pytest.raises(ConfigError, match="a name of its own, got '<lambda>'"):
        find_function(lambda s, a, s2: s, known, "reward function")
    with pytest.raises(ConfigError, match="got 3"):
        find_function(3, known, "reward function")  # type: ignore[arg-type]
    monkeypatch.setattr(mine, "__name__", "Pendulum")
    with pytest.raises(ConfigError, match="a name of its own, got 'Pendulum'"):
        find_function(mine, known, "reward function")
