"""A hundred environment processes killed, stopped or raising at random moments: each is named, and nothing stays."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
import torch
from tests.agent.env.toys import Faulty
from tests.faults.test_env_faults import children

from pytorchrl import EnvError
from pytorchrl.agent.env.vec_env import VecEnv

N = 3
ACTIONS = torch.tensor([[0], [1], [0]])


def play_until_it_fails(envs: VecEnv, victim: int, number: int | None, when: int) -> None:
    """Step on; ahead of step ``when`` the victim's process gets signal ``number``."""
    envs.reset()
    for step in range(1, 12):
        if number is not None and step == when:
            os.kill(envs.backend._workers[victim].process.pid, number)  # type: ignore[attr-defined]
        envs.step(ACTIONS)


@pytest.mark.slow
def test_each_of_a_hundred_is_named() -> None:
    rng = random.Random(1)
    before = children()
    named = 0
    for i in range(100):
        what, victim, when = ("kill", "stop", "raise")[i % 3], rng.randrange(N), rng.randrange(2, 9)
        fault = {"where": "step", "what": "raise", "when": when} if what == "raise" else {}
        envs = VecEnv(Faulty, N, env_kwargs=fault, backend="async", workers=N, deadline=2.0)
        pids = [worker.process.pid for worker in envs.backend._workers]  # type: ignore[attr-defined]
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}.get(what)
        start = time.monotonic()
        with pytest.raises(EnvError) as caught:
            play_until_it_fails(envs, victim, number, when)
        envs.close()
        assert time.monotonic() - start < 10
        told = str(caught.value.who)
        # The environment that raises is always number 1; its own traceback is the cause.
        named += "environment 1 (Faulty)" in told if what == "raise" else f"pid {pids[victim]}" in told
    assert named == 100
    assert children() == before
