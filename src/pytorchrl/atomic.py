"""Files that are either the old one or the new one, whatever happens in between."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` through a synced temporary file beside it."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        write_synced(temporary, data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` by ``value`` as JSON."""
    write_bytes(path, (json.dumps(value, indent=2) + "\n").encode())


def write_synced(path: Path, data: bytes) -> None:
    """Write and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the disk has the folder's entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
