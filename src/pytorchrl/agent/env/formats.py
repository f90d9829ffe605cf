"""How an environment's observations and actions look on our side of the border."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from pytorchrl.errors import SpaceError

Array = npt.NDArray[Any]


class ObservationFormat:
    """What networks see of an observation space.

    ``Box`` keeps its dtype (float64 becomes float32, uint8 stays); images (H, W, C) become (C, H, W). ``Discrete``
    becomes one-hot. ``space`` is the space on our side; ``convert`` turns one observation into a row of it.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self.source = space
        self.channels_last = False
        self.one_hot = isinstance(space, spaces.Discrete)
        if isinstance(space, spaces.Discrete):
            self.space = spaces.Box(0.0, 1.0, (int(space.n),), np.float32)
            self.start = int(space.start)
        elif isinstance(space, spaces.Box):
            self.channels_last = len(space.shape) == 3 and space.shape[2] in (1, 3, 4) and space.shape[0] > 4
            low, high = space.low, space.high
            if self.channels_last:
                low, high = low.transpose(2, 0, 1), high.transpose(2, 0, 1)
            dtype = np.float32 if space.dtype == np.float64 else space.dtype
            with np.errstate(over="ignore"):  # a float64 bound beyond float32 means no bound
                self.space = spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)
        else:
            raise SpaceError(
                f"observation space {space} is not supported",
                "Supported: Box, Discrete. Wrap it, for example with gymnasium.wrappers.FlattenObservation.",
            )
        self.shape = self.space.shape
        self.dtype = self.space.dtype

    def empty(self, rows: int) -> Array:
        """Room for ``rows`` observations."""
        return np.empty((rows, *self.shape), self.dtype)

    def write(self, rows: Array, i: int, observation: Any) -> None:
        """Put one observation into row ``i``; ``ValueError`` says what was expected if it does not fit."""
        if self.one_hot:
            rows[i] = 0.0
            rows[i, int(observation) - self.start] = 1.0
            return
        if self.channels_last:
            observation = np.transpose(observation, (2, 0, 1))
        if np.shape(observation) != self.shape:
            raise ValueError(f"expected an observation of shape {self.source.shape}, got {np.shape(observation)}")
        rows[i] = observation


class ActionFormat:
    """How a row of an action tensor becomes an action of the environment.

    ``Discrete`` actions are ``[N, 1]`` integers from 0; ``Box`` actions are ``[N, A]`` floats in environment units.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self.space = space
        if isinstance(space, spaces.Discrete):
            self.start = int(space.start)
        elif isinstance(space, spaces.Box):
            check_bounds(space)
        else:
            raise SpaceError(f"action space {space} is not supported", "Supported: Discrete, Box.")

    def convert(self, actions: Array) -> list[Any]:
        """One environment's action per row."""
        if isinstance(self.space, spaces.Discrete):
            return [action + self.start for action in actions.reshape(-1).tolist()]
        shape: tuple[int, ...] = self.space.shape or ()
        return list(actions.reshape(len(actions), *shape).astype(self.space.dtype, copy=False))


def check_bounds(space: spaces.Box) -> None:
    """Refuse boxes that cannot be scaled to: infinite or equal bounds, or whole numbers."""
    if not np.issubdtype(space.dtype, np.floating):
        raise SpaceError(f"action space {space} holds {space.dtype}, not floats", "Supported: Discrete, float Box.")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise SpaceError(
            f"action space {space} has infinite bounds", "Wrap the environment with gymnasium.wrappers.RescaleAction."
        )
    if (space.low >= space.high).any():
        raise SpaceError(f"action space {space} has a lower bound that is not below the upper one")
