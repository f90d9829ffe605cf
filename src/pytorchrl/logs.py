"""Where figures go: CSV always; TensorBoard, Weights & Biases and MLflow when asked for."""

from __future__ import annotations

import csv
import errno
import io
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pytorchrl.atomic import write_bytes
from pytorchrl.run_folder import RunFolder
from pytorchrl.trackers import STEPS, TRACKERS, Background

LOG = logging.getLogger("pytorchrl")

# The columns that progress.csv always has; the algorithm's losses follow.
PROGRESS = (
    STEPS,
    "time/time_elapsed",
    "time/fps",
    "rollout/ep_rew_mean",
    "rollout/ep_len_mean",
    "eval/mean_reward",
    "train/n_updates",
    "scheme/policy_lag",
    "scheme/gradient_asynchrony",
)
EPISODES = ("steps", "seconds", "return", "length")


class GrowingFile:
    """A file that only grows, without a buffer in between: what was written is there after a kill."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        if os.fstat(self._file.fileno()).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "it was removed")
        if self._file.write(data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        self._file.close()


class CsvLog:
    """A CSV file that grows by whole lines: the given columns, then those that rows bring along."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self._columns = list(columns)
        self._rows = 0
        self._file: GrowingFile | None = None

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        new = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in self._columns]
        if self._file is None or new:
            self._open(new)
        if rows:
            self._append(self._text(rows))
            self._rows += len(rows)

    def _open(self, new: Sequence[str]) -> None:
        """Open the file with its header; columns that come later are added to the rows that are there."""
        self.close()
        self._columns += new
        if self._rows:
            with self.path.open(newline="", encoding="utf-8") as file:
                earlier = list(csv.DictReader(file))
            write_bytes(self.path, self._header() + self._text(earlier))
        self._file = GrowingFile(self.path)
        if not self._rows:
            self._append(self._header())

    def _append(self, data: bytes) -> None:
        if self._file is not None:
            self._file.write(data)

    def _header(self) -> bytes:
        return self._text([dict(zip(self._columns, self._columns, strict=True))])

    def _text(self, rows: Sequence[Mapping[str, Any]]) -> bytes:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, restval="", lineterminator="\n").writerows(rows)
        return text.getvalue().encode()

    def get_state(self) -> dict[str, Any]:
        """How many rows there are."""
        return {"rows": self._rows}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Cut the file behind as many rows, so that none is written twice."""
        self._rows = state["rows"]
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        kept = lines[: self._rows + 1] if self._rows else []  # the header comes with the first row
        write_bytes(self.path, b"".join(kept))
        if kept:
            self._columns = next(csv.reader([lines[0].decode()]))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class TensorBoardLog:
    """Scalars in an events file of TensorBoard's."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"events.out.tfevents.{time.time():.6f}.{os.getpid()}"
        self._steps = 0
        self._file: GrowingFile | None = None

    def write(self, row: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._steps = int(row[STEPS])
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in row.items()]
        self._add(step=self._steps, summary=Summary(value=values))

    def _add(self, **fields: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        fresh = self._file is None
        self._file = self._file or GrowingFile(self.path)
        records = RecordWriter(self._file)
        if fresh:
            records.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        records.write(Event(wall_time=time.time(), **fields).SerializeToString())

    def get_state(self) -> dict[str, Any]:
        return {"steps": self._steps}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Declare void what earlier files say of later steps."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._steps = state["steps"]
        self._add(step=self._steps + 1, session_log=SessionLog(status=SessionLog.START))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Logger(Protocol):
    """Something that log rows are written to. What it cannot do it says by ``OSError`` or ``ImportError``."""

    def write(self, row: Mapping[str, float], /) -> None: ...

    def get_state(self) -> dict[str, Any]:
        """Where it stands; saved with checkpoints."""
        ...

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...

    def close(self) -> None: ...


def open_log(folder: RunFolder, loggers: Sequence[str], config: Mapping[str, Any] | None = None) -> RunLog:
    """The log of a run's folder; ``config`` is what trackers show of its configuration."""
    sinks: dict[str, Logger] = {}
    if "tensorboard" in loggers:
        sinks["TensorBoard"] = TensorBoardLog(folder.path)
    for name in TRACKERS:
        if name in loggers:
            sinks[name] = Background(name, partial(TRACKERS[name], folder.path, config or {}))
    return RunLog(CsvLog(folder.progress, PROGRESS), CsvLog(folder.episodes, EPISODES), sinks)


class RunLog:
    """Every sink of a run. A sink that fails is dropped with one warning; training goes on."""

    def __init__(self, progress: CsvLog, episodes: CsvLog, loggers: Mapping[str, Logger]) -> None:
        self._loggers = list(loggers)
        self._sinks: dict[str, Any] = {"progress.csv": progress, "episodes.csv": episodes, **loggers}

    def row(self, figures: Mapping[str, float]) -> None:
        """One log line."""
        self._use("progress.csv", lambda log: log.write([figures]))
        for name in self._loggers:
            self._use(name, lambda log: log.write(figures))

    def finished(self, episodes: Sequence[Mapping[str, Any]]) -> None:
        """Finished training episodes."""
        self._use("episodes.csv", lambda log: log.write(episodes))

    def get_state(self) -> dict[str, Any]:
        """Where every sink stands."""
        return {name: sink.get_state() for name, sink in self._sinks.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there: nothing is logged twice."""
        for name in list(self._sinks):
            if name in state:
                self._use(name, lambda log: log.set_state(state[name]))  # noqa: B023

    def close(self) -> None:
        for name in list(self._sinks):
            self._use(name, lambda log: log.close())

    def _use(self, name: str, use: Callable[[Any], None]) -> None:
        sink = self._sinks.get(name)
        if sink is None:
            return
        try:
            use(sink)
        except (OSError, ImportError) as error:
            del self._sinks[name]
            cause = error.strerror if isinstance(error, OSError) else error
            LOG.warning("%s cannot be written (%s); training goes on without it", name, cause)
