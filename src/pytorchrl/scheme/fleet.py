"""The collectors of a scheme: who plays what, where each of them stands, and what has come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytorchrl.agent.env.vec_env import Episode
from pytorchrl.scheme.crew import SUSPICIOUS, Crew, Task
from pytorchrl.scheme.pool import Shared
from pytorchrl.scheme.transitions import Columns, length_of

# A branch of the run's seed tree that the seeds of environments are drawn from.
Start = tuple[Any, ...]


@dataclass
class Unit:
    """What a collector is to play: its next steps, with the weights of a version."""

    worker: int
    sequence: int
    version: int
    start: Start | None


@dataclass
class Played:
    """A unit that was played."""

    unit: Unit
    columns: Columns
    episodes: list[tuple[int, Episode]]
    state: Any

    @property
    def steps(self) -> int:
        return length_of(self.columns)


class Fleet:
    """Hands units to collectors and commits what they played, each unit once.

    A unit is a function of its number, the weights and the collector's state before it: a lost one is given out again,
    with the same three. Only what cannot be saved, or what has killed its worker several times, begins new episodes.

    Parameters
        crew: the workers; collector w is worker w.
        size: number of collectors.
        num_envs: environments of each.
        can_save: whether the environments' states can be saved.
    """

    def __init__(self, crew: Crew, size: int, num_envs: int, can_save: bool) -> None:
        self.crew = crew
        self.size = size
        self.num_envs = num_envs
        self.can_save = can_save
        self.sequences = [0] * size
        self.states: list[Any] = [None] * size
        self.starts: list[Start | None] = [("train_env",)] * size
        self.fresh_starts = 0  # units that could not be repeated as they were
        self._holders: list[Any] = [None] * size

    def give(self, worker: int, steps: int, before: int, version: int, weights: Shared) -> None:
        """Have a collector play its next unit; ``before`` steps were played by all of them."""
        start, state = self.starts[worker], self.states[worker]
        unit = Unit(worker, self.sequences[worker], version, start)

        def arguments(process: int, attempt: int) -> tuple[Any, ...]:
            begins, goes_on = start, None
            if attempt >= SUSPICIOUS or (attempt and start is None and not self.can_save):
                begins = ("retry", unit.sequence, attempt)
                self.fresh_starts += 1
            if attempt or begins is not None or self._holders[worker] != self.crew.incarnation(process):
                goes_on = state
            told = {"worker": worker, "sequence": unit.sequence, "steps": steps, "before": before}
            return ({**told, "start": begins, "state": goes_on},)

        self.crew.give(Task(worker, "collect", arguments, weights, about=unit))

    def received(self, task: Task, value: Mapping[str, Any]) -> Played:
        """What a collector sent; nothing is committed yet."""
        unit: Unit = task.about
        self._holders[unit.worker] = self.crew.incarnation(task.done_by)
        episodes = [(number, Episode(env, ret, length)) for number, env, ret, length in value["episodes"]]
        return Played(unit, value["columns"], episodes, value["state"])

    def commit(self, played: Played) -> None:
        """From now on the collector stands behind this unit."""
        worker = played.unit.worker
        self.sequences[worker] += 1
        self.states[worker] = played.state
        if self.starts[worker] == played.unit.start:  # else a barrier was set while it was played
            self.starts[worker] = None

    def barrier(self, number: int) -> None:
        """Every collector begins new episodes with its next unit."""
        self.starts = [("barrier", number)] * self.size

    def get_state(self) -> dict[str, Any]:
        return {
            "sequences": list(self.sequences),
            "states": list(self.states),
            "starts": [None if start is None else list(start) for start in self.starts],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.sequences, self.states = list(state["sequences"]), list(state["states"])
        self.starts = [None if start is None else tuple(start) for start in state["starts"]]
        self._holders = [None] * self.size
