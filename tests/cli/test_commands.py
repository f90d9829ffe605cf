"""The commands as a user meets them."""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
from pathlib import Path

import pytest

from pytorchrl import __version__
from pytorchrl.cli import main
from pytorchrl.cli.main import MODULES
from pytorchrl.registry import ALGORITHMS, STORAGES

Captured = pytest.CaptureFixture[str]


def said(capsys: Captured, *words: str) -> str:
    """What a command writes to standard output when all is well."""
    assert main(list(words)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


class TestHelp:
    def test_only_what_works_is_offered(self, capsys: Captured) -> None:
        told = said(capsys)
        assert all(re.search(rf"^    {command}\s", told, re.MULTILINE) for command in MODULES)
        assert not any(f"    {command} " in told for command in ("bench",))

    def test_version(self, capsys: Captured) -> None:
        assert said(capsys, "--version") == f"pytorchrl {__version__}\n"

    def test_flags(self, capsys: Captured) -> None:
        told = said(capsys, "train", "--help")
        assert told.startswith("usage: pytorchrl train ALGO ENV [options]")
        assert all(flag in told for flag in ("--steps N", "--set PATH=VALUE", "--config FILE", "--quiet"))
        assert "algorithm.lr" not in told

    def test_every_parameter_with_its_default(self, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "140")
        told = said(capsys, "train", "ppo", "--help")
        for line in (
            "storage.size=…  steps per rollout and environment (int, required)",
            "run.seed=1  root of every random stream (int)",
            "env.kwargs={}  what the environment is made with (a mapping of anything)",
            "run.logger=[csv, tensorboard]",
            "actor.feature_extractor_network=null",
            "anneal.NAME=VALUE",
        ):
            assert " ".join(line.split()) in " ".join(told.split())
        assert max(map(len, told.splitlines())) <= 140

    def test_every_parameter_with_the_value_it_would_have(self, capsys: Captured) -> None:
        words = ["train", "ppo", "CartPole-v1", "--seed", "5", "--set", "n_steps=77", "--help"]
        told = said(capsys, *words).split()
        assert {"storage.size=77", "run.seed=5", "env.id=CartPole-v1", "anneal.lr=0.0"} <= set(told)

    def test_values_can_be_typed_as_they_are_shown(self, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "400")
        told = said(capsys, "train", "ppo", "CartPole-v1", "--help")
        shown = [line.strip().partition("  ")[0] for line in told.splitlines() if line.startswith("  ") and "=" in line]
        shown = [word for word in shown if word.partition(".")[0] in ("algorithm", "storage", "actor", "env", "run")]
        assert len(shown) > 25
        words = [word for setting in shown for word in ("--set", setting)]
        assert said(capsys, "train", "ppo", "CartPole-v1", *words, "--help") == told


class TestList:
    @pytest.mark.parametrize(
        ("what", "names"),
        [
            ("algorithms", ALGORITHMS),
            ("storages", STORAGES),
            ("actors", ["OnPolicyActor"]),
            ("envs", ["CartPole-v1", "Pendulum-v1"]),
            ("presets", ["ppo/default", "ppo/CartPole-v1"]),
            ("schemes", ["single"]),
        ],
    )
    def test_each_has_a_line(self, what: str, names: list[str], capsys: Captured) -> None:
        lines = said(capsys, "list", what).splitlines()
        rows = {line.split("  ")[0]: line.split("  ", 1)[1].strip() for line in lines}
        assert set(names) <= set(rows)
        assert all(rows.values())


class TestFamilies:
    def test_a_missing_one_comes_with_the_command_that_installs_it(
        self, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = said(capsys, "list", "envs")
        assert "family minigrid" in there
        assert re.search(r"^family mujoco +installed, [1-9]\d* environments$", there, re.MULTILINE)
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mujoco" else find(name))
        without = said(capsys, "list", "envs")
        assert re.search(r"^family mujoco +missing; pip install 'pytorchrl\[mujoco\]'$", without, re.MULTILINE)
        assert re.search(r"^HalfCheetah-v5 +missing; pip install 'pytorchrl\[mujoco\]'$", without, re.MULTILINE)


class TestEvaluate:
    def test_json(self, finished: Path, capsys: Captured) -> None:
        told = json.loads(said(capsys, "evaluate", str(finished), "--episodes", "3", "--json"))
        assert list(told) == [
            "env",
            "algorithm",
            "steps",
            "episodes",
            "mean_return",
            "std_return",
            "mean_length",
            "returns",
        ]
        assert (told["env"], told["algorithm"], told["steps"], told["episodes"]) == ("CartPole-v1", "PPO", 256, 3)
        assert told["mean_return"] == statistics.fmean(told["returns"]) == told["mean_length"]
        assert told["std_return"] == pytest.approx(statistics.pstdev(told["returns"]))

    def test_text(self, finished: Path, capsys: Captured) -> None:
        told = said(capsys, "evaluate", str(finished), "--episodes", "2")
        assert told.startswith("PPO on CartPole-v1 after 256 steps: mean return ")
        assert told.endswith(" steps\n")
        assert " ± " in told
        assert "over 2 episodes of" in told

    def test_the_seed_decides(self, finished: Path, capsys: Captured) -> None:
        words = ("evaluate", str(finished), "--episodes", "4", "--json", "--seed")
        first, again, other = (said(capsys, *words, seed) for seed in ("5", "5", "6"))
        assert first == again != other

    @pytest.mark.parametrize(("name", "steps"), [("128", 128), ("256", 256), ("latest", 256)])
    def test_a_checkpoint(self, name: str, steps: int, finished: Path, capsys: Captured) -> None:
        words = ("evaluate", str(finished), "--episodes", "1", "--json", "--checkpoint", name)
        assert json.loads(said(capsys, *words))["steps"] == steps

    def test_another_environment(self, finished: Path, capsys: Captured) -> None:
        words = ("evaluate", str(finished), "--episodes", "1", "--json", "--env", "gymnasium:CartPole-v1")
        told = json.loads(said(capsys, *words))
        assert told["env"] == "gymnasium:CartPole-v1"


def test_report(finished: Path, capsys: Captured) -> None:
    assert said(capsys, "report", str(finished)) == f"{finished / 'report.html'}\n"


def test_an_environment_that_fails_shows_its_own_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing_suite.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Failing(CartPoleEnv):\n"
        "    def step(self, action):\n"
        "        raise RuntimeError('told to fail')\n"
        "gym.register('Failing-v0', Failing)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["train", "ppo", "failing_suite:Failing-v0", "--steps", "64", "--run", "x", "--quiet"]) == 1
    err = capsys.readouterr().err
    assert "RuntimeError: told to fail" in err
    assert "failing_suite.py" in err
    assert "pytorchrl: " in err
    assert json.loads((tmp_path / "x" / "status.json").read_text())["state"] == "failed"
