"""The folder of one run: configuration, status, logs, checkpoints, policy and report."""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from pytorchrl import __version__
from pytorchrl.atomic import write_bytes, write_json
from pytorchrl.errors import CheckpointError, ConfigError
from pytorchrl.memory import available_bytes, in_units

LOG = logging.getLogger("pytorchrl")

VERSIONS = ("torch", "numpy", "gymnasium", "safetensors")
LONGEST_NAME = 200  # bytes; file systems take 255, and a date follows


class RunFolder:
    """Paths and files of a run. All writing is atomic or by appending whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_file = path / ".lock"
        self.config = path / "config.yaml"
        self.status = path / "status.json"
        self.progress = path / "progress.csv"
        self.episodes = path / "episodes.csv"
        self.checkpoints = path / "checkpoints"
        self.policy = path / "policy"
        self.videos = path / "videos"
        self.report = path / "report.html"

    @classmethod
    def create(cls, name: str, path: str | Path | None = None) -> RunFolder:
        """A folder that this run alone has: ``path``, which must not hold a run, or a new one under ``runs``."""
        if path is not None:
            folder = cls(Path(path))
            if not str(path):
                raise ConfigError("the run's folder has no name", "Give --run the name of a new one.")
            if not folder._claim():
                raise ConfigError(f"{path}: there is a run in this folder already", "Give --run another folder.")
            return folder
        stamp = time.strftime("%Y%m%d-%H%M%S")
        short = name.encode()[:LONGEST_NAME].decode(errors="ignore")
        for attempt in itertools.count(1):
            folder = cls(Path("runs") / f"{short}__{stamp}{f'-{attempt}' if attempt > 1 else ''}")
            if folder._claim():
                break
        return folder

    def _claim(self) -> bool:
        """Make the folder this run's own; False if it is another one's."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(file.exists() for file in (self.config, self.status, self.progress, self.checkpoints, self.policy)):
                return False
            self.lock_file.touch(exist_ok=False)
        except (OSError, ValueError) as error:
            if isinstance(error, FileExistsError) and self.path.is_dir():
                return False
            cause = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"{self.path}: cannot be made a run folder ({cause})") from error
        return True

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
        try:
            file = self.lock_file.open("w")
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written ({error.strerror})") from error
        with file:
            if not _locked(file):
                raise ConfigError(f"{self.path}: another process is writing this run", "Wait for it to end.")
            yield

    def write_config(self, text: str) -> None:
        """The configuration; a folder in which not even that can be written is a bad request."""
        try:
            write_bytes(self.config, text.encode())
        except OSError as error:
            raise ConfigError(f"{self.config}: cannot be written ({error.strerror})") from error

    def write_status(self, state: str, **facts: Any) -> None:
        """``state`` is running, done, failed or interrupted. What cannot be written is said, and no reason to stop."""
        try:
            write_json(self.status, {"state": state, "pid": os.getpid(), **facts})
        except OSError as error:
            LOG.warning("%s cannot be written (%s)", self.status, error.strerror)

    def read_status(self) -> dict[str, Any]:
        """The status; a run that says running while nobody holds its lock has crashed."""
        try:
            status = dict(json.loads(self.status.read_bytes()))
            running = status["state"] == "running"
            status["steps"] = int(status["steps"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"{self.status}: missing or damaged ({error})") from error
        if running and self.lock_file.exists():
            with self.lock_file.open() as file:
                status["state"] = "crashed" if _locked(file) else "running"
        return status


def _locked(file: TextIO) -> bool:
    """Whether this process now holds the file's lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def surroundings(command: Sequence[str]) -> dict[str, Any]:
    """What a run's figures depend on beside its configuration."""
    return {
        "versions": {"pytorchrl": __version__, "python": platform.python_version()} | {n: version(n) for n in VERSIONS},
        "commit": _commit(),
        "machine": {
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "memory": in_units(available_bytes()),
        },
        "command": [Path(command[0]).name, *command[1:]],
    }


def _commit() -> str | None:
    """The commit of the library's own checkout, if it runs from one, and not from inside somebody else's."""
    folder = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD", "--show-prefix"], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    commit, _, prefix = done.stdout.partition("\n")
    return commit if prefix.strip() == "src/pytorchrl/" else None
