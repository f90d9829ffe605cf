"""SIGINT and SIGTERM while training: a checkpoint is saved, the status says so, and the exit code too."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytorchrl.checkpoint import checkpoints_in, read_checkpoint
from pytorchrl.cli import main

PROGRAM = str(Path(sys.executable).with_name("pytorchrl"))
TRAIN = [PROGRAM, "train", "ppo", "CartPole-v1", "--envs", "2", "--set", "storage.size=32", "--run", "x"]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_asked_to_stop(
    number: signal.Signals, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TRAIN, "--steps", "100000000", "--set", "run.log_every=64"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(tmp_path / "x" / "progress.csv", process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.startswith("pytorchrl: interrupted; a checkpoint was saved.")
    assert "pytorchrl resume x" in err
    assert len(err.splitlines()) == 1
    status = json.loads((tmp_path / "x" / "status.json").read_text())
    assert status["state"] == "interrupted"
    newest = checkpoints_in(tmp_path / "x" / "checkpoints")[0]
    assert int(newest.name) == status["steps"] > 0
    assert set(read_checkpoint(newest)) >= {"policy.json", "policy.safetensors"}
    assert main(["evaluate", str(tmp_path / "x"), "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == status["steps"]


def test_before_training_there_is_nothing_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pytorchrl.config.resolve", interrupted)
    monkeypatch.setattr("pytorchrl.cli.train.resolve", interrupted)
    assert main(["train", "ppo", "CartPole-v1"]) == 130
    assert capsys.readouterr() == ("", "pytorchrl: interrupted\n")
    assert list(tmp_path.iterdir()) == []
