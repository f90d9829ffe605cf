"""A process that steps some of the environments; its parent is ``parallel.AsyncEnvs``.

It imports no torch, takes no signal from the terminal, and leaves when its parent does.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from pytorchrl.agent.env import shared
from pytorchrl.agent.env.formats import Array
from pytorchrl.agent.env.serial import SerialEnvs
from pytorchrl.errors import RLError


class Start(NamedTuple):
    """What a worker is told first."""

    name: str
    makers: bytes
    worker: int
    workers: int
    first: int
    total: int
    parent: int
    main_thread: bool


class Failure(NamedTuple):
    """What went wrong, in plain text: exceptions themselves may not survive the trip."""

    kind: str
    args: tuple[str, ...]
    cause: str
    text: str


def main(connection_descriptor: int, memory: int) -> None:
    """Serve the parent until it says close, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection: Connection[Any, Any] = Connection(connection_descriptor)
    start: Start = connection.recv()
    leave_with(start.parent, start.main_thread)
    worker = None
    try:
        while True:
            try:
                if worker is None:
                    worker = _Worker(start, memory)
                    reply: Any = worker.describe()
                else:
                    command, *arguments = connection.recv()
                    reply = getattr(worker, command)(*arguments)
            except (EOFError, ConnectionError):
                return
            except BaseException as error:  # noqa: BLE001  whatever it was, the parent has to know
                reply = _failure(error, "" if worker is None else worker.place())
            connection.send(reply)
            if worker is None or worker.closed:
                return
    finally:
        connection.close()


class _Worker:
    """The commands of a worker, by name."""

    def __init__(self, start: Start, memory: int) -> None:
        self.start = start
        self.memory = memory
        self.closed = False
        self.at = shared.map_header(memory, start.workers)[start.worker : start.worker + 1]
        self.envs = SerialEnvs(cloudpickle.loads(start.makers), start.name, start.first, self.at)
        self.rows = slice(start.first, start.first + len(self.envs.envs))

    def describe(self) -> bytes:
        """The spaces, and whether the environments can be saved."""
        spaces = self.envs.observations.source, self.envs.actions.space
        return cloudpickle.dumps((*spaces, self.envs.snapshot_support()))  # type: ignore[no-any-return]

    def map(self) -> None:
        block = shared.map_block(
            self.memory, self.start.workers, self.start.total, self.envs.observations, self.envs.actions
        )
        self.block = block.part(self.rows)
        os.close(self.memory)

    def reset(self, seeds: Sequence[int | None]) -> None:
        if seeds[0] is not None:  # for environments that use the global streams
            random.seed(seeds[0])
            np.random.seed(seeds[0] % 2**32)
        self._show(self.envs.reset(seeds))

    def reset_single(self, i: int) -> None:
        if self.rows.start <= i < self.rows.stop:
            self._show(self.envs.reset_single(i - self.start.first))

    def step(self, active: Array | None = None) -> tuple[bool, dict[int, tuple[float, int]]]:
        """Whether an episode ended, and what the environments counted themselves."""
        block, step = self.block, self.envs.step(self.block.actions, active)
        block.rewards[:] = step.reward
        block.terminated[:], block.truncated[:], block.over[:] = step.terminated, step.truncated, step.over
        self._show(step.observation)
        if step.successor is step.observation:
            return False, {}
        for array, rows in zip(block.successor, step.successor, strict=True):
            array[:] = rows
        return True, {self.start.first + i: score for i, score in step.scores.items()}

    def get_state(self) -> list[Any]:
        return self.envs.get_state()

    def set_state(self, states: Sequence[Any]) -> None:
        self._show(self.envs.set_state(states))

    def close(self) -> None:
        self.closed = True
        self.envs.close()

    def place(self) -> str:
        return f"environment {int(self.at[0])} ({self.start.name})"

    def _show(self, rows: Sequence[Array]) -> None:
        for array, new in zip(self.block.observation, rows, strict=True):
            array[:] = new


def _failure(error: BaseException, place: str) -> Failure:
    cause = error.__cause__ or error
    text = "".join(traceback.format_exception(cause))
    described = f"{type(cause).__name__}: {cause}"
    if isinstance(error, RLError):
        return Failure(type(error).__name__, error.args, described, text)
    return Failure("EnvError", (f"its process raised {described}", "", place, ""), described, text)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends; that should be a main thread."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def leave_with(parent: int, main_thread: bool) -> None:
    """Die when the parent does, even inside an environment that never returns."""
    if main_thread:
        die_with_parent()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
