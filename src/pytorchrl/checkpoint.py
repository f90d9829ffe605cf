"""Checkpoints: folders that are complete or not there, found again newest first, read without pickle."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorchrl.atomic import sync_folder, write_bytes, write_synced
from pytorchrl.errors import CheckpointError
from pytorchrl.shards import FOLDER as SHARDS
from pytorchrl.shards import ShardFolder

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
KEPT = 3


def write_checkpoint(
    folder: Path, steps: int, files: Mapping[str, bytes], best: bool = False, shards: ShardFolder | None = None
) -> Path:
    """Add a checkpoint named after ``steps`` to ``folder``; the newest ones and the best stay.

    Everything is written and synced under a hidden name first; one rename to a new name makes it visible. ``shards``
    that it names lie beside it already.
    """
    hidden = folder / ".writing"  # a run has one writer: what lies here is what a killed one left behind
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir()
        for name, data in files.items():
            write_synced(hidden / name, data)
        entries = {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
        }
        named = {} if shards is None else shards.named
        if named:
            sync_folder(folder / SHARDS)
        manifest = {"format": FORMAT_VERSION, "steps": steps, "files": entries, "shards": named}
        write_synced(hidden / MANIFEST, json.dumps(manifest, indent=2).encode())
        sync_folder(hidden)
        path = _free_name(folder, steps)
        hidden.rename(path)
        sync_folder(folder)
        write_bytes(folder / "latest", path.name.encode())
        if best:
            write_bytes(folder / "best", path.name.encode())
        _rotate(folder)
    except OSError as error:
        shutil.rmtree(hidden, ignore_errors=True)
        raise CheckpointError(
            f"{folder}: the checkpoint at {steps} steps could not be written ({error.strerror})",
            "Earlier checkpoints are whole. Free some space, or give another --run folder.",
        ) from error
    return path


def _free_name(folder: Path, steps: int) -> Path:
    path, attempt = folder / str(steps), 1
    while path.exists():
        attempt += 1
        path = folder / f"{steps}-{attempt}"
    return path


def _rotate(folder: Path) -> None:
    for trash in folder.glob(".trash-*"):
        shutil.rmtree(trash, ignore_errors=True)
    kept = {path.name for path in checkpoints_in(folder)[:KEPT]} | {pointer(folder, "best")}
    for path in checkpoints_in(folder):
        if path.name not in kept:
            trash = folder / f".trash-{path.name}"
            path.rename(trash)
            shutil.rmtree(trash, ignore_errors=True)
    if (folder / SHARDS).is_dir():
        try:
            named = {name for path in checkpoints_in(folder) for name in _manifest(path)["shards"]}
        except CheckpointError:
            return  # a damaged one does not say what it needs
        ShardFolder(folder).keep(named)


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints of a folder, newest first."""

    def order(path: Path) -> tuple[int, int]:
        steps, _, attempt = path.name.partition("-")
        return int(steps), int(attempt or 1)

    found = [path for path in folder.glob("[0-9]*") if path.name.replace("-", "").isdigit() and path.is_dir()]
    return sorted(found, key=order, reverse=True)


def pointer(folder: Path, name: str) -> str:
    """What ``latest`` or ``best`` points to; empty if nothing."""
    path = folder / name
    return path.read_text().strip() if path.is_file() else ""


def newest_checkpoint(folder: Path) -> tuple[Path, dict[str, bytes], list[str]]:
    """(path, files, what was passed over and why) of the newest checkpoint that is whole."""
    skipped: list[str] = []
    for path in checkpoints_in(folder):
        try:
            files = read_checkpoint(path)
            for name, size in _manifest(path)["shards"].items():
                ShardFolder(folder).check(name, size)
            return path, files, skipped
        except CheckpointError as error:
            skipped.append(f"Passed over a checkpoint: {error.what}")
    raise CheckpointError(
        "\n".join([f"{folder}: there is no whole checkpoint to go on from", *skipped]), "Start the run anew."
    )


def read_checkpoint(path: Path) -> dict[str, bytes]:
    """The files of one checkpoint, sizes and hashes checked."""
    files = {}
    for name, (size, digest) in _manifest(path)["files"].items():
        if name in ("", "..") or "\0" in name or Path(name).name != name or (path / name).is_symlink():
            raise CheckpointError(f"{path}: {name!r} is not a plain file name")
        try:
            found = (path / name).stat().st_size
            data = (path / name).read_bytes() if found == size else b""
        except OSError as error:
            raise CheckpointError(f"{path}: {name} cannot be read ({error.strerror})") from error
        if found != size or hashlib.sha256(data).hexdigest() != digest:
            raise CheckpointError(f"{path}: {name} is damaged (its size or hash differs from the manifest)")
        files[name] = data
    return files


def _manifest(path: Path) -> dict[str, dict[str, Any]]:
    """(size, sha256) of every file that the manifest names, and the size of every shard."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        version = manifest["format"]
        files = {str(name): (entry["size"], entry["sha256"]) for name, entry in manifest["files"].items()}
        shards = {str(name): int(size) for name, size in manifest.get("shards", {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: the manifest is missing or damaged") from error
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: written in format {version}, this version reads format {FORMAT_VERSION}",
            "Use the version of pytorchrl that wrote it: status.json names it.",
        )
    return {"files": files, "shards": shards}
