"""How an environment's observations look on our side of the border: arrays that networks can read.

Inside this package the observations of N environments are *rows*: a list with one array ``[N, *shape]`` per part of
the observation space (one part, unless the space is a Dict or a Tuple).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from pytorchrl.errors import SpaceError

Array: TypeAlias = npt.NDArray[Any]
Rows: TypeAlias = list[Array]
T = TypeVar("T")

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of those"


class Part(ABC):
    """One leaf of an observation space; ``space`` is the Box that it becomes."""

    space: spaces.Box

    @abstractmethod
    def write(self, rows: Array, i: int, value: Any) -> None:
        """Put one value into row ``i``; ``ValueError`` says what was expected if it does not fit."""

    @abstractmethod
    def batch(self, values: Any) -> Array:
        """N values at once, as an array of our own."""

    @abstractmethod
    def check(self, value: Any) -> None:
        """``ValueError`` if the value lies outside the environment's own space."""


class BoxPart(Part):
    """``Box`` keeps its dtype (float64 becomes float32, uint8 stays); images (H, W, C) become (C, H, W).

    ``MultiBinary`` is a Box of zeros and ones, float32 on our side.
    """

    def __init__(self, space: spaces.Box | spaces.MultiBinary) -> None:
        self.binary = isinstance(space, spaces.MultiBinary)
        self.source: spaces.Box = (
            spaces.Box(0, 1, space.shape, np.int8) if isinstance(space, spaces.MultiBinary) else space
        )
        dtype: Any = np.float32 if self.binary or space.dtype == np.float64 else space.dtype
        shape = self.source.shape
        self.channels_last = len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] > 4
        low, high = self.source.low, self.source.high
        if self.channels_last:
            low, high = low.transpose(2, 0, 1), high.transpose(2, 0, 1)
        low, high = np.atleast_1d(low), np.atleast_1d(high)
        with np.errstate(over="ignore"):  # a float64 bound beyond float32 means no bound
            self.space = spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)
        # What the environment hands over without further questions.
        self.shape = shape
        self.dtype = self.source.dtype
        slack = 1e-6 if np.issubdtype(self.dtype, np.floating) else 0
        self.low, self.high = (
            (bound.astype(np.float64) + side * slack * (1 + np.abs(bound)) if slack else bound)
            for bound, side in ((self.source.low, -1), (self.source.high, 1))
        )

    def write(self, rows: Array, i: int, value: Any) -> None:
        if type(value) is not np.ndarray or value.shape != self.shape or value.dtype != self.dtype:
            value = self._accepted(value)
        rows[i] = value.transpose(2, 0, 1) if self.channels_last else value

    def batch(self, values: Any) -> Array:
        values = np.asarray(values)
        if values.shape[1:] != self.shape:
            raise ValueError(f"expected observations of shape {self.shape} each, got {values.shape} in all")
        if values.dtype != self.dtype and not self._may_become(values.dtype):
            raise ValueError(f"expected observations of {self.dtype}, got {values.dtype}")
        if self.channels_last:
            values = values.transpose(0, 3, 1, 2)
        # A copy: whoever gave the values may use their memory again.
        rows = np.array(values, self.space.dtype, order="C")
        return rows if self.shape else rows[:, None]

    def check(self, value: Any) -> None:
        value = np.asarray(value)
        outside = (value < self.low) | (value > self.high)  # NaN is nobody's bound: the finite guard names it
        if outside.any():
            place = tuple(int(index[0]) for index in np.nonzero(outside)) if value.shape else ()
            low, high = self.source.low[place], self.source.high[place]
            raise ValueError(
                f"observation outside its space: {value[place]} at index {place}, expected {low} to {high}"
            )

    def _accepted(self, value: Any) -> Array:
        array = np.asarray(value)
        if array.shape != self.shape:
            raise ValueError(f"expected an observation of shape {self.shape}, got {array.shape}")
        if not self._may_become(array.dtype):
            raise ValueError(f"expected an observation of {self.dtype}, got {array.dtype}")
        return array

    def _may_become(self, dtype: np.dtype[Any]) -> bool:
        if self.binary:
            return dtype.kind in "bui"
        return np.can_cast(dtype, self.dtype) or (dtype.kind == "f" and self.dtype.kind == "f")


