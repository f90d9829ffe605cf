"""The far side of a pool: makes a worker, calls it, and turns what it raises into plain text."""

from __future__ import annotations

import signal
import socket
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from pytorchrl import errors
from pytorchrl.errors import RLError
from pytorchrl.scheme.packing import pack, unpack


class Failure(NamedTuple):
    """What a worker raised, in plain text: exceptions themselves may not survive the trip."""

    kind: str
    args: tuple[str, ...]
    text: str


class RemoteError(Exception):
    """What was raised in a worker, as text: its own traceback."""


class Host:
    """Holds one worker object; it is made at the first call, so that its constructor's faults are told like others.

    Parameters
        make: makes the worker.
        compress: whether its replies are compressed.
    """

    def __init__(self, make: Callable[[], Any], compress: bool) -> None:
        self._make = make
        self._compress = compress
        self._worker: Any = None
        self._shared: tuple[int, Any] = (-1, None)

    def call(self, method: str, arguments: Any, number: int = -1, shared: Callable[[], Any] | None = None) -> Any:
        """The packed reply, or a ``Failure``. A shared value is opened once, whatever number of calls it comes with."""
        try:
            if self._worker is None:
                self._worker = self._make()
            named = {}
            if shared is not None:
                if self._shared[0] != number:
                    self._shared = (number, unpack(shared()))
                named["shared"] = self._shared[1]
            return pack(getattr(self._worker, method)(*unpack(arguments), **named), self._compress)
        except Exception as error:  # noqa: BLE001  whatever it was, the driver has to know
            return failure_of(error)

    def close(self) -> None:
        """Let the worker close what it opened."""
        if self._worker is not None:
            self._worker.close()


def failure_of(error: BaseException) -> Failure:
    """An exception as text, with the traceback of what caused it."""
    text = "".join(traceback.format_exception(error.__cause__ or error))
    if isinstance(error, RLError):
        return Failure(type(error).__name__, error.args, text)
    return Failure("RLError", (f"{type(error).__name__}: {error}", "Its own traceback stands above.", "", ""), text)


def error_of(failure: Failure, worker: str) -> RLError:
    """The error that a worker told of, under its own name and with its own traceback as the cause."""
    what, fix, who, when = failure.args
    kind: type[RLError] = getattr(errors, failure.kind)
    error = kind(what, fix, f"{who}, {worker}" if who else worker, when)
    error.__cause__ = RemoteError(f"in {worker}\n{failure.text}")
    return error


def main(descriptor: int, parent: int) -> None:  # pragma: no cover  a process of its own, seen from outside by tests
    """A worker process: serve the driver until it closes the connection, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from pytorchrl.agent.env.worker import leave_with
    from pytorchrl.scheme import wire

    leave_with(parent, main_thread=True)
    host = None
    with socket.socket(fileno=descriptor) as connection:
        try:
            (made, compress, threads), _ = wire.receive(connection)
            import torch

            torch.set_num_threads(threads)
            host = Host(lambda: cloudpickle.loads(made)(), compress)
            while True:
                (method, arguments, number), shared = wire.receive(connection)
                reply = host.call(method, arguments, number, None if shared is None else shared.open)
                if shared is not None:
                    shared.close()
                wire.send(connection, wire.Parcel(reply))
        except (EOFError, ConnectionError):
            pass
        except BaseException:  # told here: whoever forked this process leaves without a word
            traceback.print_exc()
            raise
    if host is not None:
        host.close()
