"""Workers in processes of this machine, watched by their pipe and by the clock."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from pytorchrl.errors import ConfigError
from pytorchrl.scheme import wire
from pytorchrl.scheme.host import Failure, error_of
from pytorchrl.scheme.nursery import Nursery
from pytorchrl.scheme.packing import pack, unpack
from pytorchrl.scheme.pool import CLOSING, START, Lost, Place, Reply, Shared


@dataclass(eq=False)
class Worker:
    """A process and the connection to it."""

    pid: int
    nursery: Nursery
    connection: socket.socket
    replied: bool = False
    deadline: float | None = field(default=None)  # None while it has nothing to do

    def end(self, patience: float = 0.0) -> int | None:
        """Hang up, wait so long for the process to leave, kill it and whatever it started; its exit status."""
        self.connection.close()
        with suppress(OSError):  # if the nursery is gone, so are its workers
            status = self.nursery.bury(self.pid, patience) if patience else None
            if status is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(self.pid, signal.SIGKILL)
                status = self.nursery.bury(self.pid, CLOSING)
            return status
        return None


class ProcessPool:
    """Worker processes; arrays travel through shared memory that has no name, so that nothing can be left behind.

    Parameters
        make: makes a worker.
        places: one per worker.
    """

    engine = "process"

    def __init__(self, make: Callable[[], Any], places: Sequence[Place]) -> None:
        if sys.platform == "win32":
            raise ConfigError("engine 'process' needs a POSIX system", "Use --engine ray.")
        try:
            self._make = cloudpickle.dumps(make)
        except Exception as error:  # whatever a class of the user's may raise
            raise ConfigError(
                f"the agent cannot be sent to a process: {error}", "Make environments and parts in plain functions."
            ) from error
        self.size = len(places)
        self._places = places
        self._workers: dict[int, Worker] = {}
        self._lost: dict[int, str] = {}
        self._count = 0
        self._nursery = Nursery.enter()
        self._finalizer = weakref.finalize(self, _end_all, self._workers, self._nursery)

    def submit(self, i: int, method: str, *arguments: Any, shared: Shared | None = None, deadline: float) -> None:
        if i not in self._workers:
            self._start(i)
        worker = self._workers[i]
        worker.deadline = time.monotonic() + deadline + (0.0 if worker.replied else START)
        number, value = (-1, None) if shared is None else shared
        try:
            wire.send(worker.connection, wire.Parcel((method, pack(arguments), number)), value)
        except OSError as error:
            self._end(i, f"could not be reached ({error})")

    def wait_any(self, timeout: float) -> Reply | Lost | None:
        if self._lost:
            i = next(iter(self._lost))
            return Lost(i, self._lost.pop(i))
        busy = {worker.connection.fileno(): i for i, worker in self._workers.items() if worker.deadline is not None}
        if not busy:
            return None
        poller = select.poll()
        for descriptor in busy:
            poller.register(descriptor, select.POLLIN)
        nearest = min(worker.deadline for worker in self._workers.values() if worker.deadline is not None)
        for descriptor, _ in poller.poll(1000 * max(min(timeout, nearest - time.monotonic()), 0.0)):
            return self._received(busy[descriptor])
        for i in busy.values():
            if time.monotonic() >= (self._workers[i].deadline or 0.0):
                self._end(i, "has not answered within its deadline")
                return Lost(i, self._lost.pop(i))
        return None

    def _received(self, i: int) -> Reply | Lost:
        worker = self._workers[i]
        try:
            value, _ = wire.receive(worker.connection)
        except (EOFError, OSError):
            self._end(i, "died")
            return Lost(i, self._lost.pop(i))
        worker.deadline, worker.replied = None, True
        if isinstance(value, Failure):
            raise error_of(value, f"{self._places[i].name} (pid {worker.pid})")
        return Reply(i, unpack(value))

    def put(self, value: Any) -> Shared:
        self._count += 1
        return Shared(self._count, wire.Parcel(pack(value)))

    def restart(self, i: int) -> None:
        if i in self._workers:
            self._end(i, "restarted")
        self._lost.pop(i, None)
        self._start(i)

    def _start(self, i: int) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(START)
        with theirs:
            pid = self._nursery.start(theirs)
        self._workers[i] = Worker(pid, self._nursery, ours)
        with suppress(OSError):  # if it is gone already, the first call finds out
            wire.send(ours, wire.Parcel((self._make, self._places[i].compress, 1)))

    def _end(self, i: int, reason: str) -> None:
        """Worker ``i`` is no more; why, is told by ``wait_any``."""
        worker = self._workers.pop(i)
        status = worker.end(1.0 if reason == "died" else 0.0)
        if reason == "died" and status is not None:
            reason = f"died ({signal.Signals(-status).name if status < 0 else f'exit code {status}'})"
        self._lost[i] = f"pid {worker.pid} {reason}"

    def close(self) -> None:
        """Let idle workers close what they opened, and kill the others."""
        for worker in self._workers.values():
            if worker.deadline is None:
                worker.end(CLOSING)
        self._finalizer()

    def pid(self, i: int) -> int | None:
        return self._workers[i].pid if i in self._workers else None


def _end_all(workers: dict[int, Worker], nursery: Nursery) -> None:
    for worker in workers.values():
        worker.end()
    workers.clear()
    nursery.leave()
