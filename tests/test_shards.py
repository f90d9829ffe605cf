"""Shards are written once, named by their hash, kept while a checkpoint needs them, and never trusted unread."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytorchrl import state_tree
from pytorchrl.checkpoint import KEPT, checkpoints_in, newest_checkpoint, write_checkpoint
from pytorchrl.errors import CheckpointError
from pytorchrl.shards import Shard, ShardFolder

KILLS = 60


def part(number: int, rows: int = 3) -> list[Tensor]:
    return [torch.tensor(number), torch.full((rows, 2), float(number)), torch.arange(rows, dtype=torch.uint8)]


def shard(number: int, made: list[int] | None = None) -> Shard:
    def make() -> list[Tensor]:
        if made is not None:
            made.append(number)
        return part(number)

    return Shard(make)


def save(folder: Path, steps: int, parts: list[Shard], best: bool = False) -> ShardFolder:
    shards = ShardFolder(folder)
    structure, tensors = state_tree.encode({"parts": parts, "steps": steps}, shards.put)
    write_checkpoint(folder, steps, {"state.json": structure, "tensors": tensors}, best, shards)
    return shards


def load(folder: Path) -> tuple[int, list[list[Tensor]], list[str]]:
    _, files, skipped = newest_checkpoint(folder)
    state = state_tree.decode(files["state.json"], files["tensors"], ShardFolder(folder).get)
    return state["steps"], [found.make() for found in state["parts"]], skipped


def test_what_is_written_is_read(tmp_path: Path) -> None:
    save(tmp_path, 7, [shard(1), shard(2)])
    steps, parts, skipped = load(tmp_path)
    assert (steps, skipped) == (7, [])
    for found, expected in zip(parts, (part(1), part(2)), strict=True):
        assert [tensor.dtype for tensor in found] == [tensor.dtype for tensor in expected]
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_a_shard_is_made_and_written_once(tmp_path: Path) -> None:
    made: list[int] = []
    parts = [shard(number, made) for number in range(5)]
    first = save(tmp_path, 1, parts[:4])
    times = {path: path.stat().st_mtime_ns for path in first.path.iterdir()}
    second = save(tmp_path, 2, parts)
    assert made == [0, 1, 2, 3, 4]
    assert first.written == 4 * second.written > 0
    assert len(second.named) == 5
    assert all(path.stat().st_mtime_ns == before for path, before in times.items())
    again = save(tmp_path, 3, [shard(number, made) for number in range(5)])  # of a process that knows no names
    assert (again.written, again.named) == (0, second.named)
    for path in first.path.iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name


def test_one_that_went_lost_is_written_again(tmp_path: Path) -> None:
    parts = [shard(1)]
    first = save(tmp_path, 1, parts)
    (first.path / next(iter(first.named))).unlink()
    assert save(tmp_path, 2, parts).written == first.written
    assert load(tmp_path)[0] == 2


def test_shards_stay_as_long_as_a_checkpoint_needs_them(tmp_path: Path) -> None:
    """A window of three shards moves on; the best checkpoint's stay, and what a killed writer left goes."""
    parts = [shard(number) for number in range(12)]
    for steps in range(1, 10):
        (tmp_path / "shards").mkdir(exist_ok=True)
        (tmp_path / "shards" / "left.tmp").touch()
        shards = save(tmp_path, steps, parts[steps : steps + 3], best=steps == 2)
    kept = [9, 8, 7, 2]
    assert [int(path.name) for path in checkpoints_in(tmp_path)] == kept
    assert len(kept) == KEPT + 1
    needed = {parts[steps + i].name for steps in kept for i in range(3)}
    assert {path.name for path in shards.path.iterdir()} == needed


DAMAGES: dict[str, Any] = {
    "shorter": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a bit": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\7"),
    "gone": lambda path: path.unlink(),
    "a link": lambda path: path.rename(path.with_name("x")) and path.symlink_to(path.with_name("x")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_passed_over(damage: str, tmp_path: Path) -> None:
    save(tmp_path, 1, [shard(1)])
    second = save(tmp_path, 2, [shard(2)])
    (path,) = (second.path / name for name in second.named)
    DAMAGES[damage](path)
    steps, _, skipped = load(tmp_path)
    assert steps == 1
    assert len(skipped) == 1
    assert path.name in skipped[0]
    with pytest.raises(CheckpointError, match=path.name):
        second.check(path.name, second.named[path.name])
    if damage != "a link":
        with pytest.raises(CheckpointError, match=path.name):
            second.get(path.name).make()


@pytest.mark.parametrize("name", ["../secret", "", "a" * 63, "A" * 64, "/" + "a" * 63, "a" * 64 + "\n"])
def test_a_state_cannot_name_other_files(name: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not the name of a shard"):
        ShardFolder(tmp_path).get(name)
    with pytest.raises(CheckpointError, match="not the name of a shard"):
        ShardFolder(tmp_path).check(name, 1)


def test_without_a_folder_there_are_no_shards() -> None:
    with pytest.raises(TypeError, match="Shard has no place"):
        state_tree.encode({"parts": [shard(1)]})


def test_a_full_disk_leaves_earlier_checkpoints_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1, [shard(1)])

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match="No space left"):
            save(tmp_path, 2, [shard(1), shard(2)])
    assert load(tmp_path)[0] == 1
    shards = save(tmp_path, 3, [shard(1), shard(2)])
    assert {path.name for path in shards.path.iterdir()} == set(shards.named)


def save_for_ever(folder: Path, steps: int) -> None:
    while True:
        steps += 1
        save(folder, steps, [shard(number) for number in range(steps, steps + 4)], best=steps % 5 == 0)


def test_every_kill_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    rng = random.Random(1)
    save(tmp_path, 1, [shard(number) for number in range(1, 5)])
    interrupted = 0
    for _ in range(KILLS):
        newest = int(checkpoints_in(tmp_path)[0].name.partition("-")[0])
        child = os.fork()
        if child == 0:
            save_for_ever(tmp_path, newest)
        time.sleep(rng.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        steps, parts, skipped = load(tmp_path)
        assert not skipped
        assert [int(found[0]) for found in parts] == list(range(steps, steps + 4))
        named = {int(path.name.partition("-")[0]) for path in checkpoints_in(tmp_path)}
        interrupted += len(list((tmp_path / "shards").iterdir())) > len({n + i for n in named for i in range(4)})
    assert interrupted > KILLS // 10  # the kills did hit the writing
    shards = save(tmp_path, 10**9, [shard(0)])
    left = {path.name for path in shards.path.iterdir()}
    assert len(left) <= 1 + 4 * KEPT
