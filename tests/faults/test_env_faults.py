"""An environment that raises, dies, hangs or breaks the API is named, and nothing stays behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from tests.agent.env.toys import Faulty

from pytorchrl import ConfigError, EnvError, NonFiniteError
from pytorchrl.agent.env.vec_env import VecEnv

N = 3
ACTIONS = torch.tensor([[0], [1], [0]])
OPTIONS: dict[str, dict[str, Any]] = {
    "sync": {"backend": "sync"},
    "async, one": {"backend": "async", "workers": N, "deadline": 20.0},
    "async, several": {"backend": "async", "workers": 1, "deadline": 20.0},
}
PROCESSES = [name for name in OPTIONS if name.startswith("async")]


def children() -> list[str]:
    """Processes below this one, zombies included."""
    listed = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if not line.split()[1].startswith("ps")]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    gc.collect()  # what an earlier test left to be collected is not ours to count
    before = children(), descriptors()
    yield
    gc.collect()  # tracebacks of caught errors hold on to the memory that was shared
    assert (children(), descriptors()) == before


def run(backend: str, steps: int = 12, env_fn: Any = Faulty, **fault: Any) -> None:
    """Reset and a few steps, then close; what goes wrong, surfaces."""
    play(steps, env_fn, env_kwargs=fault, **OPTIONS[backend])


def play(steps: int, env_fn: Any, **options: Any) -> None:
    envs = VecEnv(env_fn, N, **options)
    try:
        envs.reset([1, 2, 3])
        for _ in range(steps):
            envs.step(ACTIONS)
    finally:
        envs.close()


def whole(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("where", "when", "what"),
    [
        ("constructor", 0, "raise"),
        ("reset", 0, "raise"),
        ("step", 0, "raise"),
        ("step", 1, "unpicklable"),
        ("step", 9, "raise"),
        ("close", 0, "unpicklable"),
    ],
)
@pytest.mark.parametrize("backend", OPTIONS)
def test_what_an_environment_raises(backend: str, where: str, when: int, what: str) -> None:
    with pytest.raises(EnvError) as caught:
        run(backend, where=where, when=when, what=what)
    error = caught.value
    kind = "ValueError" if what == "raise" else "LocalError"
    assert error.who.startswith("environment 1 (Faulty)")
    assert f"{where}" in error.what
    assert f"raised {kind}: deliberate" in error.what
    assert "in perhaps" in whole(error)  # the environment's own traceback
    if where == "step":
        assert "on action 1" in error.what
        assert error.when == f"step {when + 1}"
    if backend in PROCESSES:
        assert "worker" in error.who
        assert "pid" in error.who


@pytest.mark.parametrize("backend", OPTIONS)
def test_an_environment_that_fails_in_its_second_reset(backend: str) -> None:
    class SecondReset(Faulty):
        resets = 0

        def reset(self, **kwargs: Any) -> Any:
            self.resets += 1
            if self.resets == 2 and self.index_env == 2:
                raise RuntimeError("no more")
            return super().reset(**kwargs)

    with pytest.raises(EnvError, match=r"environment 2 .*reset raised RuntimeError: no more"):
        run(backend, 20, SecondReset)


GOOD = np.zeros(2, np.float32)
WRONG_STEPS: list[tuple[str, Any, str]] = [
    ("shape", (np.zeros(3, np.float32), 1.0, False, False, {}), r"shape \(2,\), got \(3,\)"),
    ("broadcast", (np.zeros(1, np.float32), 1.0, False, False, {}), r"shape \(2,\), got \(1,\)"),
    ("dtype", (np.zeros(2, np.int64), 1.0, False, False, {}), "float32, got int64"),
    ("text", (np.array(["a", "b"]), 1.0, False, False, {}), "float32, got <U1"),
    ("nothing", (None, 1.0, False, False, {}), r"shape \(2,\), got \(\)"),
    ("ragged", ([[1.0], [1.0, 2.0]], 1.0, False, False, {}), "ValueError"),
    (
        "outside",
        (np.array([0.0, 1.5], np.float32), 1.0, False, False, {}),
        r"1.5 at index \(1,\), expected -1.0 to 1.0",
    ),
    ("reward array", (GOOD, np.zeros(2), False, False, {}), "scalar|sequence|size"),
    ("reward none", (GOOD, None, False, False, {}), "float"),
    ("old step", (GOOD, 1.0, False, {}), "Gymnasium's reset returns"),
    ("not a tuple", 5, "step"),
]


@pytest.mark.parametrize("backend", ["sync", "async, several"])
@pytest.mark.parametrize(("name", "value", "message"), WRONG_STEPS, ids=[name for name, *_ in WRONG_STEPS])
def test_steps_that_break_the_api(backend: str, name: str, value: Any, message: str) -> None:
    if backend != "sync" and name not in ("shape", "old step"):
        return  # the same code in another process
    with pytest.raises(EnvError, match=message) as caught:
        run(backend, where="step", what="return", value=value, when=1)
    assert "environment 1" in caught.value.who
    assert caught.value.what.startswith("step on action 1")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (GOOD, r"observation, info"),
        ((np.zeros(3, np.float32), {}), r"shape \(2,\), got \(3,\)"),
        ((np.zeros((2, 1), np.float32), {}), r"got \(2, 1\)"),
        ((np.array([0, 2], np.float32), {}), "outside its space"),
    ],
)
def test_resets_that_break_the_api(value: Any, message: str) -> None:
    if isinstance(value, np.ndarray):
        value = np.zeros(3, np.float32)
    with pytest.raises(EnvError, match=message):
        run("sync", where="reset", what="return", value=value)


def test_lenient_where_nothing_is_lost() -> None:
    for observation in ([0.5, -0.5], np.array([0.5, -0.5]), np.array([0.5, -0.5], np.float16), (0.5, -0.5)):
        run("sync", where="step", what="return", value=(observation, np.float32(1), np.True_, 0, {}), when=1)


def test_what_is_not_a_number_is_left_to_the_finite_guard() -> None:
    with pytest.raises(NonFiniteError, match="environment 1"):
        run("sync", where="step", what="return", value=(np.full(2, np.nan, np.float32), 1.0, False, False, {}), when=1)


def test_bounds_are_looked_at_in_the_first_steps_only() -> None:
    outside = (np.full(2, 1.5, np.float32), 1.0, False, False, {})
    run("sync", steps=40, where="step", what="return", value=outside, when=25, length=30)


@pytest.mark.parametrize("backend", ["sync", "async, several"])
def test_episodes_of_one_step(backend: str) -> None:
    envs = VecEnv(Faulty, N, env_kwargs={"length": 1}, **OPTIONS[backend])
    try:
        envs.reset()
        for _ in range(50):
            _, _, done, info = envs.step(ACTIONS)
            assert done.all()
            assert [(episode.ret, episode.length) for episode in info["episodes"]] == [(1.0, 1)] * N
    finally:
        envs.close()


@pytest.mark.parametrize("backend", PROCESSES)
@pytest.mark.parametrize(
    ("where", "what", "told"),
    [
        ("constructor", "exit", "exit code 7"),
        ("reset", "kill", "signal 9, SIGKILL"),
        ("step", "exit", "exit code 7"),
        ("step", "kill", "signal 9, SIGKILL"),
        ("step", "segfault", "signal 11, SIGSEGV"),
    ],
)
def test_a_process_that_dies(backend: str, what: str, told: str, where: str) -> None:
    start = time.monotonic()
    with pytest.raises(EnvError) as caught:
        run(backend, where=where, what=what, when=4)
    error = caught.value
    assert told in error.what
    assert where in error.what
    assert "environment 1 (Faulty), worker" in error.who
    if where == "step":
        assert "on action 1" in error.what
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("where", "what"), [("constructor", "loop"), ("reset", "stop"), ("step", "loop"), ("step", "stop")]
)
def test_an_environment_that_hangs(what: str, where: str) -> None:
    start = time.monotonic()
    with pytest.raises(EnvError, match=r"has not answered within 1\.5 s") as caught:
        play(1, Faulty, env_kwargs={"where": where, "what": what}, backend="async", workers=2, deadline=1.5)
    assert "environment 1 (Faulty), worker" in caught.value.who
    assert where in caught.value.what
    assert time.monotonic() - start < 8


@pytest.mark.parametrize("what", ["loop", "stop", "exit", "raise"])
def test_close_works_whatever_happens(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytorchrl.agent.env.parallel.CLOSING", 1.0)
    envs = VecEnv(Faulty, N, env_kwargs={"where": "close", "what": what}, backend="async", workers=2)
    envs.reset()
    with pytest.raises(EnvError, match=r"environment 1 .*close"):
        envs.close()
    envs.close()
    with pytest.raises(EnvError, match="closed"):
        envs.step(ACTIONS)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_somebody_else_kills_or_stops(number: int) -> None:
    envs = VecEnv(Faulty, N, backend="async", workers=N, deadline=1.5)
    envs.reset()
    envs.step(ACTIONS)
    victim: Any = envs.backend._workers[2]  # type: ignore[attr-defined]
    os.kill(victim.process.pid, number)
    if number == signal.SIGKILL:
        time.sleep(0.2)
    with pytest.raises(EnvError, match="worker 2") as caught:
        envs.step(ACTIONS)
    assert f"pid {victim.process.pid}" in caught.value.who
    assert ("SIGKILL" if number == signal.SIGKILL else "has not answered") in caught.value.what


def test_workers_ignore_the_interrupt_of_a_terminal() -> None:
    envs = VecEnv(Faulty, N, backend="async", workers=2)
    envs.reset()
    for worker in envs.backend._workers:  # type: ignore[attr-defined]
        os.kill(worker.process.pid, signal.SIGINT)
    envs.step(ACTIONS)
    envs.close()


def test_a_vector_that_was_forgotten_takes_its_processes_along() -> None:
    envs = VecEnv(Faulty, N, backend="async", workers=2)
    envs.reset()
    del envs


def test_many_are_made_and_closed() -> None:
    for k in range(6):
        envs = VecEnv(Faulty, 2, backend="async", workers=1 + k % 2)
        envs.reset()
        if k % 3:
            envs.step(ACTIONS[:2])
        envs.close()


@pytest.mark.slow
def test_a_hundred_are_made_and_closed() -> None:
    shared = set(Path("/dev/shm").iterdir())
    for k in range(100):
        envs = VecEnv(Faulty, 2, backend="async", workers=1 + k % 2)
        envs.reset()
        envs.step(ACTIONS[:2])
        envs.close()
    assert set(Path("/dev/shm").iterdir()) == shared


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_leave_with_their_parent(number: int, tmp_path: Path) -> None:
    """Also those that are inside an environment that never returns; the script has no main guard."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import time, gymnasium as gym
            from pytorchrl.agent.env import VecEnv
            class Mine(gym.Env):
                observation_space = action_space = gym.spaces.Discrete(2)
                def __init__(self, index_env=0): self.index_env = index_env
                def reset(self, seed=None, options=None): return 0, {}
                def step(self, action):
                    while self.index_env == 1: time.sleep(0.1)
            envs = VecEnv(Mine, 2, backend="async", workers=2)
            envs.reset()
            print(*(worker.process.pid for worker in envs.backend._workers), flush=True)
            import torch
            envs.step(torch.zeros(2, 1, dtype=torch.int64))
        """)
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.3)
    os.kill(parent.pid, number)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_function_that_cannot_be_sent() -> None:
    import threading

    lock = threading.Lock()

    def make() -> gym.Env[Any, Any]:
        with lock:
            return Faulty()

    with pytest.raises(ConfigError, match=r"cannot be sent to a process(.|\n)*sync"):
        VecEnv(make, 2, backend="async")


def test_an_interrupt_in_the_middle_of_a_step_closes_the_vector() -> None:
    envs = VecEnv(partial(Faulty, where="step", what="loop"), N, backend="async", workers=2)
    envs.reset()

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            envs.step(ACTIONS)
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(EnvError, match="closed"):
        envs.step(ACTIONS)


@pytest.mark.parametrize("where", ["reset", "step", "close", "constructor"])
def test_a_vector_of_gymnasium_s_that_raises(where: str) -> None:
    def make(num_envs: int) -> gym.vector.VectorEnv[Any, Any, Any]:
        return gym.vector.SyncVectorEnv([partial(Faulty, where=where, who=0)] * num_envs)

    with pytest.raises(EnvError, match=f"{where}(.|\n)*raised ValueError: deliberate"):
        play(1, make, backend="vector")
