"""A live panel on a terminal, plain lines elsewhere, nothing when quiet; and an output is never a reason to stop."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from pytorchrl.cli import main
from pytorchrl.console import Lines, Panel, Silence, complain, display, duration, eta, percent, say, shown, sparkline

PROGRAM = str(Path(sys.executable).with_name("pytorchrl"))
SMALL = ["--envs", "2", "--set", "storage.size=32", "--set", "algorithm.num_epochs=2"]
TRAIN = ["train", "ppo", "CartPole-v1", *SMALL]


def figures(steps: int, fps: float = 100.0, **more: float) -> dict[str, float]:
    return {"time/total_timesteps": steps, "time/fps": fps, "train/n_updates": 7.0, **more}


RETURNS = {"rollout/ep_rew_mean": 12.34, "rollout/ep_len_mean": 56.0}
LOSSES = {"train/loss": 0.125, "train/value_loss": 4.0}


class TestUnits:
    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (0, "0 s"),
            (0.4, "0 s"),
            (59.4, "59 s"),
            (59.6, "1 min 00 s"),
            (61, "1 min 01 s"),
            (3599, "59 min 59 s"),
            (3600, "1 h 00 min"),
            (100_000, "27 h 46 min"),
        ],
    )
    def test_duration(self, seconds: float, text: str) -> None:
        assert duration(seconds) == text

    @pytest.mark.parametrize(
        ("steps", "fps", "text"),
        [(0, 10.0, "10 s"), (50, 10.0, "5 s"), (100, 10.0, "0 s"), (130, 10.0, "0 s"), (0, 0.0, "?"), (0, -1.0, "?")],
    )
    def test_eta(self, steps: int, fps: float, text: str) -> None:
        assert eta(figures(steps, fps), 100) == text

    @pytest.mark.parametrize(("steps", "text"), [(0, "0%"), (49, "49%"), (100, "100%"), (128, "100%")])
    def test_percent(self, steps: int, text: str) -> None:
        assert percent(steps, 100) == text

    @pytest.mark.parametrize(("value", "text"), [(None, "-"), (1.25, "1.2"), (-12345.6, "-12,345.6")])
    def test_shown(self, value: float | None, text: str) -> None:
        assert shown(value) == text

    @pytest.mark.parametrize(
        ("values", "bars"),
        [
            ([], ""),
            ([3.0], "▁"),
            ([5.0, 5.0], "▁▁"),
            ([0.0, 7.0], "▁█"),
            (range(8), "▁▂▃▄▅▆▇█"),
            ([float("nan"), 1.0, float("inf"), 2.0], "▁█"),
            ([*([0.0] * 99), 1.0], "▁▁▁▁▁▁▁█"),
        ],
    )
    def test_sparkline(self, values: list[float], bars: str) -> None:
        assert sparkline(values, 8) == bars

    def test_a_sparkline_is_as_wide_as_it_may_be(self) -> None:
        for count in range(200):
            assert len(sparkline([float(i) for i in range(count)], 48)) == min(count, 48)


class TestLines:
    def test_a_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        Lines(1000).update(figures(250, 50.0) | RETURNS | LOSSES, row=True)
        words = capsys.readouterr().out.split()
        told = "250 steps 25% 50/s ETA 15 s return 12.3 length 56.0"
        assert words == told.split()

    def test_two_a_second_and_the_last(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        clock = [0.0]
        monkeypatch.setattr("pytorchrl.console.time.monotonic", lambda: clock[0])
        lines = Lines(1000)
        for steps in range(10, 1001, 10):
            clock[0] += 0.1
            lines.update(figures(steps), row=steps % 20 == 0)
        told = [int(line.split()[0].replace(",", "")) for line in capsys.readouterr().out.splitlines()]
        assert told[0] == 20
        assert told[-1] == 1000
        assert 17 <= len(told) <= 21

    def test_silence(self, capsys: pytest.CaptureFixture[str]) -> None:
        shown = display("x", 10, quiet=True)
        assert isinstance(shown, Silence)
        shown.say("x")
        shown.update(figures(1), row=True)
        shown.close()
        assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class TestChoice:
    def test_a_panel_needs_a_terminal_that_can(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert isinstance(display("x", 10, quiet=False), Lines)
        monkeypatch.setattr(sys, "stdout", Terminal())
        monkeypatch.setenv("TERM", "xterm")
        panel = display("x", 10, quiet=False)
        panel.close()
        assert isinstance(panel, Panel)
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(display("x", 10, quiet=False), Lines)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(Terminal, "encoding", "ascii")
        assert isinstance(display("x", 10, quiet=False), Lines)


class TestPanel:
    def test_losses_stay_between_log_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv("COLUMNS", "100")
        panel = Panel("x", 1000)
        panel.update(figures(10) | RETURNS | LOSSES, row=True)
        monkeypatch.setattr("pytorchrl.console.REFRESH_SECONDS", -1.0)
        panel._next = 0.0
        terminal.truncate(0)
        panel.update(figures(20), row=False)
        panel.close()
        assert "value_loss 4" in terminal.getvalue()
        assert "20 of 1,000" in terminal.getvalue()


def through_a_terminal(words: list[str], cwd: Path, columns: int = 110) -> tuple[int, str]:
    """Exit code and output of a program that believes in a terminal."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (40, columns)) if sys.version_info >= (3, 11) else None
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
    process = subprocess.Popen(words, cwd=cwd, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    output, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 1.0)[0]:
            try:
                data = os.read(leader, 65536)
            except OSError:  # Linux: nobody holds the other end any more
                break
            if not data:
                break
            output += data
        elif process.poll() is not None:
            break
    os.close(leader)
    return process.wait(timeout=10), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode()).replace("\r", "")


