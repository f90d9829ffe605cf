"""The zoo's presets: which environment gets which, and that each of them is whole."""

from __future__ import annotations

from fnmatch import fnmatchcase

import ale_py
import gymnasium
import pytest

from pytorchrl import registry
from pytorchrl.build import build_scheme
from pytorchrl.config import parse_override, resolve
from pytorchrl.presets import preset_for, presets_of, served_by

gymnasium.register_envs(ale_py)

# Small enough to begin at once; what an algorithm or storage does not have is left out.
SMALL = {"storage.size": 8, "start_steps": 2, "num_updates": 1, "update_every": 2, "mini_batch_size": 4}

PRESETS = [(algorithm, name) for algorithm in registry.ALGORITHMS for name in presets_of(algorithm)]


def example(algorithm: str, preset: str) -> str:
    """An environment that gets a preset."""
    if preset == "default":
        others = ["Taxi-v4"] if algorithm == "DDQN" else ["MountainCarContinuous-v0", "BipedalWalker-v3"]
        return next(env for env in others if preset_for(algorithm, env) == "default")
    pattern = served_by(algorithm)[preset][0]
    return "ALE/Pong-v5" if pattern == "ALE/*" else max(e for e in gymnasium.registry if fnmatchcase(e, pattern))


def test_an_environment_gets_its_own_then_its_familys_then_the_general_preset() -> None:
    assert preset_for("PPO", "CartPole-v1") == "CartPole-v1"
    assert preset_for("PPO", "LunarLanderContinuous-v3") == preset_for("PPO", "LunarLander-v3") == "lunar_lander"
    assert preset_for("PPO", "HalfCheetah-v5") == "mujoco"
    assert preset_for("PPO", "ALE/Pong-v5") == preset_for("PPO", "ALE/Breakout-v5")
    assert preset_for("PPO", "Taxi-v4") == "default"


def test_an_algorithm_without_presets_has_none_for_anything() -> None:
    assert presets_of("unheard_of") == {}
    assert preset_for("unheard_of", "CartPole-v1") is None


@pytest.mark.parametrize(("algorithm", "preset"), PRESETS)
def test_what_a_preset_is_for_exists(algorithm: str, preset: str) -> None:
    for pattern in served_by(algorithm)[preset]:
        assert preset == "default" or any(fnmatchcase(env_id, pattern) for env_id in gymnasium.registry), pattern


@pytest.mark.parametrize(("algorithm", "preset"), PRESETS)
def test_training_with_a_preset_begins(algorithm: str, preset: str) -> None:
    env = example(algorithm, preset)
    whole = resolve(algorithm, env)
    assert whole.preset == preset
    known = {"storage.size", *whole.algorithm.config}
    overrides = [parse_override(f"{name}={value}") for name, value in SMALL.items() if name in known]
    config = resolve(algorithm, env, overrides=[*overrides, parse_override("env.num_envs=2")])
    config.run.precision = "fp32"
    scheme = build_scheme(config, None, "cpu")
    try:
        assert scheme.step().env_steps > 0
        assert scheme.step().updates > 0
    finally:
        scheme.close()
