"""The three pools keep the same promises."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytorchrl import ConfigError, EnvError, RLError
from pytorchrl.scheme.pool import Lost, Place, Pool, Reply, make_pool

ENGINES = ["local", "process", pytest.param("ray", marks=(pytest.mark.ray, pytest.mark.slow))]


class Toy:
    """Says who it is, adds, keeps count, fails, hangs."""

    def __init__(self) -> None:
        self.calls = 0
        self.opened = 0

    def add(self, a: Any, b: Any) -> Any:
        self.calls += 1
        return {"sum": a + b, "calls": self.calls}

    def scale(self, factor: float, *, shared: Any) -> Any:
        result = shared["tensor"] * factor
        shared["tensor"].add_(0.0)  # what came may be written to
        return result

    def same(self, *, shared: Any) -> int:
        return id(shared)

    def fail(self) -> None:
        raise EnvError("the world broke", "Mend it.", "environment 3", "step 7") from ZeroDivisionError("inside")

    def bug(self) -> None:
        raise KeyError("nobody expected this")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        """Nothing is open."""


class Unmakeable:
    def __init__(self) -> None:
        raise EnvError("cannot be made")


@pytest.fixture(params=ENGINES)
def pool(request: pytest.FixtureRequest, warm: None) -> Iterator[Pool]:
    if request.param == "ray":
        request.getfixturevalue("cluster")
    made = make_pool(request.param, Toy, [Place("worker 0"), Place("worker 1", compress=True)])
    yield made
    made.close()


@pytest.fixture(params=ENGINES[1:])
def mortal_pool(request: pytest.FixtureRequest, warm: None) -> Iterator[Pool]:
    if request.param == "ray":
        request.getfixturevalue("cluster")
    made = make_pool(request.param, Toy, [Place("worker 0"), Place("worker 1")])
    yield made
    made.close()


def reply(pool: Pool, seconds: float = 30.0) -> Any:
    """The next thing that happens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = pool.wait_any(0.2)
        if found is not None:
            return found
    raise AssertionError("nothing happened")


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_replies(pool: Pool) -> None:
    """Tensors of all sizes arrive as they were, from workers that remember, at whoever asked."""
    big = torch.arange(100_000, dtype=torch.float64).view(100, 1000)
    small = torch.tensor(3, dtype=torch.int64)
    pool.submit(0, "add", big, 1, deadline=30)
    pool.submit(1, "add", small, small, deadline=30)
    found = {item.i: item.value for item in (reply(pool), reply(pool))}
    assert torch.equal(found[0]["sum"], big + 1)
    assert found[0]["sum"].dtype == torch.float64
    assert torch.equal(found[1]["sum"], torch.tensor(6))
    pool.submit(1, "add", big, big, deadline=30)
    again = reply(pool)
    assert torch.equal(again.value["sum"], 2 * big)
    assert again.value["calls"] == 2
    again.value["sum"].zero_()  # it is the caller's own
    assert pool.wait_any(0.0) is None


def test_a_shared_value_is_sent_once_and_is_the_callers_no_more(pool: Pool) -> None:
    tensor = torch.ones(50_000)
    shared = pool.put({"tensor": tensor, "name": "weights"})
    tensor.zero_()
    for i in (0, 1):
        pool.submit(i, "scale", 2.0, shared=shared, deadline=30)
        found = reply(pool)
        assert found.i == i
        assert found.value.sum() == 100_000
    identities = set()
    for _ in range(2):
        pool.submit(0, "same", shared=shared, deadline=30)
        identities.add(reply(pool).value)
    assert len(identities) == 1  # opened once, used twice


def test_exceptions_keep_their_name_and_their_traceback(pool: Pool) -> None:
    pool.submit(1, "fail", deadline=30)
    with pytest.raises(EnvError, match="the world broke") as caught:
        reply(pool)
    assert "environment 3, worker 1" in caught.value.who
    assert (caught.value.fix, caught.value.when) == ("Mend it.", "step 7")
    assert "ZeroDivisionError: inside" in str(caught.value.__cause__)
    pool.submit(1, "bug", deadline=30)
    with pytest.raises(RLError, match="KeyError: 'nobody expected this'") as bug:
        reply(pool)
    assert "in bug" in str(bug.value.__cause__)  # the line that raised
    pool.submit(1, "add", 1, 2, deadline=30)
    assert reply(pool).value["sum"] == 3  # it lives on


