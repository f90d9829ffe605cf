"""The folder of a run: one per run, complete, honest about how the run ended."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import pytorchrl as prl
from pytorchrl.errors import CheckpointError, ConfigError
from pytorchrl.run_folder import LONGEST_NAME, RunFolder, surroundings
from pytorchrl.strict_yaml import read_yaml

TINY = {"storage.size": 32, "env.num_envs": 2, "algorithm.num_epochs": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> prl.Run:
    """A run of 512 steps that evaluates; tests only read it."""
    overrides = TINY | {"run.eval_every": 256, "algorithm.num_test_episodes": 2, "run.log_every": 64}
    return prl.train("PPO", "CartPole-v1", steps=512, seed=4, overrides=overrides, run=tmp_path_factory.mktemp("run"))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class TestContents:
    def test_files(self, run: prl.Run) -> None:
        names = {path.name for path in run.path.iterdir()}
        events = {name for name in names if name.startswith("events.out.tfevents.")}
        assert len(events) == 1
        assert names - events == {
            ".lock",
            "checkpoints",
            "config.yaml",
            "episodes.csv",
            "policy",
            "progress.csv",
            "report.html",
            "status.json",
        }
        assert {path.name for path in (run.path / "policy").iterdir()} == {"policy.json", "policy.safetensors"}

    def test_configuration(self, run: prl.Run) -> None:
        sections = read_yaml(run.path / "config.yaml").plain()
        assert list(sections) == ["algorithm", "storage", "actor", "scheme", "env", "run", "anneal"]
        assert sections["run"].items() >= {"steps": "512", "seed": "4", "log_every": "64"}.items()
        assert sections["env"]["id"] == "CartPole-v1"

    def test_status(self, run: prl.Run) -> None:
        status = json.loads((run.path / "status.json").read_text())
        assert status["state"] == "done"
        assert (status["steps"], status["seed"], status["pid"]) == (512, 4, os.getpid())
        assert set(status["versions"]) >= {"pytorchrl", "python", "torch", "numpy", "gymnasium"}
        assert set(status["machine"]) == {"system", "cores", "memory"}
        assert status["command"][0] == Path(sys.argv[0]).name
        assert status["commit"] is None or re.fullmatch("[0-9a-f]{40}", status["commit"])

    def test_progress(self, run: prl.Run) -> None:
        table = rows(run.path / "progress.csv")
        assert list(table[0])[:9] == [
            "time/total_timesteps",
            "time/time_elapsed",
            "time/fps",
            "rollout/ep_rew_mean",
            "rollout/ep_len_mean",
            "eval/mean_reward",
            "train/n_updates",
            "scheme/policy_lag",
            "scheme/gradient_asynchrony",
        ]
        assert set(list(table[0])[9:]) >= {"train/loss", "train/value_loss", "train/action_loss"}
        assert [int(row["time/total_timesteps"]) for row in table] == list(range(64, 513, 64))
        assert [bool(row["eval/mean_reward"]) for row in table] == [False, False, False, True] * 2
        numbers = [float(value) for row in table for value in row.values() if value]
        assert len(numbers) > 80

    def test_episodes(self, run: prl.Run) -> None:
        table = rows(run.path / "episodes.csv")
        assert list(table[0]) == ["steps", "seconds", "return", "length"]
        assert [float(row["return"]) for row in table][-100:] == run.scores
        assert sum(int(row["length"]) for row in table) <= 512
        steps = [int(row["steps"]) for row in table]
        assert steps == sorted(steps)
        assert steps[-1] <= 512
        assert all(float(row["return"]) == int(row["length"]) for row in table)  # CartPole pays 1 per step

    def test_checkpoints(self, run: prl.Run) -> None:
        folder = run.path / "checkpoints"
        kept = [int(path.name) for path in folder.iterdir() if path.is_dir()]
        assert max(kept) == 512
        assert len(kept) <= 4
        assert (folder / "latest").read_text() == "512"
        assert int((folder / "best").read_text()) in kept

    def test_nothing_is_left_over(self, run: prl.Run) -> None:
        assert [path for path in run.path.rglob("*") if path.name.endswith(".tmp")] == []


class TestCreation:
    def test_a_name_of_its_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("time.strftime", lambda form: "20261118-201500")
        names = [RunFolder.create("PPO__CartPole-v1__seed1").path.as_posix() for _ in range(3)]
        assert names[0] == "runs/PPO__CartPole-v1__seed1__20261118-201500"
        assert names[1:] == [f"{names[0]}-2", f"{names[0]}-3"]

    def test_eight_at_once_have_eight_folders(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("time.strftime", lambda form: "20261118-201500")
        own, given = self.at_once(lambda: RunFolder.create("x")), self.at_once(lambda: RunFolder.create("x", "one"))
        assert len({folder.path for folder in own}) == 8
        assert [type(folder) for folder in given].count(RunFolder) == 1
        refused = [error for error in given if isinstance(error, ConfigError)]
        assert len(refused) == 7
        assert all("there is a run in this folder already" in str(error) for error in refused)

    @staticmethod
    def at_once(create: Any) -> list[Any]:
        start, results = threading.Barrier(8), []

        def one() -> None:
            start.wait()
            try:
                results.append(create())
            except ConfigError as error:
                results.append(error)

        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def test_what_lies_there_stays(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        assert RunFolder.create("x", tmp_path).path == tmp_path
        assert (tmp_path / "notes.txt").read_text() == "mine"

    @pytest.mark.parametrize("name", ["config.yaml", "status.json", "progress.csv", "checkpoints", "policy"])
    def test_a_folder_that_holds_files_of_a_run_is_refused(self, name: str, tmp_path: Path) -> None:
        (tmp_path / name).write_text("mine")
        with pytest.raises(ConfigError, match="there is a run in this folder already"):
            RunFolder.create("x", tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [name]

    @pytest.mark.parametrize(
        "name", ["with space", "ünï/çødé 漢字 🎈", "a" * 255, "C:\\runs\\x", "-x", "$(touch x)", "a\nb"]
    )
    def test_names(self, name: str, tmp_path: Path) -> None:
        folder = RunFolder.create("x", tmp_path / name)
        folder.write_status("running", steps=1)
        assert folder.path.is_dir()
        assert RunFolder(folder.path).read_status()["steps"] == 1

    @pytest.mark.parametrize("letter", ["a", "漢", "🎈"])
    def test_long_names_are_cut(self, letter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        name = RunFolder.create(letter * 300).path.name
        assert name.startswith(letter * (LONGEST_NAME // len(letter.encode())) + "__")
        assert len(name.encode()) < 255

    @pytest.mark.parametrize("below", ["file/x", "file", "a" * 256, "\0"])
    def test_what_cannot_be_made(self, below: str, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match="cannot be made a run folder"):
            RunFolder.create("x", tmp_path / below)
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def test_one_writer(self, tmp_path: Path) -> None:
        folder = RunFolder.create("x", tmp_path)
        with folder.lock(), pytest.raises(ConfigError, match="another process"), RunFolder(tmp_path).lock():
            pass
        with folder.lock():
            pass


class TestStatus:
    def test_a_run_whose_process_is_gone_has_crashed(self, tmp_path: Path) -> None:
        folder = RunFolder.create("x", tmp_path)
        with folder.lock():
            folder.write_status("running", steps=3)
            assert folder.read_status()["state"] == "running"
        assert folder.read_status()["state"] == "crashed"
        assert json.loads(folder.status.read_text())["state"] == "running"

    @pytest.mark.parametrize(
        "text", [None, "", "{", "[]", "3", "{}", '{"state": "done"}', '{"state": "done", "steps": "x"}']
    )
    def test_a_damaged_status_is_named(self, text: str | None, tmp_path: Path) -> None:
        if text is not None:
            (tmp_path / "status.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"status\.json: missing or damaged"):
            RunFolder(tmp_path).read_status()

    def test_one_that_cannot_be_written_is_said(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        RunFolder(tmp_path / "gone").write_status("running", steps=1)
        assert "status.json cannot be written (No such file or directory)" in caplog.text

    def test_a_configuration_that_cannot_be_written_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"config\.yaml: cannot be written"):
            RunFolder(tmp_path / "gone").write_config("")

    def test_failed(self, tmp_path: Path) -> None:
        with pytest.raises(prl.EnvError, match="told to fail"):
            prl.train("PPO", Failing, steps=512, overrides=TINY, preset="default", run=tmp_path / "x")
        status = RunFolder(tmp_path / "x").read_status()
        assert status["state"] == "failed"
        assert status["error"].startswith("EnvError: ")
        assert "told to fail" in status["error"]

    def test_the_commit_is_the_library_s_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
        git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x"]
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        package = tmp_path / ".venv" / "site-packages" / "pytorchrl"
        package.mkdir(parents=True)
        monkeypatch.setattr("pytorchrl.run_folder.__file__", str(package / "run_folder.py"))
        assert surroundings(["x"])["commit"] is None  # installed inside somebody else's checkout
        package = tmp_path / "src" / "pytorchrl"
        package.mkdir(parents=True)
        monkeypatch.setattr("pytorchrl.run_folder.__file__", str(package / "run_folder.py"))
        assert re.fullmatch("[0-9a-f]{40}", surroundings(["x"])["commit"])


class Short(CartPoleEnv):
    """CartPole without a time limit of its own."""


class Failing(CartPoleEnv):
    """Fails from the 20th step on."""

    count = 0

    def step(self, action: Any) -> Any:
        Failing.count += 1
        if Failing.count >= 20:
            raise RuntimeError("told to fail")
        return super().step(action)


def make_short(length: int = 10) -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(Short(), length)


class TestPython:
    @pytest.mark.parametrize(
        ("env", "name"),
        [
            ("CartPole-v1", "CartPole-v1"),
            ("gymnasium:CartPole-v1", "gymnasium:CartPole-v1"),
            (Short, "Short"),
            (make_short, "make_short"),
            (lambda: make_short(5), "lambda"),
        ],
    )
    def test_environments(self, env: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        run = prl.train("ppo", env, steps=128, overrides=TINY, preset="default")
        assert run.path.parent.name == "runs"
        assert run.path.name.startswith(f"PPO__{name.replace(':', '-')}__seed1__20")
        assert read_yaml(run.path / "config.yaml").plain()["env"]["id"] == name
        assert run.policy.info["env"] == name
        action, _ = run.policy.predict(make_short().reset(seed=0)[0])
        assert action in (0, 1)
        assert run.report() == run.path / "report.html"

    def test_what_the_environment_is_made_with(self, tmp_path: Path) -> None:
        overrides = TINY | {"env.kwargs": {"length": 4}}
        run = prl.train("ppo", make_short, steps=128, overrides=overrides, preset="default", run=tmp_path / "x")
        assert set(run.scores) == {4.0}

    def test_overrides_and_seeds(self, tmp_path: Path) -> None:
        overrides = TINY | {"algorithm.gamma": 0.5, "learning_rate": 0.25, "anneal": {}}
        prl.train("ppo", "CartPole-v1", steps=64, seed=2**63 - 1, overrides=overrides, run=tmp_path / "x")
        written = read_yaml(tmp_path / "x" / "config.yaml").plain()
        assert written["algorithm"]["config"].items() >= {"gamma": "0.5", "lr": "0.25"}.items()
        assert written["run"]["seed"] == str(2**63 - 1)

    def test_a_bad_request_leaves_no_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for bad in ({"algorithm.gamma": 2}, {"env.kwargs.x": 1}, {"storage.size": 10**12}):
            with pytest.raises(ConfigError):
                prl.train("ppo", "CartPole-v1", steps=64, overrides=bad)
        assert list(tmp_path.iterdir()) == []

    def test_nothing_is_printed_unless_asked_for(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        prl.train("ppo", "CartPole-v1", steps=64, overrides=TINY, run=tmp_path / "x")
        assert capsys.readouterr() == ("", "")
