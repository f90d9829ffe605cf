"""Ways to draw from a ring: what is drawn, from where on, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytorchrl.functional.sum_tree import SumTree

Ids = npt.NDArray[np.int64]


class Units:
    """What is drawn: transitions, or for memories sequences of ``length`` steps, which overlap by a share.

    Sequences begin every ``period`` steps. Like transitions, they have numbers for life: u = k·N + n for the sequence
    of environment n that begins at step k·period. Of transitions, length and period are 1: u is their own number.
    """

    def __init__(self, length: int = 1, overlap: float = 0.0) -> None:
        self.length = length
        self.period = max(length - int(overlap * length), 1)

    def stored(self, steps: int, kept: int, N: int) -> tuple[int, int]:
        """Numbers of the oldest unit, and after the newest, that lie in the last ``kept`` of ``steps`` steps."""
        first, end = -(-(steps - kept) // self.period), (steps - self.length) // self.period + 1
        return first * N, max(first, end) * N

    def slots(self, size: int, N: int) -> int:
        """Room for every unit that ``size`` steps can hold."""
        return (size // self.period + 2) * N

    def transitions(self, units: Tensor, N: int) -> Tensor:
        """Numbers of the transitions of units, one unit after the other, ``[units · length]``."""
        if self.length == 1:
            return units
        firsts = units // N * (self.period * N) + units % N
        return (firsts[:, None] + torch.arange(self.length, device=units.device) * N).flatten()


def newest(stored: int, k: int, K: int, eta: float, cmin: int) -> int:
    """How many of the ``stored`` newest transitions batch k = 1 … K is drawn from (ERE, arXiv 1906.04009).

    c_k = max(⌊stored · η^(1000 k / K)⌋, cmin), at most all of them; η = 1 means all of them.
    """
    if eta == 1:
        return stored
    return min(max(int(stored * eta ** (1000 * k / K)), cmin), stored)


def fate(numbers: Tensor, lot: int) -> Tensor:
    """A number in [0, 1) for each of ``numbers``, uniform over them and the same whenever it is asked for again.

    The bits are mixed as in splitmix64; products wrap around.
    """
    x = numbers * -0x61C8864680B583EB + lot * 0x5851F42D4C957F2D % 2**62
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
        x = (x ^ (x >> shift & (1 << 64 - shift) - 1)) * factor
    return (x >> 11 & (1 << 53) - 1).double() / 2**53


def linear_to_one(start: float, done: int, over: int) -> float:
    """A schedule from ``start`` to 1 in ``over`` steps, of which so many are done; constant if ``over`` is 0."""
    return start + (1 - start) * min(done / over, 1) if over else start


def uniform(first: int, end: int, count: int, generator: torch.Generator) -> Tensor:
    """Numbers of units from ``first`` on, ``[count]``, with replacement."""
    return torch.randint(first, end, (count,), generator=generator)


class Prioritized:
    """Numbers of units in proportion to p_i = (|δ_i| + ε)^α (arXiv 1511.05952).

    It follows a ring at a distance: ``follow`` gives all units that came since the last call the largest |δ| that was
    ever seen, and those that were written over none. A unit lies in the slot that is its number modulo ``slots``.
    """

    def __init__(self, slots: int, epsilon: float, alpha: float, default_error: float | None) -> None:
        self.slots = slots
        self.epsilon = epsilon
        self.alpha = alpha
        self.largest: float = 1.0 if default_error is None else default_error
        self.seen = False  # the default counts until the first error is seen
        self.oldest = self.end = 0
        self.errors = np.zeros(slots, np.float32)
        self._tree = SumTree(slots)
        self._least: tuple[int, float] | None = None  # a slot of the smallest positive priority, and that priority

    def follow(self, oldest: int, end: int) -> None:
        """The ring now holds the units ``oldest`` … ``end`` − 1."""
        if (oldest, end) == (self.oldest, self.end):
            return
        self._set(np.arange(self.oldest, min(self.end, oldest)) % self.slots, 0.0)
        new = np.arange(max(self.end, oldest), end) % self.slots
        self.errors[new] = self.largest
        self._set(new, self._priorities(new))
        self.oldest, self.end = oldest, end

    def draw(self, first: int, count: int, generator: torch.Generator) -> Ids:
        """Numbers from ``first`` on, ``[count]``, with replacement."""
        start, mass = 0.0, self._tree.total
        if first > self.oldest:  # the window may reach over the end of the slots: sums are taken modulo the total
            start = self._tree.prefix(first % self.slots)
            mass = (self._tree.prefix(self.end % self.slots) - start) % mass if mass else mass
        if mass <= 0:  # nothing but errors of exactly 0, and no ε
            return uniform(first, self.end, count, generator).numpy()
        u = torch.rand(count, dtype=torch.float64, generator=generator).numpy()
        x = start + u * mass
        slots = self._tree.query(np.where(x < self._tree.total, x, x - self._tree.total))
        return self.oldest + (slots - self.oldest) % self.slots

    def weights(self, ids: Ids, beta: float) -> npt.NDArray[np.float64]:
        """w_i = (N P_i)^−β over the largest one of the ring, which is that of the smallest priority: (p_i / p)^−β."""
        if self.alpha == 0 or self._tree.total == 0:
            return np.ones(len(ids))
        smallest = self._smallest()
        return (np.maximum(self._tree.get(ids % self.slots), smallest) / smallest) ** -beta

    def update(self, ids: Ids, errors: npt.NDArray[np.float32]) -> None:
        """New |δ| for units ``[B]``; what has been written over since is passed over."""
        alive = ids >= self.oldest
        ids, errors = ids[alive] % self.slots, np.abs(errors[alive])
        if not len(ids):
            return
        self.largest = max(self.largest, float(errors.max())) if self.seen else float(errors.max())
        self.seen = True
        self.errors[ids] = errors
        self._set(ids, self._priorities(ids))

    def rescale(self, epsilon: float, alpha: float) -> None:
        """Another ε and α, for all that is stored."""
        self.epsilon, self.alpha = epsilon, alpha
        stored = np.arange(self.oldest, self.end) % self.slots
        self._set(stored, self._priorities(stored))

    def _priorities(self, slots: Ids) -> npt.NDArray[np.float64]:
        return (self.errors[slots].astype(np.float64) + self.epsilon) ** self.alpha

    def _set(self, slots: Ids, values: npt.ArrayLike) -> None:
        """Priorities into the tree; the smallest one is found again when it is asked for, if it may have gone."""
        if not len(slots):
            return
        self._tree.set(slots, values)
        if self._least is None or (slots == self._least[0]).any():
            self._least = None
            return
        values = self._tree.get(slots)
        values[values == 0] = np.inf
        i = int(values.argmin())
        if values[i] < self._least[1]:
            self._least = int(slots[i]), float(values[i])

    def _smallest(self) -> float:
        if self._least is None:
            leaves = self._tree.get(np.arange(self.slots))
            leaves[leaves == 0] = np.inf
            slot = int(leaves.argmin())
            self._least = slot, float(leaves[slot])
        return self._least[1]

    def get_state(self, oldest: int | None = None) -> dict[str, Any]:
        """Errors in time order, from ``oldest`` on if it is given; the tree follows from them."""
        oldest = self.oldest if oldest is None else oldest
        return {
            "errors": torch.from_numpy(self.errors[np.arange(oldest, self.end) % self.slots]),
            "oldest": oldest,
            "end": self.end,
            "largest": self.largest,
            "seen": self.seen,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Into new priorities, also with other ``slots``, as long as there is room."""
        self.oldest, self.end = state["oldest"], state["end"]
        self.largest, self.seen = state["largest"], state["seen"]
        stored = np.arange(self.oldest, self.end) % self.slots
        self.errors[stored] = state["errors"].numpy()
        self._set(stored, self._priorities(stored))
