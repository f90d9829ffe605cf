"""Checkpoints are complete or not there, whatever happens while they are written."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytorchrl import atomic
from pytorchrl.checkpoint import (
    KEPT,
    MANIFEST,
    checkpoints_in,
    newest_checkpoint,
    pointer,
    read_checkpoint,
    write_checkpoint,
)
from pytorchrl.errors import CheckpointError

FILES = {"a.bin": b"first", "b.bin": bytes(1000)}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "checkpoints", 100, FILES)
    assert path.name == "100"
    assert read_checkpoint(path) == FILES
    assert pointer(tmp_path / "checkpoints", "latest") == "100"
    assert pointer(tmp_path / "checkpoints", "best") == ""


def test_a_step_that_is_taken_gets_a_suffix_and_is_newer(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 100, {"a": b"1"})
    write_checkpoint(tmp_path, 100, {"a": b"2"})
    path, files, skipped = newest_checkpoint(tmp_path)
    assert (path.name, files, skipped) == ("100-2", {"a": b"2"}, [])


def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    for steps in range(1, 8):
        write_checkpoint(tmp_path, steps, FILES, best=steps == 2)
    assert [path.name for path in checkpoints_in(tmp_path)] == ["7", "6", "5", "2"]
    assert KEPT == 3
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_order_is_by_number_not_by_text(tmp_path: Path) -> None:
    for steps in (9, 10):
        write_checkpoint(tmp_path, steps, FILES)
    assert [path.name for path in checkpoints_in(tmp_path)] == ["10", "9"]


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "shorter": lambda path: (path / "b.bin").write_bytes(bytes(999)),
    "longer": lambda path: (path / "b.bin").write_bytes(bytes(1001)),
    "a bit": lambda path: (path / "b.bin").write_bytes(bytes(500) + b"\1" + bytes(499)),
    "gone": lambda path: (path / "a.bin").unlink(),
    "no manifest": lambda path: (path / MANIFEST).unlink(),
    "half a manifest": lambda path: (path / MANIFEST).write_bytes((path / MANIFEST).read_bytes()[:40]),
    "manifest of nonsense": lambda path: (path / MANIFEST).write_text("[1, 2]"),
    "entries of nonsense": lambda path: (path / MANIFEST).write_text('{"files": {"a.bin": 3}}'),
    "files of nonsense": lambda path: (path / MANIFEST).write_text('{"files": 3}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_passed_over(damage: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, FILES)
    path = write_checkpoint(tmp_path, 2, FILES)
    DAMAGES[damage](path)
    with pytest.raises(CheckpointError):
        read_checkpoint(path)
    found, _, skipped = newest_checkpoint(tmp_path)
    assert found.name == "1"
    assert len(skipped) == 1
    assert str(path) in skipped[0]


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "inner/../../secret", "..", "", "a\0b"])
def test_a_manifest_cannot_name_other_files(name: str, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "checkpoints", 1, FILES)
    (tmp_path / "secret").write_bytes(b"secret")
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["files"] = {name: {"size": 6, "sha256": "0"}}
    (path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="plain file name"):
        read_checkpoint(path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "checkpoints", 1, FILES)
    (tmp_path / "twin").write_bytes(FILES["a.bin"])
    (path / "a.bin").unlink()
    (path / "a.bin").symlink_to(tmp_path / "twin")
    with pytest.raises(CheckpointError, match="plain file name"):
        read_checkpoint(path)


def test_a_manifest_of_a_later_format_is_refused_by_name(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 1, FILES)
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(CheckpointError, match="format 99"):
        read_checkpoint(path)


def test_without_any_checkpoint_the_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        newest_checkpoint(tmp_path / "none")


class Disk:
    """Counts the calls that reach the disk and fails at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int) -> None:
        self.calls = 0
        self.fail_at = fail_at
        for owner, name in ((os, "fsync"), (Path, "rename"), (Path, "replace"), (Path, "mkdir"), (Path, "open")):
            self.watch(monkeypatch, owner, name)

    def watch(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        genuine = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.fail_at:
                raise OSError(errno.ENOSPC, "No space left on device")
            return genuine(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)


def test_a_full_disk_at_any_call_leaves_the_previous_checkpoint_whole(tmp_path: Path) -> None:
    fail_at, failures = 0, 0
    while True:
        fail_at += 1
        folder = tmp_path / str(fail_at)
        write_checkpoint(folder, 1, FILES)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, fail_at)
            try:
                write_checkpoint(folder, 2, FILES | {"a.bin": b"second"})
            except CheckpointError as error:
                failures += "No space left" in str(error)
            done = disk.calls < fail_at
        _, files, skipped = newest_checkpoint(folder)
        assert not skipped
        assert files in (FILES, FILES | {"a.bin": b"second"})
        if done:
            break
        # The next attempt works, and nothing is left behind.
        write_checkpoint(folder, 3, FILES)
        assert newest_checkpoint(folder)[0].name == "3"
        assert not list(folder.glob(".writing*"))
    assert failures >= 10


def test_atomic_files_are_old_or_new(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    atomic.write_json(path, {"a": 1})
    with pytest.MonkeyPatch.context() as patch:
        Disk(patch, 2)
        with pytest.raises(OSError, match="No space"):
            atomic.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["status.json"]
