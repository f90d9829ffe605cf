"""What the stand-alone buffers share: memory for rows of float32, and how what a loop hands over becomes such a row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytorchrl.errors import ConfigError, NonFiniteError
from pytorchrl.memory import refuse_if_too_large

Floats = npt.NDArray[np.float32]


def allocate(size: int, *shapes: tuple[int, ...]) -> list[Floats]:
    """One zeroed float32 array `[size, *shape]` per shape; ``ConfigError`` if this machine could not hold them."""
    refuse_if_too_large(sum(4 * size * math.prod(shape) for shape in shapes), f"a buffer of size {size}")
    return [np.zeros((size, *shape), np.float32) for shape in shapes]


def new_generator() -> np.random.Generator:
    """A generator of its own, seeded by a draw from numpy's global one: ``np.random.seed`` makes it repeatable."""
    return np.random.default_rng(np.random.randint(2**32, size=4, dtype=np.uint32))


def field(buffer_dict: Mapping[str, Any], name: str) -> Any:
    """One entry of what is stored; ``ConfigError`` says which is missing."""
    if name not in buffer_dict:
        raise ConfigError(f"store: needs '{name}', got {', '.join(map(repr, buffer_dict)) or 'nothing'}")
    return buffer_dict[name]


def row(name: str, value: Any, width: int = 1) -> Floats:
    """Finite float32 `(width,)` from numbers, arrays or tensors on any device, `(width,)` or `(1, width)`, or 0-d."""
    try:
        array = (
            value.detach().to("cpu", torch.float32).numpy()
            if isinstance(value, Tensor)
            else np.asarray(value, dtype=np.float32)
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: expected numbers, got {type(value).__name__}") from error
    if array.size != width or array.shape[-1:] not in ((width,), ()) or array.ndim > 2:
        raise ConfigError(f"{name}: expected shape ({width},) or (1, {width}), got {array.shape}")
    array = array.reshape(width)
    if not np.isfinite(array).all():
        raise NonFiniteError(f"{name}: expected finite numbers, got {array}")
    return array


def gather(rows: npt.NDArray[np.int64], **columns: Floats) -> dict[str, Tensor]:
    """A copy of some rows of each column, as tensors on the CPU."""
    return {name: torch.from_numpy(column.take(rows, axis=0)) for name, column in columns.items()}
