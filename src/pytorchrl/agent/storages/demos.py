"""Demonstrations in memory: how they are drawn, and found in what environments do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.keys import ACT, OBS, REW
from pytorchrl.tree import Tree

# A demo in memory: OBS, ACT and REW as numpy arrays [L, …] (OBS perhaps a dict of them), and these.
Demo = dict[str, Any]
ID, LENGTH, TOTAL, MAX_VALUE = "ID", "DemoLength", "TotalReward", "MaxValue"

# Open episodes that grow longer than this are not followed to their end: they would take too much memory.
LONGEST_EPISODE = 20_000


def value_probabilities(max_values: npt.ArrayLike, alpha: float) -> npt.NDArray[np.float64]:
    """P(i) = p_i^α / Σ_j p_j^α with p_i = MaxValue_i − min(0, min_j MaxValue_j); uniform if all p are 0.

    Powers are taken in log space, relative to the largest p, so that none overflows.
    """
    p = np.asarray(max_values, np.float64)
    p = p - min(0.0, p.min())
    if alpha == 0 or p.max() == 0:
        return np.full(len(p), 1 / len(p))
    with np.errstate(divide="ignore"):
        weights = np.exp(alpha * (np.log(p) - np.log(p.max())))
    share: npt.NDArray[np.float64] = weights / weights.sum()
    return share


def draw_value(demos: list[Demo], alpha: float, u: float) -> Demo:
    """The value demo at share ``u`` of the probabilities."""
    shares = value_probabilities([demo[MAX_VALUE] for demo in demos], alpha).cumsum()
    return demos[int(np.searchsorted(shares, u * shares[-1], side="right"))]


def make_demo(fields: Mapping[str, Any], dtypes: Mapping[str, Any], number: int) -> Demo:
    """A demo of OBS, ACT and REW, as copies in the given number types."""
    arrays: dict[str, Any] = {
        key: tree.tree_map(lambda part, key=key: part.astype(dtypes[key]), value)  # type: ignore[misc]
        for key, value in fields.items()
    }
    total = float(arrays[REW].sum(dtype=np.float64))
    return arrays | {ID: number, LENGTH: len(arrays[REW]), TOTAL: total}


def in_stored_types(demo: Demo, data: Mapping[str, Tree]) -> Demo:
    """The demo with observations and actions in the number types that a storage has them in."""

    def converted(part: Any, column: Tensor) -> Any:
        return torch.from_numpy(part).to(column.dtype).numpy()

    return demo | {key: tree.tree_zip(converted, demo[key], data[key]) for key in (OBS, ACT) if key in data}


def earned(rewards: Tensor) -> tuple[int, float]:
    """(steps up to the last positive reward, or all if there is none; what they earned, summed in float64)."""
    numbers = rewards.flatten().double().cpu().numpy()
    positive = np.flatnonzero(numbers > 0)
    length = int(positive[-1]) + 1 if len(positive) else len(numbers)
    return length, float(numbers[:length].sum())


def weakest(demos: list[Demo], first: int, last: int) -> int:
    """Which of ``demos[first:last]`` earned the least, of equals the longest."""
    return min(range(first, last), key=lambda i: (demos[i][TOTAL], -demos[i][LENGTH]))


class OpenEpisodes:
    """What every environment did since its episode began, in columns ``[T, N, …]`` that all of them share.

    An environment whose present steps are not followed (they are replayed, or too many) has no start.
    """

    def __init__(self) -> None:
        self.columns: dict[str, Tree] = {}
        self.starts: list[int | None] = []
        self.end = 0

    def begin_all(self) -> None:
        """Every environment begins a new episode."""
        self.starts, self.end = [0] * len(self.starts), 0

    def begin(self, env: int) -> None:
        self.starts[env] = self.end

    def leave(self, env: int) -> None:
        """Do not follow the environment until it begins again."""
        self.starts[env] = None

    def append(self, step: Mapping[str, Tree]) -> None:
        """One step ``[N, …]`` of every environment."""
        if not self.columns:
            self.columns = {key: tree.allocate(rows, 256, device=_device(rows)) for key, rows in step.items()}
            self.starts = [0] * len(tree.first_leaf(step[REW]))
        elif self.end == len(tree.first_leaf(self.columns[REW])):
            self._make_room()
        for key, rows in step.items():
            tree.copy_into(self.columns[key], self.end, rows)
        self.end += 1

    def episode(self, env: int) -> dict[str, Tree] | None:
        """Views of the environment's open episode, ``[L, …]``; None if it is not followed."""
        start = self.starts[env]
        if start is None:
            return None
        return {key: tree.tree_map(lambda c: c[start : self.end, env], column) for key, column in self.columns.items()}

    def _first(self) -> int:
        return min((start for start in self.starts if start is not None), default=self.end)

    def _make_room(self) -> None:
        """Forget what belongs to no open episode; twice the room if that is less than half."""
        self.starts = [None if s is None or self.end - s >= LONGEST_EPISODE else s for s in self.starts]
        first = self._first()
        kept = self.end - first
        room = self.end if 2 * kept <= self.end else 2 * self.end
        for key, column in self.columns.items():
            old = tree.index(column, slice(first, self.end))
            self.columns[key] = tree.allocate(tree.index(column, 0), room, device=_device(column))
            tree.copy_into(self.columns[key], slice(0, kept), old)
        self.starts = [None if s is None else s - first for s in self.starts]
        self.end = kept

    def get_state(self) -> dict[str, Any]:
        first = self._first()
        columns = {key: tree.index(column, slice(first, self.end)) for key, column in self.columns.items()}
        return {
            "columns": {key: tree.copy(column, "cpu") for key, column in columns.items()},
            "starts": [None if s is None else s - first for s in self.starts],
        }

    def set_state(self, state: Mapping[str, Any], device: torch.device) -> None:
        self.columns, self.starts, self.end = {}, list(state["starts"]), 0
        if state["columns"]:
            self.end = len(tree.first_leaf(state["columns"][REW]))
            for key, column in state["columns"].items():
                example = tree.tree_map(lambda c: c.new_zeros(c.shape[1:]), column)
                self.columns[key] = tree.allocate(example, max(256, 2 * self.end), device=device)
                tree.copy_into(self.columns[key], slice(0, self.end), column)


def _device(rows: Tree) -> torch.device:
    return tree.first_leaf(rows).device
