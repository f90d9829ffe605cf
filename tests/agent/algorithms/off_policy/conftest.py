"""The off-policy algorithms over small real networks, and batches as a replay yields them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from pytorchrl.agent.actors import OffPolicyActor
from pytorchrl.agent.algorithms.off_policy.base import OffPolicyAlgorithm
from pytorchrl.keys import ACT, DONE, DONE2, N_STEP, OBS, OBS2, REW, RHS, RHS2, TERMINAL
from pytorchrl.registry import load_class

OBSERVATIONS = spaces.Box(-1.0, 1.0, (4,), np.float32)
ACTIONS: dict[str, gym.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(np.float32([-2, -1]), np.float32([2, 3])),
}
KINDS = {
    "DDQN": "discrete",
    "DDPG": "box",
    "TD3": "box",
    "SAC": "box",
    "SAC-discrete": "discrete",
    "MPO": "box",
    "MPO-discrete": "discrete",
}
SMALL = {"hidden_sizes": (16,), "activation": "tanh"}


def make_algorithm(
    kind: str, seed: int = 0, actor: dict[str, Any] | None = None, observations: Any = OBSERVATIONS, **parameters: Any
) -> Any:
    name = kind.partition("-")[0]
    cls: Any = load_class("algorithm", name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        chosen = {"common_feature_extractor_kwargs": SMALL, **(actor or {})}
        create_actor = OffPolicyActor.create_factory(observations, ACTIONS[KINDS[kind]], name, **chosen)
        create, found = cls.create_factory(**parameters)
        assert found == name
        algorithm = create("cpu", create_actor("cpu"), None)
    assert isinstance(algorithm, OffPolicyAlgorithm)
    return algorithm


def make_batch(algorithm: Any, seed: int = 0, rows: int = 12) -> dict[str, Any]:
    """Uniformly random actions; the first row ends in a terminal state, the second is truncated."""
    actor = algorithm.actor
    generator = torch.Generator().manual_seed(seed)
    obs, obs2 = (torch.rand(rows, *actor.input_space.shape, generator=generator) * 2 - 1 for _ in range(2))
    done2, terminal = torch.zeros(rows, 1), torch.zeros(rows, 1)
    done2[:2], terminal[0] = 1.0, 1.0
    if isinstance(actor.action_space, spaces.Discrete):
        action = torch.randint(int(actor.action_space.n), (rows, 1), generator=generator)
    else:
        action = actor.box_scale.to_box(torch.rand(rows, 2, generator=generator) * 2 - 1)
    rhs = actor.initial_rhs(1)
    return {
        OBS: obs,
        RHS: rhs,
        DONE: torch.zeros(rows, 1),
        ACT: action,
        REW: torch.randn(rows, 1, generator=generator),
        OBS2: obs2,
        RHS2: rhs,
        DONE2: done2,
        TERMINAL: terminal,
        N_STEP: torch.ones(rows, 1),
    }


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make() -> Callable[..., Any]:
    """``make(kind, seed=0, actor={}, **parameters)``: the algorithm from its factory."""
    return make_algorithm


@pytest.fixture
def replayed() -> Callable[..., dict[str, Any]]:
    """``replayed(algorithm, seed=0, rows=12)``: a batch."""
    return make_batch
