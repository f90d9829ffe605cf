"""Tasks on a pool, each done exactly once, whatever happens to the workers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytorchrl.errors import WorkerLostError
from pytorchrl.scheme.pool import Lost, Pool, Shared

# Seconds before a lost worker is started anew, doubling with each loss in a row.
FIRST_DELAY, LONGEST_DELAY = 0.1, 30.0
# A task whose worker dies so often is begun differently, and given up after twice as many.
SUSPICIOUS = 3
# How long one look at the pool takes, so that restarts come in time.
TICK = 0.2
# A task is overdue after so many times the longest of the last ones, but never before the floor.
PATIENCE, REMEMBERED = 20.0, 100


@dataclass(eq=False)
class Task:
    """Something to be done by worker ``i``, or by another one if that is no more.

    Parameters
        i: the worker.
        kind: the method that does it.
        arguments: called with (worker, attempt) when it is given out: what the method is called with.
        shared: a value of the pool that goes with it.
        about: whatever the giver wants to know when it is done.
    """

    i: int
    kind: str
    arguments: Callable[[int, int], tuple[Any, ...]]
    shared: Shared | None = None
    about: Any = None
    attempt: int = 0
    done_by: int = -1


class Crew:
    """The workers of a pool under supervision: lost ones are replaced, and what they were at is done again.

    Parameters
        pool: the workers.
        max_restarts: per hour; a worker that is lost after that is not replaced, and others do its tasks.
        deadline: the least number of seconds after which a task is overdue; 0 waits for ever.
    """

    def __init__(self, pool: Pool, max_restarts: int, deadline: float) -> None:
        self.pool = pool
        self.max_restarts = max_restarts
        self.deadline = deadline
        self.losses = 0
        self.running: dict[int, Task] = {}
        self.waiting: deque[Task] = deque()
        self.alive = set(range(pool.size))
        self._births: dict[int, int] = {}
        self._settled: set[int] = set()
        self._restart_at: dict[int, float] = {}
        self._delays: dict[int, float] = {}
        self._restarts: deque[float] = deque()
        self._started: dict[int, float] = {}
        self._durations: dict[str, deque[float]] = {}

    def give(self, task: Task) -> None:
        """Have a task done."""
        self.waiting.append(task)
        self._hand_out()

    @property
    def busy(self) -> bool:
        """Whether anything is still to be done."""
        return bool(self.running or self.waiting)

    def incarnation(self, i: int) -> tuple[int, int]:
        """Worker ``i`` and how often it was lost: what one incarnation knew, the next one does not."""
        return i, self._births.get(i, 0)

    def next(self) -> tuple[Task, Any]:
        """The next task that is done, by the worker that ``task.done_by`` says, and what came of it; waits for it."""
        while self.busy:
            self._hand_out()
            found = self.pool.wait_any(TICK)
            if isinstance(found, Lost):
                self._replace(found)
            elif found is not None:
                task = self.running.pop(found.i)
                took = time.monotonic() - self._started[found.i]
                if found.i in self._settled:  # a first task has imports and constructors in it
                    self._durations.setdefault(task.kind, deque(maxlen=REMEMBERED)).append(took)
                self._settled.add(found.i)
                self._delays.pop(found.i, None)
                task.done_by = found.i
                return task, found.value
        raise RuntimeError("nothing is being done")

    def do(self, tasks: list[Task]) -> list[Any]:
        """What came of each task, in their order."""
        for task in tasks:
            self.give(task)
        done: dict[int, Any] = {}
        while len(done) < len(tasks):
            task, value = self.next()
            done[id(task)] = value
        return [done[id(task)] for task in tasks]

    def close(self) -> None:
        """End every worker."""
        self.waiting.clear()
        self.running.clear()
        self.pool.close()

    def _hand_out(self) -> None:
        now = time.monotonic()
        for i in [i for i, moment in self._restart_at.items() if moment <= now]:
            del self._restart_at[i]
            self.pool.restart(i)
        kept: deque[Task] = deque()
        for task in self.waiting:
            i = task.i if task.i in self.alive else self._substitute()
            if i in self.running or i in self._restart_at or i not in self.alive:
                kept.append(task)
                continue
            self.running[i] = task
            self._started[i] = now
            deadline = self._deadline(task.kind)
            self.pool.submit(i, task.kind, *task.arguments(i, task.attempt), shared=task.shared, deadline=deadline)
        self.waiting = kept

    def _substitute(self) -> int:
        """A worker with nothing to do; -1 if there is none."""
        return next((i for i in sorted(self.alive) if i not in self.running and i not in self._restart_at), -1)

    def _deadline(self, kind: str) -> float:
        if self.deadline == 0:
            return float("inf")
        return max(self.deadline, PATIENCE * max(self._durations.get(kind, [0.0])))

    def _replace(self, lost: Lost) -> None:
        now = time.monotonic()
        self.losses += 1
        self._settled.discard(lost.i)
        self._births[lost.i] = self._births.get(lost.i, 0) + 1
        task = self.running.pop(lost.i, None)
        if task is not None:
            task.attempt += 1
            if task.attempt >= 2 * SUSPICIOUS:
                raise WorkerLostError(
                    f"'{task.kind}' lost its worker {task.attempt} times; at last: {lost.reason}",
                    "What it printed last stands above; an environment that crashes its process can do this.",
                    f"worker {lost.i}",
                )
            self.waiting.appendleft(task)
        while self._restarts and now - self._restarts[0] > 3600:
            self._restarts.popleft()
        if len(self._restarts) < self.max_restarts:
            self._restarts.append(now)
            delay = self._delays.get(lost.i, FIRST_DELAY)
            self._delays[lost.i] = min(2 * delay, LONGEST_DELAY)
            self._restart_at[lost.i] = now + delay
            return
        self.alive.discard(lost.i)
        if not self.alive:
            raise WorkerLostError(
                f"the last worker is gone ({lost.reason}), after {len(self._restarts)} restarts within an hour",
                "scheme.max_restarts allows more.",
            )
