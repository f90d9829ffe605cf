"""Logs: the same figures everywhere, whole lines, and a sink that fails stops nobody."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import pytorchrl as prl
from pytorchrl.logs import EPISODES, PROGRESS, CsvLog, RunLog, TensorBoardLog, open_log
from pytorchrl.run_folder import RunFolder

TINY = {"storage.size": 32, "env.num_envs": 2, "algorithm.num_epochs": 1, "run.log_every": 64}


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


class TestCsv:
    def test_a_header_comes_first_even_if_there_are_no_rows(self, tmp_path: Path) -> None:
        log = CsvLog(tmp_path / "x.csv", ["a", "b"])
        log.write([])
        assert (tmp_path / "x.csv").read_bytes() == b"a,b\n"

    def test_rows_are_there_at_once(self, tmp_path: Path) -> None:
        log = CsvLog(tmp_path / "x.csv", ["a", "b"])
        log.write([{"a": 1}, {"b": 2.5}])
        assert (tmp_path / "x.csv").read_bytes() == b"a,b\n1,\n,2.5\n"

    def test_columns_that_come_later_are_added(self, tmp_path: Path) -> None:
        log = CsvLog(tmp_path / "x.csv", ["a"])
        log.write([{"a": 1}])
        log.write([{"a": 2, "b": 3}])
        log.write([{"c": "x,y", "a": 4}])
        log.close()
        assert read(tmp_path / "x.csv") == [
            {"a": "1", "b": "", "c": ""},
            {"a": "2", "b": "3", "c": ""},
            {"a": "4", "b": "", "c": "x,y"},
        ]

    @pytest.mark.parametrize("later", [[], [{"a": 3}], [{"b": 3}], [{"a": 3, "b": 4}, {"c": 5}]])
    @pytest.mark.parametrize("torn", [b"", b"7", b"7,8\n9,"])
    def test_it_is_cut_where_a_checkpoint_was(self, later: list[dict[str, Any]], torn: bytes, tmp_path: Path) -> None:
        path, resumed = tmp_path / "x.csv", [{"a": 5, "b": 6}]
        log = CsvLog(path, ["a"])
        log.write([{"a": 1}, {"a": 2}])
        state = log.get_state()
        log.write(later)
        log.close()
        with path.open("ab") as file:
            file.write(torn)
        again = CsvLog(path, ["a"])
        again.set_state(state)
        again.write(resumed)
        again.close()
        figures = [[row["a"], row["b"]] for row in read(path)]
        assert figures == [["1", ""], ["2", ""], ["5", "6"]]

    def test_it_is_made_anew_if_it_was_removed(self, tmp_path: Path) -> None:
        log = CsvLog(tmp_path / "x.csv", ["a"])
        log.set_state({"rows": 3})
        log.write([{"a": 1}])
        assert (tmp_path / "x.csv").read_bytes().endswith(b"1\n")


class TestTensorBoard:
    def test_it_reads_the_figures_of_the_csv(self, tmp_path: Path) -> None:
        overrides = TINY | {"run.eval_every": 128, "algorithm.num_test_episodes": 1}
        run = prl.train("ppo", "CartPole-v1", steps=256, overrides=overrides, run=tmp_path / "x")
        table = read(run.path / "progress.csv")
        found = scalars(run.path)
        assert set(found) == {name for name in table[0] if any(row[name] for row in table)}
        for tag, points in found.items():
            expected = [(int(row["time/total_timesteps"]), float(row[tag])) for row in table if row[tag]]
            assert points == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected]
        assert len(found["train/loss"]) == 4

    def test_a_resume_declares_later_steps_void(self, tmp_path: Path) -> None:
        first = TensorBoardLog(tmp_path)
        states = []
        for steps in (1, 2, 3, 4):
            first.write({"time/total_timesteps": steps, "x": steps})
            states.append(first.get_state())
        first.close()
        again = TensorBoardLog(tmp_path)
        again.set_state(states[1])
        again.write({"time/total_timesteps": 3, "x": 30.0})
        again.close()
        assert scalars(tmp_path)["x"] == [(1, 1.0), (2, 2.0), (3, 30.0)]

    def test_it_can_be_left_out(self, tmp_path: Path) -> None:
        prl.train("ppo", "CartPole-v1", steps=64, overrides=TINY | {"logger": ["csv"]}, run=tmp_path / "x")
        assert list((tmp_path / "x").glob("events*")) == []
        assert len(read(tmp_path / "x" / "progress.csv")) == 1


class TestASinkThatFails:
    def log(self, folder: Path) -> RunLog:
        return open_log(RunFolder(folder), ["tensorboard"])

    def use(self, log: RunLog, steps: int) -> None:
        log.row({"time/total_timesteps": steps, "time/fps": 1.0})
        log.finished([dict.fromkeys(EPISODES, steps)])

    def test_removed_in_the_middle(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        log = self.log(tmp_path)
        self.use(log, 1)
        (tmp_path / "progress.csv").unlink()
        for steps in range(2, 5):
            self.use(log, steps)
        log.close()
        told = [record.message for record in caplog.records]
        assert told == ["progress.csv cannot be written (it was removed); training goes on without it"]
        assert len(read(tmp_path / "episodes.csv")) == 4
        assert len(scalars(tmp_path)["time/fps"]) == 4

    def test_another_file_in_its_place_is_left_alone(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        log = self.log(tmp_path)
        self.use(log, 1)
        (tmp_path / "mine").write_text("mine")
        (tmp_path / "mine").replace(tmp_path / "episodes.csv")
        self.use(log, 2)
        assert (tmp_path / "episodes.csv").read_text() == "mine"
        assert len(caplog.records) == 1

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    @pytest.mark.parametrize("name", ["progress.csv", "episodes.csv"])
    def test_a_full_disk(self, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / name).symlink_to("/dev/full")
        log = self.log(tmp_path)
        for steps in range(1, 4):
            self.use(log, steps)
        log.close()
        told = [record.message for record in caplog.records]
        assert told == [f"{name} cannot be written (No space left on device); training goes on without it"]

    def test_a_line_that_is_written_in_part(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = self.log(tmp_path)
        self.use(log, 1)
        whole = (tmp_path / "progress.csv").read_bytes()
        monkeypatch.setattr("os.fstat", lambda descriptor: os.stat_result((0,) * 10))
        self.use(log, 2)
        assert len(caplog.records) == 3
        assert (tmp_path / "progress.csv").read_bytes() == whole

    def test_a_folder_in_its_place(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "episodes.csv").mkdir()
        overrides = TINY | {"logger": ["csv"]}
        log = self.log(tmp_path)
        self.use(log, 1)
        assert [record.message.partition(" (")[0] for record in caplog.records] == ["episodes.csv cannot be written"]
        assert overrides["logger"] == ["csv"]

    def test_tensorboard_is_missing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(__import__("sys").modules, "tensorboard.compat.proto.summary_pb2", None)
        log = self.log(tmp_path)
        self.use(log, 1)
        self.use(log, 2)
        assert len(caplog.records) == 1
        assert caplog.records[0].message.startswith("TensorBoard cannot be written (")
        assert len(read(tmp_path / "progress.csv")) == 2

    def test_training_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        written = CsvLog.write

        def failing(log: CsvLog, rows: Any) -> None:
            if log.path.name == "progress.csv" and log.get_state()["rows"] == 2:
                raise OSError(28, "No space left on device")
            written(log, rows)

        monkeypatch.setattr(CsvLog, "write", failing)
        run = prl.train("ppo", "CartPole-v1", steps=512, overrides=TINY, run=tmp_path / "x")
        told = [record.message for record in caplog.records if record.name == "pytorchrl"]
        assert told == ["progress.csv cannot be written (No space left on device); training goes on without it"]
        assert len(read(run.path / "progress.csv")) == 2
        assert len(scalars(run.path)["train/loss"]) == 8
        assert RunFolder(run.path).read_status()["state"] == "done"


def test_the_columns_are_those_of_the_interface() -> None:
    assert len(set(PROGRESS)) == len(PROGRESS) == 9
    assert EPISODES == ("steps", "seconds", "return", "length")