def test_what_a_constructor_raises_is_told_at_the_first_call(pool: Pool) -> None:
    broken = make_pool(pool.engine, Unmakeable, [Place("worker 0")])
    try:
        broken.submit(0, "add", 1, 1, deadline=30)
        with pytest.raises(EnvError, match="cannot be made"):
            reply(broken)
    finally:
        broken.close()


def test_a_restarted_worker_is_a_new_one(pool: Pool) -> None:
    pool.submit(0, "add", 1, 1, deadline=30)
    assert reply(pool).value["calls"] == 1
    pool.restart(0)
    pool.submit(0, "add", 1, 1, deadline=30)
    assert reply(pool).value["calls"] == 1


def test_a_killed_worker_is_noticed(mortal_pool: Pool) -> None:
    pool = mortal_pool
    pool.submit(1, "add", 1, 1, deadline=30)
    reply(pool)
    pool.submit(1, "sleep", 60.0, deadline=100)
    pid = pool.pid(1)
    assert pid
    os.kill(pid, signal.SIGKILL)
    start = time.monotonic()
    found = reply(pool)
    assert isinstance(found, Lost)
    assert found.i == 1
    assert time.monotonic() - start < 5
    pool.restart(1)
    pool.submit(1, "add", 2, 2, deadline=30)
    assert reply(pool) == Reply(1, {"sum": 4, "calls": 1})


def test_a_stopped_worker_is_lost_at_its_deadline_and_its_process_killed(mortal_pool: Pool) -> None:
    pool = mortal_pool
    pool.submit(0, "add", 1, 1, deadline=30)
    reply(pool)
    pid = pool.pid(0)
    assert pid
    os.kill(pid, signal.SIGSTOP)
    pool.submit(0, "add", 1, 1, deadline=0.5)
    start = time.monotonic()
    found = reply(pool)
    assert isinstance(found, Lost)
    assert "deadline" in found.reason
    assert 0.4 < time.monotonic() - start < 5
    while alive(pid):
        assert time.monotonic() - start < 10
        time.sleep(0.05)


def test_nothing_stays(warm: None) -> None:
    """No process, no descriptor, no memory: idle, busy and stopped workers."""
    before = set(Path("/proc/self/fd").iterdir()), set(Path("/dev/shm").iterdir())
    pool = make_pool("process", Toy, [Place(f"worker {i}") for i in range(3)])
    for i in range(3):
        pool.submit(i, "add", torch.ones(50_000), 1, deadline=30)
    for _ in range(3):
        reply(pool)
    shared = pool.put({"tensor": torch.ones(50_000)})
    pool.submit(0, "scale", 1.0, shared=shared, deadline=30)
    reply(pool)
    pids = [pool.pid(i) or 0 for i in range(3)]
    pool.submit(1, "sleep", 60.0, deadline=100)
    pool.submit(2, "add", 1, 1, deadline=100)
    os.kill(pids[2], signal.SIGSTOP)
    pool.close()
    pool.close()
    assert not any(alive(pid) for pid in pids)
    del shared, pool
    assert (set(Path("/proc/self/fd").iterdir()), set(Path("/dev/shm").iterdir())) == before


def test_what_cannot_be_sent_is_refused() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match="cannot be sent to a process"):
        make_pool("process", lambda: lock, [Place("worker 0")])


@pytest.mark.ray
def test_ray_says_what_a_cluster_lacks(cluster: None) -> None:
    """An actor that asks for more than there is would wait for ever."""
    with pytest.raises(ConfigError, match="need 2 GPU, and the Ray cluster has"):
        make_pool("ray", Toy, [Place("worker 0", {"num_gpus": 1}), Place("worker 1", {"num_gpus": 1})])
