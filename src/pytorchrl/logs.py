"""Where figures go: CSV always, TensorBoard when asked for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorchrl.run_folder import CsvLog, RunFolder

LOG = logging.getLogger("pytorchrl")
STEPS = "time/total_timesteps"

# The columns that progress.csv always has; the algorithm's losses follow.
COLUMNS = (
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


class TensorBoardLog:
    """Scalars in an events file."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder))
        self._steps = 0

    def write(self, row: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._steps = int(row[STEPS])
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in row.items()]
        self._writer.add_event(Event(step=self._steps, wall_time=time.time(), summary=Summary(value=values)))

    def get_state(self) -> dict[str, Any]:
        return {"steps": self._steps}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Declare void what earlier files say of later steps."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        start = SessionLog(status=SessionLog.START)
        self._steps = state["steps"]
        self._writer.add_event(Event(step=self._steps + 1, wall_time=time.time(), session_log=start))

    def close(self) -> None:
        self._writer.close()


def open_log(folder: RunFolder, loggers: Sequence[str]) -> RunLog:
    """The sinks of a run's folder."""
    tensorboard = TensorBoardLog(folder.path) if "tensorboard" in loggers else None
    return RunLog(CsvLog(folder.progress, COLUMNS), CsvLog(folder.episodes), tensorboard)


class RunLog:
    """Every sink of a run. A sink that fails is dropped with one warning; training goes on."""

    def __init__(self, progress: CsvLog, episodes: CsvLog, tensorboard: TensorBoardLog | None) -> None:
        self._sinks: dict[str, Any] = {"progress.csv": progress, "episodes.csv": episodes}
        if tensorboard is not None:
            self._sinks["TensorBoard"] = tensorboard

    def row(self, figures: Mapping[str, float]) -> None:
        """One log line."""
        self._write("progress.csv", lambda log: log.write([figures]))
        self._write("TensorBoard", lambda log: log.write(figures))

    def finished(self, episodes: Sequence[Mapping[str, Any]]) -> None:
        """Finished training episodes."""
        self._write("episodes.csv", lambda log: log.write(episodes))

    def get_state(self) -> dict[str, Any]:
        """Where every sink stands."""
        return {name: sink.get_state() for name, sink in self._sinks.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there: nothing is logged twice."""
        for name, sink in self._sinks.items():
            if name in state:
                sink.set_state(state[name])

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()

    def _write(self, name: str, write: Callable[[Any], None]) -> None:
        if name not in self._sinks:
            return
        try:
            write(self._sinks[name])
        except OSError as error:
            del self._sinks[name]
            LOG.warning("%s cannot be written (%s); training goes on without it", name, error.strerror)
