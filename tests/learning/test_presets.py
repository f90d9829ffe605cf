"""The zoo's presets of PPO reach what they promise, through the command's own way: train, save, load, evaluate."""

from __future__ import annotations

from pathlib import Path

import pytest

import pytorchrl
from pytorchrl.config import resolve
from pytorchrl.run import evaluate


def score(env: str, seed: int, folder: Path) -> float:
    """Mean return of 100 deterministic episodes of the preset's final policy."""
    run = pytorchrl.train("ppo", env, seed=seed, run=folder / "run")
    episodes = evaluate(run.policy, 100, seed=100 + seed)
    assert len(episodes) == 100
    return sum(episode.ret for episode in episodes) / 100


def test_cartpole_is_solved(tmp_path: Path) -> None:
    assert score("CartPole-v1", 1, tmp_path) >= 475


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_cartpole_is_solved_by_every_seed(tmp_path: Path, seed: int) -> None:
    assert score("CartPole-v1", seed, tmp_path) >= 475


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_pendulum_swings_up_with_every_seed(tmp_path: Path, seed: int) -> None:
    assert score("Pendulum-v1", seed, tmp_path) >= -200


@pytest.mark.parametrize(("env", "most"), [("CartPole-v1", 100_000), ("Pendulum-v1", 200_000)])
def test_steps_of_the_presets(env: str, most: int) -> None:
    assert resolve("ppo", env).run.steps <= most
