"""A sum tree: draw an index in proportion to its priority, and change priorities, in O(log capacity)."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Indices = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


class SumTree:
    """Binary tree in one float64 array: node i has the children 2i and 2i+1, the root is 1, leaves come last.

    A node is always recomputed from its children and never adjusted by a difference, so rounding does not accumulate.
    Every method takes and returns whole arrays.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self._depth = (capacity - 1).bit_length()
        self._first_leaf = 1 << self._depth  # leaves beyond the capacity stay 0 and are never found
        self._nodes = np.zeros(2 * self._first_leaf)

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def get(self, indices: npt.ArrayLike) -> Values:
        """Priorities of the leaves `[B]`."""
        return self._nodes[self._leaves(indices)]

    def set(self, indices: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Set leaves `[B]` to finite priorities ≥ 0, `[B]` or one for all; of duplicate indices the last one wins."""
        nodes, values = self._leaves(indices), np.asarray(values, dtype=np.float64)
        if not np.all((values >= 0) & np.isfinite(values)):
            raise ValueError("priorities must be finite and at least 0")
        self._nodes[nodes] = values
        for _ in range(self._depth):
            nodes = nodes >> 1
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def query(self, x: npt.ArrayLike) -> Indices:
        """First leaf whose cumulative sum exceeds x, for each x ≥ 0 `[B]`; from the total on, the last positive leaf.

        An empty half is never entered, whatever rounding made of x: no leaf of priority 0 is ever returned.
        """
        x = np.asarray(x, dtype=np.float64)
        if not np.all(x >= 0):
            raise ValueError("a cumulative sum to look for must be at least 0")
        if self.total == 0:
            raise ValueError("every priority is 0")
        nodes = np.ones(x.shape, dtype=np.int64)
        for _ in range(self._depth):
            nodes = 2 * nodes
            left = self._nodes[nodes]
            right = (x >= left) & (self._nodes[nodes + 1] > 0)
            x = np.where(right, x - left, x)
            nodes = nodes + right
        return nodes - self._first_leaf

    def get_state(self) -> dict[str, Tensor]:
        """The leaves only; the rest follows from them."""
        return {"leaves": torch.from_numpy(self.get(np.arange(self.capacity)))}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        leaves = state["leaves"]
        if leaves.shape != (self.capacity,):
            raise ValueError(f"leaves have shape {tuple(leaves.shape)}, expected ({self.capacity},)")
        self.set(np.arange(self.capacity), leaves.cpu().numpy())

    def _leaves(self, indices: npt.ArrayLike) -> Indices:
        indices = np.asarray(indices, dtype=np.int64)
        if np.any((indices < 0) | (indices >= self.capacity)):
            raise IndexError(f"index outside [0, {self.capacity})")
        return indices + self._first_leaf
