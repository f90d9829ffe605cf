"""Arrays that several processes see.

The memory is a file without a name: whatever dies, nothing is left behind. It begins with a header of one integer per
process; the arrays follow once their shapes are known.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from typing import Any, NamedTuple

import numpy as np

from pytorchrl.agent.env.actions import ActionFormat
from pytorchrl.agent.env.formats import Array, ObservationFormat, Rows

ALIGNMENT = 64


class Block(NamedTuple):
    """What parent and workers exchange in a step; each worker has its own rows."""

    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    over: Array
    observation: Rows
    successor: Rows

    def part(self, rows: slice) -> Block:
        """The rows of some of the environments."""
        return Block(
            self.actions[rows],
            self.rewards[rows],
            self.terminated[rows],
            self.truncated[rows],
            self.over[rows],
            [array[rows] for array in self.observation],
            [array[rows] for array in self.successor],
        )


def create() -> int:
    """The descriptor of memory to share."""
    if sys.platform == "linux":
        return os.memfd_create("pytorchrl")
    else:  # noqa: RET505  type checkers take the platform for a constant
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def map_header(descriptor: int, processes: int) -> Array:
    """The header: one integer per process."""
    size = header_size(processes)
    if os.fstat(descriptor).st_size < size:
        os.ftruncate(descriptor, size)
    return np.frombuffer(mmap.mmap(descriptor, size), np.int64, processes)


def map_block(
    descriptor: int, processes: int, count: int, observations: ObservationFormat, actions: ActionFormat
) -> Block:
    """The arrays for ``count`` environments, behind the header; whoever maps them first makes the room."""
    rows = [((count, *part.space.shape), part.space.dtype) for part in observations.parts]
    flags = [((count,), np.dtype(bool))] * 3
    shapes: list[tuple[tuple[int, ...], Any]] = [
        ((count, actions.width), actions.dtype),
        ((count,), np.dtype(np.float32)),
        *flags,
        *rows,
        *rows,
    ]
    places, end = [], header_size(processes)
    for shape, dtype in shapes:
        places.append(end)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        end += -(-size // ALIGNMENT) * ALIGNMENT
    if os.fstat(descriptor).st_size < end:
        os.ftruncate(descriptor, end)
        if sys.platform == "linux":
            os.posix_fallocate(descriptor, 0, end)  # fails here if there is no room, not with a signal later
    memory = mmap.mmap(descriptor, end)
    arrays: list[Array] = [
        np.frombuffer(memory, dtype, int(np.prod(shape, dtype=np.int64)), place).reshape(shape)
        for (shape, dtype), place in zip(shapes, places, strict=True)
    ]
    parts = len(observations.parts)
    acting, rewards, terminated, truncated, over, *rest = arrays
    return Block(acting, rewards, terminated, truncated, over, rest[:parts], rest[parts:])


def header_size(processes: int) -> int:
    return -(-processes * 8 // mmap.PAGESIZE) * mmap.PAGESIZE