class TestTheProgram:
    def test_the_panel(self, tmp_path: Path) -> None:
        name = "a-folder-whose-name-is-longer-than-the-terminal-is-wide-so-that-a-wrapped-line-could-not-be-copied"
        code, out = through_a_terminal([PROGRAM, *TRAIN, "--steps", "1024", "--run", name], tmp_path, columns=80)
        assert code == 0
        assert "PPO on CartPole-v1 for 1,024 steps, seed 1 (preset CartPole-v1)." in out
        frame = out[out.rindex("╭─") : out.rindex("╯")]
        assert re.search(r"╭─ PPO on CartPole-v1, seed 1 ─+╮", frame)
        for told in (
            r"steps +1,024 of 1,024  \(100%\)",
            r"speed +[\d,]+ steps/s   ETA 0 s",
            r"return +\d+\.\d  \(mean of the last 100 episodes\)",
            r"[▁-█]{5,}",
            r"length +\d+\.\d",
            r"updates +[\d,]+",
            r"losses .*loss -?\d",
        ):
            assert re.search(told, frame), (told, frame)
        assert {len(line) for line in frame.splitlines()[:-1]} == {80}
        assert f"\n{name}\n" in out
        assert f"pytorchrl evaluate {name}" in out

    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_lines_when_it_is_piped(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([*TRAIN, "--steps", "512", "--run", "x", "--set", "learning_rate=1e-3"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        lines = out.splitlines()
        assert lines[0].startswith("PPO on CartPole-v1 for 512 steps, seed 1 (preset CartPole-v1). The run lies in x")
        assert lines.count("learning_rate is algorithm.lr here.") == 1
        assert any(re.match(r" +512 steps 100% .*/s  ETA 0 s +return +\d+\.\d  length", line) for line in lines)
        assert "  look at the report    x/report.html" in lines
        assert "  score the policy      pytorchrl evaluate x" in lines

    def test_quiet(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([*TRAIN, "--steps", "64", "--run", "x", "--quiet"]) == 0
        assert capsys.readouterr() == ("", "")
        assert Path("x/report.html").is_file()

    def test_a_reader_that_leaves_does_not_stop_a_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            assert main([*TRAIN, "--steps", "512", "--run", "x"]) == 0
        assert '"state": "done"' in Path("x/status.json").read_text()

    def test_letters_that_the_output_lacks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", stream)
        assert main([*TRAIN, "--steps", "64", "--run", "ünï🎈"]) == 0
        assert b"\\xfcn\\xef\\U0001f388" in stream.buffer.getvalue()  # type: ignore[attr-defined]


def test_say_and_complain(capsys: pytest.CaptureFixture[str]) -> None:
    say("out ±")
    complain("err \ud800")
    assert capsys.readouterr() == ("out ±\n", "err \\ud800\n")
