"""Experiment trackers get every row, and whatever they do, training goes on."""

from __future__ import annotations

import json
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl import trackers
from pytorchrl.logs import open_log
from pytorchrl.run_folder import RunFolder
from pytorchrl.trackers import Background

TINY = {"storage.size": 32, "env.num_envs": 2, "algorithm.num_epochs": 1, "run.log_every": 64}


def row(steps: int) -> dict[str, float]:
    return {"time/total_timesteps": steps, "train/loss": 0.5}


class FakeWandb(types.ModuleType):
    """What we use of Weights & Biases, written down."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.begun: list[dict[str, Any]] = []
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.finished = 0

    def Settings(self, **settings: Any) -> dict[str, Any]:  # noqa: N802
        return settings

    def init(self, **options: Any) -> FakeWandb:
        self.begun.append(options)
        return self

    def log(self, figures: dict[str, float], step: int) -> None:
        self.rows.append((step, figures))

    def finish(self) -> None:
        self.finished += 1


class FakeMlflow:
    """What we use of MLflow's client: runs by number, with parameters and metrics."""

    runs: list[dict[str, Any]]

    def __init__(self) -> None:
        self.runs = []

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        return f"experiment {name}"

    def create_run(self, experiment: str, run_name: str) -> Any:
        self.runs.append({"experiment": experiment, "name": run_name, "params": [], "metrics": [], "ended": 0})
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=str(len(self.runs) - 1)))

    def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
        self.runs[int(run)]["metrics"] += metrics
        self.runs[int(run)]["params"] += params

    def set_terminated(self, run: str) -> None:
        self.runs[int(run)]["ended"] += 1


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return fake


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeMlflow:
    fake = FakeMlflow()
    package: Any = types.ModuleType("mlflow")
    entities: Any = types.ModuleType("mlflow.entities")
    package.MlflowClient = lambda: fake
    entities.Metric = lambda key, value, timestamp, step: (key, value, step)
    entities.Param = lambda key, value: (key, value)
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")  # put back what the tracker sets
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    return fake


class TestRows:
    def test_both_get_what_the_csv_gets(self, wandb: FakeWandb, mlflow: FakeMlflow, tmp_path: Path) -> None:
        overrides = TINY | {"logger": ["csv", "wandb", "mlflow"]}
        run = prl.train("PPO", "CartPole-v1", steps=256, seed=3, overrides=overrides, run=tmp_path / "mine")
        lines = (run.path / "progress.csv").read_text().splitlines()
        assert [step for step, _ in wandb.rows] == [64, 128, 192, 256]
        assert set(wandb.rows[-1][1]) <= set(lines[0].split(","))
        assert wandb.begun[0]["mode"] == "offline"
        assert wandb.begun[0]["id"] == "mine"
        assert wandb.begun[0]["config"]["run.seed"] == "3"
        assert wandb.finished == 1
        (record,) = mlflow.runs
        assert (record["name"], record["experiment"], record["ended"]) == ("mine", "experiment pytorchrl", 1)
        assert ("algorithm.name", "PPO") in record["params"]
        assert [step for key, _, step in record["metrics"] if key == "train/loss"] == [64, 128, 192, 256]

    def test_a_resumed_run_goes_on_in_the_same_one(self, wandb: FakeWandb, mlflow: FakeMlflow, tmp_path: Path) -> None:
        overrides = TINY | {"logger": ["wandb", "mlflow"]}
        run = prl.train("PPO", "CartPole-v1", steps=128, overrides=overrides, run=tmp_path / "mine")
        prl.resume(run.path, steps=192)
        assert len(mlflow.runs) == 1
        assert [options["id"] for options in wandb.begun] == ["mine", "mine"]
        assert all(options["resume"] == "allow" for options in wandb.begun)
        assert wandb.rows[-1][0] == 192


class Stubborn:
    """A tracker that does what it is told to at the second row."""

    def __init__(self, misdeed: Callable[[], None]) -> None:
        self.misdeed = misdeed
        self.rows: list[Mapping[str, float]] = []

    def write(self, row: Mapping[str, float]) -> None:
        self.rows.append(row)
        if len(self.rows) == 2:
            self.misdeed()

    def close(self) -> None:
        pass


class TestFaults:
    def test_one_that_raises_is_said_once(self, caplog: pytest.LogCaptureFixture) -> None:
        def fail() -> None:
            raise RuntimeError("no space on the server")

        log = Background("wandb", lambda: Stubborn(fail))
        for steps in range(5):
            log.write(row(steps))
        log.close()
        told = [record.message for record in caplog.records]
        assert told == ["wandb cannot be written (no space on the server); training goes on without it"]

    def test_one_that_hangs_holds_nobody_up(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trackers, "SECONDS_TO_CLOSE", 0.3)
        monkeypatch.setattr(trackers, "WAITING_ROWS", 10)
        released = threading.Event()
        log = Background("mlflow", lambda: Stubborn(lambda: void(released.wait(30))))
        started = time.monotonic()
        for steps in range(100):
            log.write(row(steps))
        log.close()
        assert time.monotonic() - started < 10
        released.set()
        assert [record.message.partition(" in ")[0] for record in caplog.records] == ["mlflow did not finish"]

    def test_one_that_is_slow_loses_rows_and_says_so(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trackers, "WAITING_ROWS", 3)
        released = threading.Event()
        tracker = Stubborn(lambda: void(released.wait(30)))
        log = Background("wandb", lambda: tracker)
        for steps in range(50):
            log.write(row(steps))
            time.sleep(0.002)
        released.set()
        log.close()
        lost = 50 - len(tracker.rows)
        assert lost > 0
        assert [record.message for record in caplog.records] == [f"wandb was too slow: {lost} rows are lost"]

    @pytest.mark.parametrize("name", ["wandb", "mlflow"])
    def test_a_package_that_is_missing(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(sys.modules, name, None)
        run = prl.train("PPO", "CartPole-v1", steps=128, overrides=TINY | {"logger": [name]}, run=tmp_path / "x")
        assert json.loads((run.path / "status.json").read_text())["state"] == "done"
        told = [record.message for record in caplog.records if record.name == "pytorchrl"]
        assert len(told) == 1
        assert told[0].startswith(f"{name} cannot be written (")

    def test_nothing_is_started_that_was_not_asked_for(self, tmp_path: Path) -> None:
        before = threading.active_count()
        log = open_log(RunFolder(tmp_path), ["csv", "tensorboard"])
        log.row(row(1))
        log.close()
        assert threading.active_count() == before


def void(_: object) -> None:
    """What a lambda returned, forgotten."""
