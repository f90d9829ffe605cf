"""pytorchrl report: pages and figures of one run or several, and the live view."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.report.pages import folder_with

import pytorchrl as prl
from pytorchrl.cli import main
from pytorchrl.report.serve import server
from pytorchrl.run_folder import RunFolder

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    overrides = {"env.num_envs": 2, "storage.size": 32, "algorithm.num_epochs": 1}
    folder = tmp_path_factory.mktemp("runs") / "other"
    return prl.train("PPO", "CartPole-v1", steps=256, seed=4, overrides=overrides, run=folder).path


def test_one_run_and_its_figures(other: Path, capsys: Captured) -> None:
    assert main(["report", str(other)]) == 0
    assert capsys.readouterr().out == f"{other / 'report.html'}\n"
    names = {file.name for file in (other / "report_figures").iterdir()}
    assert {"returns.svg", "returns.png", "loss.svg", "loss.png"} <= names
    assert "evaluation.svg" not in names  # there was none


def test_several_runs_are_compared(finished: Path, other: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "new" / "page.html"
    assert main(["report", str(finished), str(other), str(finished), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert "<h1>CartPole-v1: PPO (num_epochs=2" in out.read_text()
    assert (out.parent / "page_figures" / "curves-CartPole-v1.svg").is_file()


def test_nothing_to_compare_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / name).mkdir()
        folder_with(tmp_path / name)
    assert main(["report", "a", "b"]) == 2
    assert "has a finished episode" in capsys.readouterr().err
    assert not (tmp_path / "comparison.html").exists()


def test_a_resumed_run_still_tells_the_command_that_began_it(other: Path) -> None:
    status = RunFolder(other).read_status()
    status |= {"command": ["pytorchrl", "train", "ppo", "CartPole-v1"], "preset": "mine"}
    RunFolder(other).write_status(**status)
    prl.resume(other, steps=320)
    again = RunFolder(other).read_status()
    assert (again["command"], again["preset"], again["steps"]) == (status["command"], "mine", 320)


class TestLive:
    def test_the_program_serves_the_page_until_it_is_interrupted(self, finished: Path) -> None:
        program = [sys.executable, "-c", "import sys; from pytorchrl.cli import main; sys.exit(main(sys.argv[1:]))"]
        command = [*program, "report", str(finished), "--live"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = process.stdout.readline()
            port = int(re.match(r"http://127\.0\.0\.1:(\d+)/ follows", told)[1])  # type: ignore[index]
            page = self.get(port, "/")
            assert page[0] == 200
            assert "<h1>finished</h1>" in page[1]
            assert "<script>" in page[1]
            assert self.get(port, "/report.html")[0] == self.get(port, "/../status.json")[0] == 404
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(20) == 0

    def test_other_sites_cannot_read_it(self) -> None:
        import threading

        with server(lambda: "<main></main>") as live:
            threading.Thread(target=live.serve_forever, daemon=True).start()
            assert self.get(live.server_port, "/", host="evil.example")[0] == 403
            assert self.get(live.server_port, "/", host=f"localhost:{live.server_port}")[0] == 200
            live.shutdown()

    def test_a_run_that_cannot_be_read_is_said(self) -> None:
        import threading

        def damaged() -> str:
            raise prl.CheckpointError("status.json: damaged")

        with server(damaged) as live:
            threading.Thread(target=live.serve_forever, daemon=True).start()
            assert self.get(live.server_port, "/") == (503, "status.json: damaged")
            live.shutdown()

    def get(self, port: int, path: str, host: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text
