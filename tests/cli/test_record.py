"""``pytorchrl record``: a run's policy as demonstrations, and training with them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from pytorchrl.agent.storages import PPODBuffer
from pytorchrl.cli import main
from pytorchrl.keys import ACT, OBS


def test_a_run_records_what_the_buffer_loads(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demos"
    assert main(["record", "CartPole-v1", "--out", str(out), "--run", str(finished), "--episodes", "2"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1].startswith("Train with them: pytorchrl train ppod CartPole-v1")
    env = gym.make("CartPole-v1")
    envs: Any = SimpleNamespace(
        num_envs=1, observation_space=env.observation_space, action_space=env.action_space, env_kwargs={}
    )
    storage = PPODBuffer(8, "cpu", None, None, envs, initial_human_demos_dir=str(out))  # type: ignore[arg-type]
    policy = prl.load(finished)
    for demo, line in zip(storage.reward_demos, told, strict=False):
        assert demo["TotalReward"] == demo["DemoLength"]
        assert f"{demo['DemoLength']} steps" in line
        for t in (0, demo["DemoLength"] - 1):
            assert policy.predict(demo[OBS][t])[0] == demo[ACT][t, 0]


def test_from_recording_to_training(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "demos"
    prl.record("CartPole-v1", out, finished, 3)
    small = ["--envs", "2", "--set", "storage.size=64", "--set", "algorithm.num_mini_batch=2", "--quiet"]
    words = ["train", "ppod", "CartPole-v1", "--steps", "300", "--set", f"storage.initial_human_demos_dir={out}"]
    assert main([*words, *small, "--run", str(tmp_path / "run")]) == 0
    header, *_, last = (tmp_path / "run" / "progress.csv").read_text().splitlines()
    figures = dict(zip(header.split(","), last.split(","), strict=True))
    assert float(figures["train/RewardDemos"]) >= 3
    assert prl.load(tmp_path / "run").info["algorithm"] == "PPOD"


def test_a_policy_of_another_environment_is_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(prl.ConfigError, match="the policy was trained for CartPole-v1"):
        prl.record("Acrobot-v1", tmp_path / "out", finished, 1)
    assert not (tmp_path / "out").exists()
