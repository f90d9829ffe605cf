"""Every scheme learns what one process learns, from the command's own way, on processes and on Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pytorchrl
from pytorchrl.run import evaluate

# Scheme: algorithm, environment, threshold, what differs from the presets. Environments are split among workers.
CASES: dict[str, tuple[str, str, float, dict[str, Any]]] = {
    "a2c": ("a2c", "CartPole-v1", 475, {"env.num_envs": 8}),
    "a3c": ("a2c", "CartPole-v1", 475, {"env.num_envs": 8, "run.steps": 400_000}),
    "dppo": ("ppo", "CartPole-v1", 475, {"env.num_envs": 4}),
    "ddppo": ("ppo", "CartPole-v1", 475, {"env.num_envs": 4}),
    "impala": ("a2c", "CartPole-v1", 475, {"env.num_envs": 8, "run.steps": 400_000}),
    "apex": ("ddqn", "CartPole-v1", 475, {"run.steps": 100_000}),
    "r2d2": ("ddqn", "CartPole-v1", 200, {"run.steps": 100_000}),
    "rapid": ("ppo", "CartPole-v1", 475, {"env.num_envs": 4, "run.steps": 100_000}),
    "dppo-pendulum": ("ppo", "Pendulum-v1", -200, {"env.num_envs": 4}),
    "apex-pendulum": ("ddpg", "Pendulum-v1", -200, {}),
}
ENGINES = ["process", pytest.param("ray", marks=pytest.mark.ray)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_schemes_learn(case: str, engine: str, seed: int, tmp_path: Path) -> None:
    algorithm, env, threshold, overrides = CASES[case]
    scheme = case.partition("-")[0]
    if (scheme, engine) == ("ddppo", "ray"):
        pytest.skip("ddppo works within one machine")
    chosen = {"scheme.name": scheme, "scheme.engine": engine, **overrides}
    run = pytorchrl.train(algorithm, env, seed=seed, overrides=chosen, run=tmp_path / "run")
    episodes = evaluate(run.policy, 100, seed=100 + seed)
    assert sum(episode.ret for episode in episodes) / 100 >= threshold
