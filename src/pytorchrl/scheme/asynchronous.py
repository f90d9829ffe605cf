"""Rounds in which each gradient is applied as it comes: nobody waits for anybody (A3C, Ape-X)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from pytorchrl.scheme.crew import Task
from pytorchrl.scheme.distributed import Batch, Distributed
from pytorchrl.scheme.fleet import Played

# Collectors rest while so many units' worth of updates are due.
MOST_DUE = 4


class Asynchronous(Distributed):
    """Gradient workers go from batch to batch, each on its own; those of a replay share it."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        groups = self.layout.groups
        self._batches: list[Iterator[Batch] | None] = [None] * groups
        self._learning: list[list[Played]] = [[] for _ in range(groups)]
        self._computing = [False] * groups
        self._resting: list[int] = []

    def _advance(self) -> None:
        """Take up what happens next, until a unit is stored."""
        self._start_collectors()
        while True:
            for g in range(self.layout.groups):
                self._go_on(g)
            if self._env_steps:
                return
            self._take(*self._event())

    def _go_on(self, g: int) -> None:
        """Give gradient worker ``g`` its next batch, if there is one."""
        if self._computing[g]:
            return
        if self.replay:
            self._fill_replay()
        batch = self._next_batch(g) or self._first_batch(g)
        if batch is not None:
            self._computing[g] = True
            self.crew.give(self._gradient_task(g, batch))

    def _first_batch(self, g: int) -> Batch | None:
        """The first batch of the next stage of group ``g``, if there is something to learn from."""
        learned, self._learning[g] = self._learning[g], []
        if learned:
            self._normalize(learned)
            if not self.layout.collection_asynchronous:
                for played in learned:
                    self._send_out(played.unit.worker)
        if self.replay:
            if self.steps < self.algorithm.start_steps or self.due < (self.algorithm.update_every or 1):
                return None
            self.due -= self.algorithm.update_every or 1
            self._batches[g] = self._generate(self.storages[0])
        else:
            needed = 1 if self.layout.collection_asynchronous else self.layout.collectors
            if len(self._ready[g]) < needed:
                return None
            taken = sorted((self._ready[g].popleft() for _ in range(needed)), key=lambda played: played.unit.worker)
            self._store([taken], first=g)
            self._learning[g] = taken
            if self.layout.collection_asynchronous:
                self._send_out(taken[0].unit.worker)
            self.storages[g].before_gradients()
            self._batches[g] = self._generate(self.storages[g])
        return self._next_batch(g)

    def _next_batch(self, g: int) -> Batch | None:
        """The next batch of the stage that group ``g`` is at; None, and no stage, if there is none."""
        stage = self._batches[g]
        batch = None if stage is None else next(stage, None)
        if batch is None:
            self._batches[g] = None
        return batch

    def _fill_replay(self) -> None:
        """Everything that came goes into the replay; its collectors go on unless the learner is far behind."""
        needed = 1 if self.layout.collection_asynchronous else self.fleet.size
        while sum(map(len, self._ready)) >= needed:
            taken = sorted((ready.popleft() for ready in self._ready for _ in range(len(ready))), key=_worker)
            groups = [[played] for played in taken] if self.layout.collection_asynchronous else [taken]
            for group in groups:
                self._store([group])
                self._normalize(group)
                self._resting += [played.unit.worker for played in group]
        if self.steps < self.algorithm.start_steps:
            self.due = 0
        # Whatever the size of a unit, there must be enough to learn from.
        if self.due <= max(MOST_DUE * self.unit_steps, self.algorithm.update_every or 1):
            resting, self._resting = self._resting, []
            for worker in resting:
                self._send_out(worker)

    def _take(self, task: Task, value: Any) -> None:
        """A unit waits until it is stored; a gradient is applied."""
        if task.kind == "collect":
            super()._take(task, value)
            return
        g, version, batch = task.about
        gradients, info = value
        storage = self.storages[0 if self.replay else g]
        self._infos.append(storage.after_gradients(batch, info))
        self._asynchronies.append(self.updates - version)
        self._computing[g] = False
        if self.algorithm.is_done_with_data(info):
            self._batches[g] = None
        else:
            self._apply(gradients)

    def settle(self) -> None:
        """Finish what gradient workers are at, so that nothing is half learned; collectors go on."""
        arrived: deque[tuple[Task, Any]] = deque()
        while any(self._computing) or any(batches is not None for batches in self._batches):
            task, value = self._event()
            if task.kind == "collect":
                arrived.append((task, value))
                continue
            self._take(task, value)
            g = task.about[0]
            batch = self._next_batch(g)
            if batch is not None:
                self._computing[g] = True
                self.crew.give(self._gradient_task(g, batch))
        self._inbox = arrived + self._inbox


def _worker(played: Played) -> int:
    return played.unit.worker
