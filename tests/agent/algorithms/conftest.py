"""Actors and batches for the contract of algorithms: real networks, and one whose log-probabilities are its weights."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import PPO
from pytorchrl.keys import ACT, ADV, DONE, LOGP, OBS, RET, REW, RHS, TERMINAL, VAL

OBSERVATIONS = spaces.Box(-1.0, 1.0, (4,), np.float32)
ACTIONS: dict[str, gym.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(np.float32([-2, -1]), np.float32([2, 3])),
}


class Table(nn.Module):
    """An actor whose log-probabilities, values and entropy are its parameters: gradients in them are seen directly."""

    def __init__(self, log_probs: Tensor, values: Tensor, entropy: float = 0.0) -> None:
        super().__init__()
        self.log_probs, self.values = nn.Parameter(log_probs), nn.Parameter(values)
        self.mean_entropy = nn.Parameter(torch.tensor(entropy, dtype=log_probs.dtype))
        self.is_recurrent = False

    def forward(self, obs: Any, rhs: Any, done: Any) -> tuple[Any, dict[str, Tensor], Any]:
        dist = SimpleNamespace(
            log_prob=lambda action: self.log_probs, entropy=lambda: self.mean_entropy.expand_as(self.log_probs)
        )
        return dist, {"value_net1": self.values}, rhs


def make_batch(actor: OnPolicyActor, rows: int = 12, seed: int = 0) -> dict[str, Any]:
    """A batch as a storage yields it, of actions that the actor itself took."""
    generator = torch.Generator().manual_seed(seed)
    obs = torch.rand(rows, 4, generator=generator) * 2 - 1
    rhs, done = actor.initial_rhs(rows), torch.zeros(rows, 1)
    with torch.no_grad():
        dist, values, _ = actor(obs, rhs, done)
        action = dist.sample(generator)
        log_prob = dist.log_prob(action) + 0.3 * torch.randn(rows, 1, generator=generator)
    return {
        OBS: obs,
        RHS: rhs,
        DONE: done,
        ACT: action,
        REW: torch.randn(rows, 1, generator=generator),
        TERMINAL: done,
        VAL: values["value_net1"] + 0.3 * torch.randn(rows, 1, generator=generator),
        LOGP: log_prob,
        ADV: torch.randn(rows, 1, generator=generator),
        RET: torch.randn(rows, 1, generator=generator),
    }


@pytest.fixture
def table() -> type[Table]:
    return Table


@pytest.fixture
def batch_of() -> Callable[..., dict[str, Any]]:
    return make_batch


@pytest.fixture(params=ACTIONS)
def action_space(request: pytest.FixtureRequest) -> gym.Space[Any]:
    return ACTIONS[request.param]


@pytest.fixture
def make_ppo() -> Callable[..., PPO]:
    """``make_ppo(space="discrete", shared=True, seed=0, **parameters)``: PPO over a real actor, from its factory."""

    def make(space: str = "discrete", shared: bool = True, seed: int = 0, **parameters: Any) -> PPO:
        action_space = ACTIONS[space]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            create_actor = OnPolicyActor.create_factory(
                OBSERVATIONS,
                action_space,
                "PPO",
                feature_extractor_kwargs={"hidden_sizes": [8]},
                shared_policy_value_network=shared,
            )
            create, name = PPO.create_factory(**parameters)
            assert name == "PPO"
            ppo = create("cpu", create_actor("cpu"), None)
        assert isinstance(ppo, PPO)
        return ppo

    return make
