"""Transitions on their way from a collector to a storage elsewhere.

What follows a step is what the next one acts on, so it is sent once; where an episode ended, the true successor is sent
too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.base import Sample
from pytorchrl.keys import OBS, OBS2, REW, RHS, RHS2
from pytorchrl.tree import Tree

Columns = dict[str, Any]

# What is acted on, and what follows.
_PAIRS = ((OBS, OBS2), (RHS, RHS2))


class Recorder:
    """Stands where a storage does for a Collector: keeps every transition until it is sent."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    replaying = None

    def check_collection(self, envs: VecEnv, scales_rewards: bool) -> None:
        """What cannot be collected elsewhere was refused before."""

    def episodes_cut(self) -> None:
        """Nothing hangs on episodes here."""

    def insert_transition(self, sample: Sample) -> None:
        self.samples.append(sample)

    def next_inputs(self, obs: Tree, rhs: dict[str, Tensor], done: Tensor) -> tuple[Tree, dict[str, Tensor], Tensor]:
        return obs, rhs, done

    def take(self) -> Columns:
        """Everything that was kept, as ``[T, N, …]`` by key, and forget it."""
        samples, self.samples = self.samples, []
        following = [after for _, after in _PAIRS]
        columns: Columns = {key: tree.stack([s[key] for s in samples]) for key in samples[0] if key not in following}
        for now, after in _PAIRS:
            acted = [sample[now] for sample in samples[1:]]
            ends = [t for t, obs in enumerate(acted) if samples[t][after] is not obs] + [len(samples) - 1]
            columns[after] = {"ends": ends, "rows": tree.stack([samples[t][after] for t in ends])}
        return columns


def length_of(columns: Columns) -> int:
    """Steps of every environment."""
    return len(columns[REW])


def transitions(workers: Sequence[Columns]) -> Iterator[Sample]:
    """The transitions of workers that collected equally many steps, side by side, step by step.

    What follows a step and what the next one acts on are the same object wherever they are the same rows.
    """
    T = length_of(workers[0])
    plain = [key for key in workers[0] if key not in (OBS2, RHS2)]
    acted = {now: [_beside([columns[now] for columns in workers], t) for t in range(T)] for now, _ in _PAIRS}
    ends = {after: [_ends(columns[after]) for columns in workers] for _, after in _PAIRS}
    for t in range(T):
        sample = {
            key: acted[key][t] if key in acted else _beside([columns[key] for columns in workers], t) for key in plain
        }
        for now, after in _PAIRS:
            if any(t in found for found in ends[after]):
                rows = [
                    found[t] if t in found else tree.index(columns[now], t + 1)
                    for found, columns in zip(ends[after], workers, strict=True)
                ]
                sample[after] = rows[0] if len(rows) == 1 else tree.concatenate(rows)
            else:
                sample[after] = acted[now][t + 1]
        yield sample


def _ends(following: Any) -> dict[int, Tree]:
    return {t: tree.index(following["rows"], k) for k, t in enumerate(following["ends"])}


def _beside(columns: list[Tree], t: int) -> Tree:
    rows = [tree.index(column, t) for column in columns]
    return rows[0] if len(rows) == 1 else tree.concatenate(rows)
