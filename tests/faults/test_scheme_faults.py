"""Schemes under fire: stopped workers, a dead driver, signals; nothing changes, nothing stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.scheme.test_distributed import LAYOUTS, make, run, same, state_of
from tests.scheme.test_pools import alive

DRIVER = """
import json, sys, time
from tests.scheme.test_distributed import LAYOUTS, make
from pytorchrl.scheme.nursery import Nursery

if __name__ == "__main__":
    scheme = make("PPO", "process", **LAYOUTS["both"])
    scheme.step()
    pool = scheme.distributed.crew.pool
    print(json.dumps([Nursery.present.process.pid, *(pool.pid(i) for i in range(pool.size))]), flush=True)
    while True:
        scheme.step()
"""


def gone(pids: list[int], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_workers_leave_with_their_driver(tmp_path: Path) -> None:
    """SIGKILL of the driver: no worker, no nursery, no shared memory."""
    memory = set(Path("/dev/shm").iterdir())
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as driver:
        assert driver.stdout is not None
        pids = json.loads(driver.stdout.readline())
        assert len(pids) == 7
        assert all(alive(pid) for pid in pids)
        driver.kill()
    assert gone(pids, 10.0)
    assert set(Path("/dev/shm").iterdir()) == memory


def test_a_stopped_worker_is_replaced_at_its_deadline() -> None:
    scheme = make("PPO", "process", worker_deadline=1.0, **LAYOUTS["learners"])
    crew: Any = scheme.distributed.crew  # type: ignore[union-attr]
    with closing(scheme):
        scheme.step()
        pid = crew.pool.pid(1)
        os.kill(pid, signal.SIGSTOP)
        start = time.monotonic()
        scheme.step()
        assert time.monotonic() - start >= 0.9
        assert crew.losses == 1
        assert gone([pid], 5.0)
        scheme.step()
        found = state_of(scheme)
        pids = [crew.pool.pid(i) for i in range(crew.pool.size)]
    assert same(found, run(make("PPO", **LAYOUTS["learners"]), 3))
    assert gone(pids, 5.0)


@pytest.mark.slow
def test_the_process_that_starts_workers_may_die_too() -> None:
    """Its workers die with it; both are there again, and nothing is different."""
    scheme = make("PPO", "process", **LAYOUTS["learners"])
    crew: Any = scheme.distributed.crew  # type: ignore[union-attr]
    with closing(scheme):
        scheme.step()
        os.kill(crew.pool._nursery.process.pid, signal.SIGKILL)
        scheme.step()
        scheme.step()
        assert crew.losses >= 2
        found = state_of(scheme)
    assert same(found, run(make("PPO", **LAYOUTS["learners"]), 3))
