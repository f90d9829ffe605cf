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
        self._skipped = min(self._depth, 12)  # upper levels that a query passes at once
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
        for depth in reversed(range(self._depth)):
            if 1 << depth > 2 * nodes.size:
                nodes = nodes >> 1
                self._nodes[nodes] = self._nodes.take(2 * nodes) + self._nodes.take(2 * nodes + 1)
            else:  # a level as small as that is quicker done whole
                first = 1 << depth
                below = self._nodes[2 * first : 4 * first]
                np.add(below[::2], below[1::2], out=self._nodes[first : 2 * first])

    def query(self, x: npt.ArrayLike) -> Indices:
        """First leaf whose cumulative sum exceeds x, for each x ≥ 0 `[B]`; from the total on, the last positive leaf.

        An empty half is never entered, whatever rounding made of x: no leaf of priority 0 is ever returned.
        """
        x = np.asarray(x, dtype=np.float64)
        if not np.all(x >= 0):
            raise ValueError("a cumulative sum to look for must be at least 0")
        if self.total == 0:
            raise ValueError("every priority is 0")
        nodes, x = self._start(x)
        for _ in range(self._depth - self._skipped):
            nodes = 2 * nodes
            left = self._nodes.take(nodes)
            right = (x >= left) & (self._nodes.take(nodes + 1) > 0)
            x = x - left * right
            nodes = nodes + right
        return nodes - self._first_leaf

    def _start(self, x: Values) -> tuple[Indices, Values]:
        """The nodes where the descents begin, and what is left of x there.

        The upper levels are passed at once: one cumulative sum over a level of the tree and a search in it cost as much
        as two steps down.
        """
        first = 1 << self._skipped
        sums = np.cumsum(self._nodes[first : 2 * first])
        found = np.searchsorted(sums, x, side="right")
        if found.size and found.max() == first:  # x from the sum on: the last positive node is the first to reach it
            found = np.minimum(found, np.searchsorted(sums, sums[-1]))
        return found + first, np.maximum(x - np.where(found > 0, sums[found - 1], 0.0), 0.0)

    def prefix(self, index: int) -> float:
        """The sum of the leaves before ``index``."""
        if index >= self.capacity:
            return self.total
        node, total = index + self._first_leaf, 0.0
        while node > 1:
            if node & 1:
                total += float(self._nodes[node - 1])
            node >>= 1
        return total

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
