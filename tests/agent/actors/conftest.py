"""Spaces, and observations and actions drawn from them."""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 36, 36), np.uint8)
OBSERVATIONS: dict[str, gym.Space[Any]] = {
    "vector": VECTOR,
    "image": IMAGE,
    "dict": spaces.Dict(
        {"pixels": spaces.Box(0, 255, (1, 8, 8), np.uint8), "speed.x": spaces.Box(-1.0, 1.0, (2,), np.float32)}
    ),
}
ACTIONS: dict[str, gym.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "multidiscrete": spaces.MultiDiscrete([3, 2, 4]),
    "multibinary": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32)),
}


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def rows() -> Callable[..., Any]:
    """``rows(space, count)``: random members of an observation or action space, one per row."""

    def draw(space: gym.Space[Any], count: int) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: draw(inner, count) for key, inner in space.spaces.items()}
        if isinstance(space, spaces.Box) and space.dtype == np.uint8:
            return torch.randint(0, 256, (count, *space.shape), dtype=torch.uint8)
        if isinstance(space, spaces.Box) and np.isfinite(space.low).all():
            low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
            return low + (high - low) * torch.rand(count, *space.shape)
        if isinstance(space, spaces.Box):
            return torch.randn(count, *space.shape)
        sizes = {
            spaces.Discrete: lambda: [space.n],  # type: ignore[attr-defined]
            spaces.MultiDiscrete: lambda: space.nvec,  # type: ignore[attr-defined]
            spaces.MultiBinary: lambda: [2] * space.n,  # type: ignore[attr-defined]
        }[type(space)]()
        return torch.stack([torch.randint(0, int(size), (count,)) for size in sizes], 1)

    return draw
