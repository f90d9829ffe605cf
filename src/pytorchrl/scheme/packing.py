"""What travels between workers: plain values and NumPy arrays, never pickled tensors."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

# Arrays below this size are not worth compressing.
SMALLEST_TO_COMPRESS = 1024


class Packed(NamedTuple):
    """A tensor on its way."""

    array: Any


class Compressed(NamedTuple):
    """A tensor on its way, with fewer bytes."""

    data: bytes
    dtype: str
    shape: tuple[int, ...]


def pack(value: Any, compress: bool = False) -> Any:
    """The value with every tensor as an array; dicts, lists and plain tuples are looked into."""
    if isinstance(value, Tensor):
        array = np.ascontiguousarray(value.detach().cpu().numpy()).reshape(value.shape)
        if compress and array.nbytes >= SMALLEST_TO_COMPRESS:
            return Compressed(zlib.compress(array.tobytes(), 1), array.dtype.str, array.shape)
        return Packed(array)
    if isinstance(value, Mapping):
        return {key: pack(item, compress) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(pack(item, compress) for item in value)
    return value


def unpack(value: Any) -> Any:
    """What was packed; its tensors may be written to, whatever they came through."""
    if isinstance(value, Packed):
        array = value.array
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    if isinstance(value, Compressed):
        array = np.frombuffer(bytearray(zlib.decompress(value.data)), np.dtype(value.dtype))
        return torch.from_numpy(array.reshape(value.shape))
    if isinstance(value, Mapping):
        return {key: unpack(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(unpack(item) for item in value)
    return value
