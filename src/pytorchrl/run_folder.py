"""The folder of one run: configuration, status, logs, checkpoints, policy and report."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from pytorchrl.atomic import write_bytes, write_json
from pytorchrl.errors import ConfigError
from pytorchrl.memory import available_bytes, in_units

VERSIONS = ("pytorchrl", "torch", "numpy", "gymnasium")


class RunFolder:
    """Paths and files of a run. All writing is atomic or by appending whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.status = path / "status.json"
        self.progress = path / "progress.csv"
        self.episodes = path / "episodes.csv"
        self.checkpoints = path / "checkpoints"
        self.policy = path / "policy"
        self.report = path / "report.html"

    @classmethod
    def create(cls, name: str, path: str | Path | None = None) -> RunFolder:
        """A new folder: ``path``, which must not hold a run yet, or one of its own under ``runs``."""
        if path is not None:
            chosen = Path(path)
            if (chosen / "status.json").exists():
                raise ConfigError(f"{chosen}: there is a run in this folder already", "Give --run another folder.")
            try:
                chosen.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"{chosen}: cannot be made a run folder ({error.strerror})") from error
            return cls(chosen)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        attempt = 1
        while True:
            suffix = f"-{attempt}" if attempt > 1 else ""
            chosen = Path("runs") / f"{name}__{stamp}{suffix}"
            try:
                chosen.mkdir(parents=True)
            except FileExistsError:
                attempt += 1
            except OSError as error:
                raise ConfigError(f"{chosen}: cannot be made a run folder ({error.strerror})") from error
            else:
                return cls(chosen)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The folder of a run that is there already."""
        folder = cls(Path(path))
        if not folder.status.is_file() or not folder.config.is_file():
            raise ConfigError(f"{path}: this is not a run folder", "`ls runs` shows the runs of this folder.")
        return folder

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One writer per run: held while the run goes, and released by the system if its process dies."""
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"{self.path}: another process is writing this run", "Wait for it to end.") from None
            yield

    def write_config(self, text: str) -> None:
        write_bytes(self.config, text.encode())

    def write_status(self, state: str, **facts: Any) -> None:
        """``state`` is running, done, failed or interrupted."""
        write_json(self.status, {"state": state, "pid": os.getpid(), **facts})

    def read_status(self) -> dict[str, Any]:
        return dict(json.loads(self.status.read_bytes()))


def surroundings(command: Sequence[str]) -> dict[str, Any]:
    """What a run's figures depend on beside its configuration."""
    return {
        "versions": {name: version(name) for name in VERSIONS} | {"python": platform.python_version()},
        "commit": _commit(),
        "machine": {
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "memory": in_units(available_bytes()),
        },
        "command": list(command),
    }


def _commit() -> str | None:
    """The commit of the library's own checkout, if it runs from one."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


class CsvLog:
    """A CSV file that grows by whole lines: the given columns, then those of the first row."""

    def __init__(self, path: Path, columns: Sequence[str] = ()) -> None:
        self.path = path
        self._file: TextIO | None = None
        self._columns = list(columns)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return
        if self._file is None:
            self._file = self.path.open("a", newline="", encoding="utf-8")
            fresh = self.path.stat().st_size == 0
            if fresh:
                self._columns += [name for name in rows[0] if name not in self._columns]
            self._writer = csv.DictWriter(self._file, self._columns, restval="", extrasaction="ignore")
            if fresh:
                self._writer.writeheader()
        self._writer.writerows(rows)
        self._file.flush()

    def get_state(self) -> dict[str, Any]:
        """Where the file ends now."""
        return {"length": self.path.stat().st_size if self.path.exists() else 0, "columns": self._columns}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Cut the file where it ended then, so that no row is written twice."""
        self._columns = state["columns"]
        if self.path.exists():
            os.truncate(self.path, min(state["length"], self.path.stat().st_size))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
