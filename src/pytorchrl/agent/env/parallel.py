"""N environments in worker processes; the parent never waits longer than a deadline."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import Pipe
from typing import Any, NoReturn

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from pytorchrl import errors
from pytorchrl.agent.env import shared
from pytorchrl.agent.env.actions import ActionFormat
from pytorchrl.agent.env.backend import Step, given, usable_cores
from pytorchrl.agent.env.formats import Array, ObservationFormat, Rows
from pytorchrl.agent.env.serial import Maker
from pytorchrl.agent.env.worker import Failure, Start
from pytorchrl.errors import ConfigError, EnvError

# How often a silent worker is looked at, in milliseconds.
TICK = 200
# Seconds that environments have to close.
CLOSING = 10.0
# Not multiprocessing: it would import the user's main script again in every worker.
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from pytorchrl.agent.env.worker import main; main(*map(int, sys.argv[2:]))"
)


class RemoteError(Exception):
    """What an environment raised in its process, as text."""


@dataclass(eq=False)
class Worker:
    """A process and the environments that it steps."""

    number: int
    rows: slice
    process: subprocess.Popen[bytes]
    connection: Any
    poller: select.poll

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self.process.pid})"

    def kill(self) -> None:
        """End the process and whatever it started itself."""
        if not self.connection.closed:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.connection.close()


class AsyncEnvs:
    """The backend with processes: ``SerialEnvs`` in each, results in shared memory.

    Parameters
        makers: one per environment.
        name: what messages call them.
        workers: processes; by default one per core, at most one per environment.
        deadline: seconds that any call may take; 0 waits for ever.
    """

    def __init__(self, makers: Sequence[Maker], name: str, workers: int | None, deadline: float) -> None:
        if sys.platform == "win32":
            raise ConfigError("backend 'async' needs a POSIX system", "Use --backend sync.")
        self.name = name
        self.deadline = deadline or float("inf")
        count = len(makers)
        self._count = min(workers or usable_cores(), count)
        self._workers: list[Worker] = []
        self._finalizer = weakref.finalize(self, _kill_all, self._workers)
        memory = shared.create()
        try:
            self._at = shared.map_header(memory, self._count)
            bounds = np.linspace(0, count, self._count + 1).astype(int).tolist()
            for number, (first, last) in enumerate(pairwise(bounds)):
                self._at[number] = first
                self._start(number, slice(first, last), makers, memory)
            described = [cloudpickle.loads(reply) for reply in self._gather("constructor", self._workers)]
            self._check_spaces(described)
            observation_space, action_space, support = described[0]
            self._snapshot_support: str | None = support
            self.observations = ObservationFormat(observation_space)
            self.actions = ActionFormat(action_space)
            self._block = shared.map_block(memory, self._count, count, self.observations, self.actions)
            self._call("map")
        except BaseException:
            self._finalizer()
            raise
        finally:
            os.close(memory)

    def reset(self, seeds: Sequence[int | None]) -> Rows:
        self._call("reset", *((list(seeds[worker.rows]),) for worker in self._workers))
        return self._current()

    def reset_single(self, i: int) -> Rows:
        self._call("reset_single", *((i,) for _ in self._workers))
        return self._current()

    def step(self, actions: Array, active: Array | None) -> Step:
        block = self._block
        np.copyto(block.actions, actions.reshape(block.actions.shape), casting="unsafe")
        masks = [] if active is None else [(active[worker.rows],) for worker in self._workers]
        replies = self._call("step", *masks)
        observation = successor = self._current()
        if any(ended for ended, _ in replies):
            successor = [array.copy() for array in observation]
            for worker, (ended, _) in zip(self._workers, replies, strict=True):
                if ended:
                    for array, shown in zip(successor, block.successor, strict=True):
                        array[worker.rows] = shown[worker.rows]
        scores = {i: score for _, found in replies for i, score in found.items()}
        flags = (block.terminated.copy(), block.truncated.copy(), block.over.copy())
        return Step(observation, successor, block.rewards.copy(), *flags, scores)

    def snapshot_support(self) -> str | None:
        return self._snapshot_support

    def get_state(self) -> list[Any]:
        return [state for states in self._call("get_state") for state in states]

    def set_state(self, states: Sequence[Any]) -> Rows:
        self._call("set_state", *((states[worker.rows],) for worker in self._workers))
        return self._current()

    def close(self) -> None:
        """Ask every worker to close its environments, then end it."""
        if not self._finalizer.alive:
            return
        self.deadline = min(self.deadline, CLOSING)
        try:
            self._call("close")
            for worker in self._workers:
                with suppress(subprocess.TimeoutExpired):
                    worker.process.wait(1.0)
        finally:
            self._finalizer()

    def _current(self) -> Rows:
        return [array.copy() for array in self._block.observation]

    def _call(self, command: str, *arguments: tuple[Any, ...]) -> list[Any]:
        """What every worker replies to the command; each has its own arguments, if there are any."""
        if not self._finalizer.alive:
            raise EnvError(f"{command}: the environments are closed", who=self.name)
        try:
            for k, worker in enumerate(self._workers):
                self._send(worker, command, *(arguments[k] if arguments else ()))
            return self._gather(command, self._workers)
        except BaseException:  # an interrupt too: replies that nobody read would be taken for the next ones
            self._finalizer()
            raise

    def _send(self, worker: Worker, command: str, *arguments: Any) -> None:
        try:
            worker.connection.send((command, *arguments))
        except OSError:
            self._died(worker, command)

    def _gather(self, operation: str, workers: Sequence[Worker]) -> list[Any]:
        end = time.monotonic() + self.deadline
        replies: list[Any] = []
        for worker in workers:
            while not worker.poller.poll(TICK):
                for other in workers[len(replies) :]:
                    if other.process.poll() is not None and not other.poller.poll(0):
                        self._died(other, operation)
                if time.monotonic() > end:
                    self._fail(
                        worker,
                        operation,
                        f"has not answered within {self.deadline:g} s",
                        "VecEnv's deadline may be longer; 0 waits for ever.",
                    )
            try:
                reply = worker.connection.recv()
            except (EOFError, OSError):
                self._died(worker, operation)
            if isinstance(reply, Failure):
                self._raise(worker, reply)
            replies.append(reply)
        return replies

    def _start(self, number: int, rows: slice, makers: Sequence[Maker], memory: int) -> None:
        try:
            sent = cloudpickle.dumps(list(makers[rows]))
        except Exception as error:  # anything that a class of the user's may raise
            raise ConfigError(
                f"{self.name} cannot be sent to a process: {error}", "Use --backend sync, or a function without state."
            ) from error
        ours, theirs = Pipe()
        command = [sys.executable, "-c", PROGRAM, json.dumps(sys.path), str(theirs.fileno()), str(memory)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": "1", **os.environ},
            pass_fds=(theirs.fileno(), memory),
            start_new_session=True,  # signals of the terminal are the parent's business
        )
        theirs.close()
        poller = select.poll()
        poller.register(ours.fileno(), select.POLLIN)
        worker = Worker(number, rows, process, ours, poller)
        self._workers.append(worker)
        main_thread = threading.current_thread() is threading.main_thread()
        start = Start(self.name, sent, number, self._count, rows.start, len(makers), os.getpid(), main_thread)
        try:
            ours.send(start)
        except OSError:
            self._died(worker, "start")

    def _check_spaces(self, described: Sequence[Any]) -> None:
        for worker, (observation_space, action_space, _) in zip(self._workers, described, strict=True):
            if (observation_space, action_space) != described[0][:2]:
                raise ConfigError(
                    f"environment {worker.rows.start} ({self.name}) has other spaces than environment 0:"
                    f" {observation_space}, {action_space}"
                )

    def _raise(self, worker: Worker, failure: Failure) -> NoReturn:
        """The error that a worker told of, under its own name; the environment's traceback hangs below."""
        what, fix, who, when = failure.args
        cause = RemoteError(failure.cause)
        cause.__cause__ = RemoteError(f"in {worker}\n{failure.text}")
        self._stop(worker, hopeless=False)
        kind: type[errors.RLError] = getattr(errors, failure.kind)
        raise kind(what, fix, f"{who}, {worker}" if who else str(worker), when) from cause

    def _died(self, worker: Worker, operation: str) -> NoReturn:
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(5.0)
        code = worker.process.poll()
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"signal {-code}, {signal.Signals(-code).name}"
        self._fail(worker, operation, f"its process died ({how})", "What it wrote last stands above.")

    def _fail(self, worker: Worker, operation: str, what: str, fix: str) -> NoReturn:
        i = int(self._at[worker.number])
        action = self.actions.convert(self._block.actions[i : i + 1])[0] if operation == "step" else None
        self._stop(worker, hopeless=True)
        raise EnvError(f"{operation}{given(action)}: {what}", fix, f"environment {i} ({self.name}), {worker}")

    def _stop(self, culprit: Worker, hopeless: bool) -> None:
        """End everything; workers that can still be spoken to close their environments first."""
        end = time.monotonic() + min(self.deadline, CLOSING)
        if hopeless:
            culprit.kill()
        others = [worker for worker in self._workers if worker is not culprit or not hopeless]
        for worker in others:
            with suppress(OSError):
                worker.connection.send(("close",))
        for worker in others:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(end - time.monotonic(), 0.0))
        self._finalizer()


def _kill_all(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.kill()