class OneHotPart(Part):
    """``Discrete`` becomes a one-hot vector, ``MultiDiscrete`` several, one behind the other."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        self.shape: tuple[int, ...] = space.shape or ()
        sizes = np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec, np.int64).reshape(-1)
        self.sizes = sizes
        self.start = np.asarray(space.start, np.int64).reshape(-1)
        self.offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.space = spaces.Box(0.0, 1.0, (int(sizes.sum()),), np.float32)

    def write(self, rows: Array, i: int, value: Any) -> None:
        rows[i] = self.batch(np.expand_dims(value, 0))[0]

    def batch(self, values: Any) -> Array:
        values = np.asarray(values)
        if values.shape[1:] != self.shape or values.dtype.kind not in "bui":
            raise ValueError(
                f"expected whole numbers of shape {self.shape}, got {values.dtype} of shape {values.shape[1:]}"
            )
        count = len(values)
        places = values.reshape(count, -1).astype(np.int64) - self.start
        if (places < 0).any() or (places >= self.sizes).any():
            last = self.start + self.sizes - 1
            raise ValueError(f"observation outside its space: {values}, expected {self.start} to {last}")
        rows = np.zeros((count, *self.space.shape), np.float32)
        np.put_along_axis(rows, places + self.offsets, 1.0, axis=1)
        return rows

    def check(self, value: Any) -> None:
        """Nothing to do: no value outside could be written."""


class ObservationFormat:
    """What networks see of an observation space.

    ``source`` is the environment's space and ``space`` the one on our side: a Box, or a Dict of Boxes. The entries
    of a Tuple are named "0", "1", …
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self.source = space
        self._items: list[tuple[Any, str, gym.Space[Any]]] | None = None
        if isinstance(space, spaces.Dict):
            self._items = [(key, str(key), inner) for key, inner in space.spaces.items()]
        elif isinstance(space, spaces.Tuple):
            self._items = [(i, str(i), inner) for i, inner in enumerate(space.spaces)]
        self.parts = [_part(inner, name) for _, name, inner in self._items or [(None, "", space)]]
        self.space: gym.Space[Any] = (
            self.parts[0].space
            if self._items is None
            else spaces.Dict({name: part.space for (_, name, _), part in zip(self._items, self.parts, strict=True)})
        )
        self.shape = self.space.shape
        self.dtype = self.space.dtype

    def empty(self, count: int) -> Rows:
        """Room for ``count`` observations."""
        return [np.zeros((count, *part.space.shape), part.space.dtype) for part in self.parts]

    def write(self, rows: Rows, i: int, observation: Any) -> None:
        """Put one observation into row ``i``; ``ValueError`` says what was expected if it does not fit."""
        if self._items is None:
            self.parts[0].write(rows[0], i, observation)
            return
        for part, array, value in zip(self.parts, rows, self._split(observation), strict=True):
            part.write(array, i, value)

    def batch(self, observations: Any) -> Rows:
        """N observations at once, batched as Gymnasium's vector environments batch them."""
        return [part.batch(value) for part, value in zip(self.parts, self._split(observations), strict=True)]

    def check(self, observation: Any) -> None:
        """``ValueError`` if the observation lies outside the environment's space."""
        for part, value in zip(self.parts, self._split(observation), strict=True):
            part.check(value)

    def tree(self, values: Sequence[T]) -> T | dict[str, T]:
        """One value per part as networks take them: the only one, or a dict by name."""
        if self._items is None:
            return values[0]
        return {name: value for (_, name, _), value in zip(self._items, values, strict=True)}

    def is_single(self, observation: Any) -> bool:
        """Whether this is one observation, not a batch of them."""
        if self._items is None:
            return bool(np.shape(observation) == (self.source.shape or ()))
        key, _, inner = self._items[0]
        return bool(np.shape(observation[key]) == (inner.shape or ()))

    def _split(self, observation: Any) -> list[Any]:
        if self._items is None:
            return [observation]
        try:
            return [observation[key] for key, _, _ in self._items]
        except (KeyError, IndexError, TypeError) as error:
            names = ", ".join(name for _, name, _ in self._items)
            raise ValueError(f"expected an observation with {names}, got {type(observation).__name__}") from error


def _part(space: gym.Space[Any], name: str) -> Part:
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return OneHotPart(space)
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return BoxPart(space)
    where = f" '{name}'" if name else ""
    nested = isinstance(space, (spaces.Dict, spaces.Tuple))
    raise SpaceError(
        f"observation space{where} {space} is not supported" + (": it is nested more than one level" if nested else ""),
        f"Supported: {SUPPORTED}. Wrap it, for example with gymnasium.wrappers.FlattenObservation.",
    )
