"""Pools: the same workers in this process, in processes of this machine, or on a Ray cluster.

The only file that imports Ray, and only once a Ray pool is made.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import cloudpickle  # type: ignore[import-untyped]

from pytorchrl.errors import ConfigError, RLError
from pytorchrl.scheme.host import Failure, Host, error_of
from pytorchrl.scheme.packing import pack, unpack

# Seconds that a worker has for its first call: imports, constructors, first resets.
START = 300.0
# Seconds that workers have to close what they opened.
CLOSING = 5.0


class Place(NamedTuple):
    """One worker of a pool: what messages call it, what it needs, whether its replies are compressed."""

    name: str
    resources: Mapping[str, float] = {}
    compress: bool = False


class Shared(NamedTuple):
    """A value that was put into a pool once, for any number of calls."""

    number: int
    value: Any


class Reply(NamedTuple):
    """Worker ``i`` has done what it was given."""

    i: int
    value: Any


class Lost(NamedTuple):
    """Worker ``i`` is gone, and with it what it was given."""

    i: int
    reason: str


class Pool(Protocol):
    """``size`` workers, each of which does one thing at a time.

    What a worker raises is raised by ``wait_any``, under its own name and with its own traceback as the cause; the
    worker lives on.
    """

    engine: str
    size: int

    def submit(self, i: int, method: str, *arguments: Any, shared: Shared | None = None, deadline: float) -> None:
        """Have idle worker ``i`` call a method; it is lost if it has not replied within ``deadline`` seconds.

        A first call has ``START`` seconds more.
        """
        ...

    def wait_any(self, timeout: float) -> Reply | Lost | None:
        """The next thing that happened to a worker, or None if nothing did within ``timeout`` seconds."""
        ...

    def put(self, value: Any) -> Shared:
        """Send a value once, however many calls it is used in."""
        ...

    def restart(self, i: int) -> None:
        """End worker ``i``, whatever it does, and start it anew."""
        ...

    def close(self) -> None:
        """End every worker; may be called more than once."""
        ...

    def pid(self, i: int) -> int | None:
        """The process of worker ``i`` if it is known, for messages and watchdogs."""
        ...


class LocalPool:
    """Workers in this process, one call after the other: for tests, and to look at a scheme with a debugger."""

    engine = "local"

    def __init__(self, make: Callable[[], Any], places: Sequence[Place]) -> None:
        self.size = len(places)
        self._make = make
        self._places = places
        self._hosts: dict[int, Host] = {}
        self._waiting: deque[tuple[int, str, Any, Shared | None]] = deque()
        self._count = 0

    def submit(self, i: int, method: str, *arguments: Any, shared: Shared | None = None, deadline: float) -> None:
        self._waiting.append((i, method, pack(arguments), shared))

    def wait_any(self, timeout: float) -> Reply | Lost | None:
        if not self._waiting:
            return None
        i, method, arguments, shared = self._waiting.popleft()
        host = self._hosts.setdefault(i, Host(self._make, self._places[i].compress))
        value = None if shared is None else (lambda: shared.value)
        reply = host.call(method, _copied(arguments), -1 if shared is None else shared.number, value)
        if isinstance(reply, Failure):
            raise error_of(reply, self._places[i].name)
        return Reply(i, unpack(_copied(reply)))

    def put(self, value: Any) -> Shared:
        self._count += 1
        return Shared(self._count, _copied(pack(value)))

    def restart(self, i: int) -> None:
        if i in self._hosts:
            self._hosts.pop(i).close()
        self._waiting = deque(item for item in self._waiting if item[0] != i)

    def close(self) -> None:
        for i in list(self._hosts):
            self.restart(i)

    def pid(self, i: int) -> int | None:
        return None


def _copied(packed: Any) -> Any:
    """As a worker elsewhere would see it: nothing is shared."""
    return cloudpickle.loads(cloudpickle.dumps(packed))


class RayPool:
    """Workers as Ray actors.

    Parameters
        make: makes a worker.
        places: one per worker.
        address: of the cluster to join; None starts one on this machine, with just these workers' resources.
    """

    engine = "ray"

    def __init__(self, make: Callable[[], Any], places: Sequence[Place], address: str | None = None) -> None:
        if address is None and "ray" not in sys.modules:
            # Without a token, whoever reaches one of Ray's ports may run what he likes. It is read at the import.
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError:
            raise ConfigError("engine 'ray' needs Ray", "Install it with: pip install 'pytorchrl[ray]'") from None
        self.size = len(places)
        self._ray = ray
        self._places = places
        self._make = cloudpickle.dumps(make)
        self._needs = [{"CPU": 1.0, **_ray_names(place.resources)} for place in places]
        self._started = not ray.is_initialized()
        if self._started:
            self._join(address)
        self._actors: dict[int, Any] = {}
        self._pids: dict[int, int] = {}
        self._near: dict[int, bool] = {}  # whether its process is on this machine
        self._node = ray.get_runtime_context().get_node_id()
        self._running: dict[Any, int] = {}
        self._deadlines: dict[int, float] = {}
        self._lost: deque[Lost] = deque()
        try:
            self._refuse_too_much()
        except ConfigError:
            self.close()
            raise

    def _join(self, address: str | None) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address is not None:
            self._ray.init(address=address, **options)
            return
        needed = {name: sum(need.get(name, 0.0) for need in self._needs) for name in ("CPU", "GPU")}
        self._ray.init(
            address="local",
            include_dashboard=False,
            num_cpus=max(int(-(-needed["CPU"] // 1)), 1),
            num_gpus=int(-(-needed["GPU"] // 1)) or None,
            object_store_memory=512 * 1024**2,
            **options,
        )

    def _refuse_too_much(self) -> None:
        """An actor that asks for more than there is would wait for ever, in silence."""
        there = self._ray.cluster_resources()
        for name in sorted({name for need in self._needs for name in need}):
            asked = sum(need.get(name, 0.0) for need in self._needs)
            if asked > there.get(name, 0.0):
                raise ConfigError(
                    f"the workers need {asked:g} {name}, and the Ray cluster has {there.get(name, 0.0):g}",
                    "Use fewer workers, or lower col_workers_resources and grad_workers_resources.",
                )

    def submit(self, i: int, method: str, *arguments: Any, shared: Shared | None = None, deadline: float) -> None:
        if i not in self._actors:
            self._start(i)
        first = i not in self._pids
        number, value = (-1, None) if shared is None else shared
        call = self._actors[i].call.remote(method, pack(arguments), number, value)
        self._running[call] = i
        self._deadlines[i] = time.monotonic() + deadline + (START if first else 0.0)

    def wait_any(self, timeout: float) -> Reply | Lost | None:
        if self._lost:
            return self._lost.popleft()
        if not self._running:
            return None
        nearest = min(self._deadlines[i] for i in self._running.values()) - time.monotonic()
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=max(min(timeout, nearest), 0.0))
        if ready:
            i = self._running.pop(ready[0])
            try:
                self._pids[i], node, reply = self._ray.get(ready[0], timeout=START)
                self._near[i] = node == self._node
            except self._ray.exceptions.RayError as error:
                self._end(i)
                return Lost(i, f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
            if isinstance(reply, Failure):
                raise error_of(reply, f"{self._places[i].name} (pid {self._pids[i]})")
            return Reply(i, unpack(reply))
        for call, i in list(self._running.items()):
            if time.monotonic() >= self._deadlines[i]:
                del self._running[call]
                self._end(i)
                return Lost(i, "has not answered within its deadline")
        return None

    def put(self, value: Any) -> Shared:
        reference = self._ray.put(pack(value))
        # Inside a list a reference travels as it is; the worker fetches it when it needs it.
        return Shared(hash(reference), [reference])

    def restart(self, i: int) -> None:
        self._end(i)
        self._running = {call: worker for call, worker in self._running.items() if worker != i}
        self._start(i)

    def _start(self, i: int) -> None:
        need = dict(self._needs[i])
        actor = self._ray.remote(_RayHost).options(
            num_cpus=need.pop("CPU"), num_gpus=need.pop("GPU", 0), resources=need, max_restarts=0, max_task_retries=0
        )
        self._actors[i] = actor.remote(self._make, self._places[i].compress)

    def _end(self, i: int) -> None:
        actor = self._actors.pop(i, None)
        if actor is not None:
            self._ray.kill(actor)
        pid = self._pids.pop(i, None)
        if pid is not None and self._near[i]:  # a stopped process would outlive ray.kill
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        if self._ray.is_initialized():
            for i in list(self._actors):
                self._end(i)
            if self._started:
                self._ray.shutdown()
        self._running, self._started = {}, False

    def pid(self, i: int) -> int | None:
        return self._pids.get(i)


def _ray_names(resources: Mapping[str, float]) -> dict[str, float]:
    return {{"num_cpus": "CPU", "num_gpus": "GPU"}.get(name, name): amount for name, amount in resources.items()}


class _RayHost:
    """The actor: a host, and its process' id with every reply."""

    def __init__(self, make: bytes, compress: bool) -> None:
        import torch

        torch.set_num_threads(1)
        self._host = Host(lambda: cloudpickle.loads(make)(), compress)

    def call(self, method: str, arguments: Any, number: int, shared: Any) -> tuple[int, str, Any]:
        """(process, node, reply)."""
        ray = importlib.import_module("ray")

        def fetched() -> Any:
            return ray.get(shared[0], timeout=START)

        node = ray.get_runtime_context().get_node_id()
        return os.getpid(), node, self._host.call(method, arguments, number, None if shared is None else fetched)


def make_pool(engine: str, make: Callable[[], Any], places: Sequence[Place], address: str | None = None) -> Pool:
    """The pool of that engine."""
    if engine == "ray":
        return RayPool(make, places, address)
    if engine == "process":
        from pytorchrl.scheme.process_pool import ProcessPool

        return ProcessPool(make, places)
    if engine == "local":
        return LocalPool(make, places)
    raise RLError(f"no engine '{engine}'")
