"""Rows that only few transitions have: the last successors of episodes, which are nobody's next observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.tree import Tree


class Aside:
    """A log of rows by the numbers of their transitions, which only grow; old entries go out at the front.

    When the log is full, entries of transitions that are no longer stored make room, or its length doubles: a row is
    moved once or twice in its life.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.ids = torch.empty(0, dtype=torch.int64, device=device)
        self.count = 0
        self.rows: dict[str, Tree] = {}

    def append(self, ids: Tensor, rows: Mapping[str, Tree], oldest: int) -> None:
        """Keep ``rows`` for the transitions ``ids`` ``[K]``; what is older than ``oldest`` may go."""
        if not len(ids):
            return
        if self.count + len(ids) > len(self.ids):
            self._make_room(len(ids), rows, oldest)
        end = self.count + len(ids)
        self.ids[self.count : end] = ids
        for key, value in rows.items():
            tree.copy_into(self.rows[key], slice(self.count, end), value)
        self.count = end

    def _make_room(self, needed: int, rows: Mapping[str, Tree], oldest: int) -> None:
        first = int(torch.searchsorted(self.ids[: self.count], oldest))
        ids, live = self.ids[first : self.count], self.count - first
        capacity = max(2 * (live + needed), 16)
        kept = {key: tree.index(value, slice(first, self.count)) for key, value in self.rows.items()}
        self.ids = torch.empty(capacity, dtype=torch.int64, device=self.device)
        self.ids[:live] = ids
        self.rows = {
            key: tree.allocate(tree.index(value, 0), capacity, device=self.device) for key, value in rows.items()
        }
        for key, value in kept.items():
            tree.copy_into(self.rows[key], slice(0, live), value)
        self.count = live

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Which of ``ids`` ``[B]`` have rows here, and where: two lists of places, in ``ids`` and in ``rows``."""
        if not self.count:
            return ids[:0], ids[:0]
        places = torch.searchsorted(self.ids[: self.count], ids).clamp_(max=self.count - 1)
        found = (self.ids[places] == ids).nonzero().flatten()
        return found, places[found]

    def get(self, key: str, ids: Tensor) -> Tree:
        """The rows of ``ids``, all of which are here."""
        return tree.index(self.rows[key], torch.searchsorted(self.ids[: self.count], ids))

    def get_state(self, oldest: int) -> dict[str, Any]:
        first = int(torch.searchsorted(self.ids[: self.count], oldest)) if self.count else 0
        live = slice(first, self.count)
        rows = {key: tree.copy(tree.index(value, live), "cpu") for key, value in self.rows.items()}
        return {"ids": self.ids[live].cpu().clone(), "rows": rows}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.ids = state["ids"].to(self.device, copy=True)
        self.rows = {key: tree.copy(value, self.device) for key, value in state["rows"].items()}
        self.count = len(self.ids)
