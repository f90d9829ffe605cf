"""Agents that plan, with models small enough to be quick and one that is known to be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors import ModelBasedPlannerActor, WorldModel
from pytorchrl.agent.storages import MBReplayBuffer
from pytorchrl.keys import ACT, DONE, DONE2, OBS, OBS2, REW, RHS, RHS2, TERMINAL
from pytorchrl.registry import load_class

OBSERVATIONS = spaces.Box(-10.0, 10.0, (2,), np.float32)
ACTIONS: dict[str, gym.Space[Any]] = {
    "box": spaces.Box(np.float32([-2, 3]), np.float32([4, 5])),
    "discrete": spaces.Discrete(3),
}
ALGORITHMS = ["MPC_RS", "MPC_CEM", "MPC_PDDM"]


class PendulumItself(WorldModel):
    """The dynamics of Pendulum-v1, rewards and all."""

    fitted = True

    def step(self, obs: Tensor, action: Tensor, layers: Any, generator: Any) -> tuple[Tensor, Tensor, Tensor]:
        theta, speed, torque = torch.atan2(obs[..., 1], obs[..., 0]), obs[..., 2], action[..., 0]
        reward = -(theta.square() + 0.1 * speed.square() + 0.001 * torque.square())
        speed = (speed + (15 * theta.sin() + 3 * torque) * 0.05).clamp(-8, 8)
        theta = theta + speed * 0.05
        return (
            torch.stack([theta.cos(), theta.sin(), speed], -1),
            reward[..., None],
            torch.zeros_like(reward[..., None]),
        )


def make_agent(name: str, space: str = "box", seed: int = 0, actor: Any = None, **parameters: Any) -> Any:
    """An algorithm over a real actor, from their factories."""
    chosen = {"horizon": 4, "n_planner": 30, "world_model_kwargs": {"hidden_size": 8, "num_members": 2}}
    create_actor = ModelBasedPlannerActor.create_factory(OBSERVATIONS, ACTIONS[space], name, **chosen | (actor or {}))
    create, told = load_class("algorithm", name).create_factory(**parameters)
    assert told == name
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return create("cpu", create_actor("cpu"), None)


def fill(agent: Any, steps: int = 40, num_envs: int = 2, fit: bool = True) -> MBReplayBuffer:
    """A buffer of random transitions, from which the model was fitted once."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        buffer = MBReplayBuffer(100, "cpu", agent.actor, agent, None, validation_share=0.2)
        zeros, rhs = torch.zeros(num_envs, 1), agent.actor.initial_rhs(num_envs)
        for _ in range(steps):
            obs, action = torch.randn(num_envs, 2), agent.actor.random_action(num_envs)
            sample = {OBS: obs, RHS: rhs, DONE: zeros, ACT: action, REW: obs[:, :1], OBS2: obs * 0.9, RHS2: rhs}
            buffer.insert_transition({**sample, DONE2: zeros, TERMINAL: zeros})
    for batch in buffer.generate_batches(1, 32) if fit else ():
        agent.compute_gradients(batch)
        agent.apply_gradients()
    return buffer


@pytest.fixture
def agent() -> Callable[..., Any]:
    """``agent(name, space=…, seed=…, actor={…}, **parameters)``."""
    return make_agent


@pytest.fixture
def fitted() -> Callable[..., Any]:
    """The same, with a model that was fitted to a few transitions."""

    def make(*args: Any, **kwargs: Any) -> Any:
        made = make_agent(*args, **kwargs)
        fill(made)
        return made

    return make


@pytest.fixture
def filled() -> Callable[..., MBReplayBuffer]:
    return fill


@pytest.fixture(params=ALGORITHMS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=ACTIONS)
def space(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def true_pendulum() -> type[WorldModel]:
    return PendulumItself
