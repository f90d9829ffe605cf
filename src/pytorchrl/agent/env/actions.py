"""How rows of an action tensor become actions of the environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from pytorchrl.agent.env.formats import Array
from pytorchrl.errors import SpaceError

SUPPORTED = "Supported: Discrete, MultiDiscrete, MultiBinary, and Box of floats with finite bounds."


class ActionFormat:
    """An action space on our side: ``Discrete`` ``[N, 1]`` and ``MultiDiscrete`` ``[N, K]`` integers from 0,
    ``MultiBinary`` ``[N, K]`` zeros and ones, ``Box`` ``[N, A]`` floats in environment units.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self.space = space
        self.start: Any = 0
        self.shape: tuple[int, ...] = space.shape or ()
        self.dtype: Any = np.dtype(np.int64)
        # float32 tensors round float64 bounds, perhaps to the wrong side.
        self._bounds: tuple[Array, Array] | None = None
        if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
            self.start = space.start
        elif isinstance(space, spaces.Box):
            check_bounds(space)
            self.dtype = space.dtype
            if space.dtype == np.float64:
                self._bounds = space.low, space.high
        elif not isinstance(space, spaces.MultiBinary):
            raise SpaceError(f"action space {space} is not supported", SUPPORTED)
        self._starts = bool(np.any(self.start))
        self.width = int(np.prod(self.shape, dtype=int))

    def batch(self, actions: Array) -> Array:
        """N actions ``[N, *shape]`` in the environment's own terms, as vector environments take them."""
        # int64 is what tensors hold; the space's own dtype is what environments expect.
        actions = actions.reshape(len(actions), *self.shape).astype(self.space.dtype, copy=False)
        if self._bounds is not None:
            return np.clip(actions, *self._bounds)
        return actions + self.start if self._starts else actions

    def convert(self, actions: Array) -> list[Any]:
        """One environment's action per row; whole numbers as NumPy's, which Gymnasium checks faster than Python's."""
        return list(self.batch(actions))


def check_bounds(space: spaces.Box) -> None:
    """Refuse boxes that cannot be scaled to: infinite or equal bounds, or whole numbers."""
    if not np.issubdtype(space.dtype, np.floating):
        raise SpaceError(f"action space {space} holds {space.dtype}, not floats", SUPPORTED)
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise SpaceError(
            f"action space {space} has infinite bounds", "Wrap the environment with gymnasium.wrappers.RescaleAction."
        )
    if (space.low >= space.high).any():
        raise SpaceError(
            f"action space {space} has a lower bound that is not below the upper one",
            "Leave out what cannot vary, for example with gymnasium.wrappers.TransformAction.",
        )
