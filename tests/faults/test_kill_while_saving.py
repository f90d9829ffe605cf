"""kill -9 at random moments while checkpoints are written: the newest complete one always loads."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from pytorchrl.checkpoint import checkpoints_in, newest_checkpoint, write_checkpoint

KILLS = 200


def files_of(steps: int) -> dict[str, bytes]:
    return {"weights": bytes([steps % 256]) * 50_000, "state": str(steps).encode()}


def save_for_ever(folder: Path, steps: int) -> None:
    while True:
        steps += 1
        write_checkpoint(folder, steps, files_of(steps), best=steps % 5 == 0)


def test_every_kill_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    rng = random.Random(1)
    write_checkpoint(tmp_path, 1, files_of(1))
    interrupted = 0
    for _ in range(KILLS):
        newest = int(checkpoints_in(tmp_path)[0].name.partition("-")[0])
        child = os.fork()
        if child == 0:
            save_for_ever(tmp_path, newest)
        time.sleep(rng.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        interrupted += any(path.name.startswith(".writing") for path in tmp_path.iterdir())
        path, files, skipped = newest_checkpoint(tmp_path)
        assert not skipped
        assert files == files_of(int(path.name.partition("-")[0]))
    assert interrupted > KILLS // 10  # the kills did hit the writing
    # What killed writers left behind is cleared away by the next checkpoint.
    write_checkpoint(tmp_path, 10**9, files_of(10**9))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".writing", ".trash"))]
