"""Experiment trackers: Weights & Biases and MLflow, each behind the few lines that a log needs of it.

A tracker may be slow, dead or full. It is written to from a thread of its own, through a queue with an end: whatever
happens there, training goes on.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pytorchrl.atomic import write_bytes

LOG = logging.getLogger("pytorchrl")
STEPS = "time/total_timesteps"
WAITING_ROWS = 1000
SECONDS_TO_CLOSE = 60.0  # making its first database takes MLflow half of that on a busy machine


class Tracker(Protocol):
    """What a log row is given to; made, used and closed by one thread."""

    def write(self, row: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class WandbTracker:
    """Weights & Biases, offline unless WANDB_MODE says otherwise; ``wandb sync`` sends what the run's folder holds."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb  # type: ignore[import-not-found,unused-ignore]

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "pytorchrl"),
            name=folder.resolve().name,
            id="".join(letter if letter.isalnum() else "-" for letter in folder.resolve().name),
            resume="allow",
            dir=str(folder),
            config=dict(config),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def write(self, row: Mapping[str, float]) -> None:
        self._run.log(dict(row), step=int(row[STEPS]))

    def close(self) -> None:
        self._run.finish()


class MlflowTracker:
    """MLflow, where MLFLOW_TRACKING_URI says; a run that is resumed goes on in the MLflow run that it had."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        for name, value in (("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1"), ("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")):
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient  # type: ignore[import-not-found,unused-ignore]
        from mlflow.entities import Metric, Param  # type: ignore[import-not-found,unused-ignore]

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        self._metric = Metric
        self._client = MlflowClient()
        noted = folder / "mlflow_run"
        if noted.is_file():
            self._run = noted.read_text("utf-8").strip()
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "pytorchrl")
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        self._run = self._client.create_run(number, run_name=folder.resolve().name).info.run_id
        self._client.log_batch(self._run, params=[Param(key, str(value)[:500]) for key, value in config.items()])
        write_bytes(noted, self._run.encode())

    def write(self, row: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(name, float(value), now, int(row[STEPS])) for name, value in row.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._run)


TRACKERS: Mapping[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {"wandb": WandbTracker, "mlflow": MlflowTracker}


class Background:
    """A tracker in a thread of its own. When it fails, that is said once; rows that it has no room for are lost.

    Parameters
        name: what messages call it.
        make: makes the tracker, in that thread.
    """

    def __init__(self, name: str, make: Callable[[], Tracker]) -> None:
        self.name = name
        self._rows: queue.Queue[Mapping[str, float] | None] = queue.Queue(WAITING_ROWS)
        self._lost = 0
        self._thread = threading.Thread(target=self._work, args=(make,), name=f"log to {name}", daemon=True)
        self._thread.start()

    def write(self, row: Mapping[str, float]) -> None:
        """Hand a row over; never waits."""
        try:
            self._rows.put_nowait(dict(row))
        except queue.Full:
            self._lost += 1

    def _work(self, make: Callable[[], Tracker]) -> None:
        try:
            tracker = make()
            while (row := self._rows.get()) is not None:
                tracker.write(row)
            tracker.close()
        except Exception as error:  # noqa: BLE001  a foreign package's: it raises what it likes, and stops nobody
            LOG.warning("%s cannot be written (%s); training goes on without it", self.name, error)

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Trackers go on by the name of the run."""

    def close(self) -> None:
        """Let the tracker finish, for a while."""
        deadline = time.monotonic() + SECONDS_TO_CLOSE
        while self._thread.is_alive() and time.monotonic() < deadline:
            try:
                self._rows.put(None, timeout=0.1)
                break
            except queue.Full:
                continue
        self._thread.join(max(deadline - time.monotonic(), 0.0))
        if self._thread.is_alive():
            LOG.warning("%s did not finish in %.0f seconds; what it still held is lost", self.name, SECONDS_TO_CLOSE)
        elif self._lost:
            LOG.warning("%s was too slow: %d rows are lost", self.name, self._lost)
