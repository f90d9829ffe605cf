"""The schemes by name: what each is made of, and that a command is enough to run it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import pytorchrl
from pytorchrl import ASYNC, SYNC, ConfigError
from pytorchrl.cli.main import main
from pytorchrl.config import resolve, scheme_preset
from pytorchrl.parameters import Node
from pytorchrl.registry import SCHEMES

# Scheme: algorithm, (collectors of each, communication), (gradient workers, communication), storage.
PAPERS: dict[str, tuple[str, tuple[int, str], tuple[int, str], str]] = {
    "single": ("PPO", (1, SYNC), (1, SYNC), "GAEBuffer"),
    "a2c": ("A2C", (2, SYNC), (1, SYNC), "GAEBuffer"),
    "a3c": ("A2C", (1, SYNC), (2, ASYNC), "GAEBuffer"),
    "dppo": ("PPO", (1, SYNC), (2, SYNC), "GAEBuffer"),
    "ddppo": ("PPO", (1, SYNC), (2, SYNC), "GAEBuffer"),
    "impala": ("A2C", (2, ASYNC), (1, SYNC), "VTraceBuffer"),
    "apex": ("DDQN", (2, ASYNC), (1, ASYNC), "PERBuffer"),
    "r2d2": ("DDQN", (2, ASYNC), (1, ASYNC), "PERBuffer"),
    "rapid": ("PPO", (2, ASYNC), (2, SYNC), "GAEBuffer"),
}


def test_every_name_has_a_preset() -> None:
    assert set(PAPERS) == set(SCHEMES)
    assert all("config" in scheme_preset(name).value for name in SCHEMES)


@pytest.mark.parametrize("name", PAPERS)
def test_presets_are_what_the_papers_say(name: str) -> None:
    algorithm, collectors, learners, storage = PAPERS[name]
    config = resolve(algorithm, "CartPole-v1", overrides=[("scheme.name", Node(name))])
    scheme = config.scheme.config
    assert (scheme["num_col_workers"], scheme["col_workers_communication"]) == collectors
    assert (scheme["num_grad_workers"], scheme["grad_workers_communication"]) == learners
    assert config.storage.name == storage
    if name == "apex":
        assert config.storage.config.items() >= {"alpha": 0.6, "n_step": 3}.items()
        assert scheme["epsilon_ladder"]


def test_what_a_user_says_counts_more(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "algorithm: {name: DDQN}\nenv: {id: CartPole-v1}\nrun: {steps: 10}\nstorage: {config: {size: 9, n_step: 5}}\n"
        "scheme: {name: apex, config: {num_col_workers: 7}}\n"
    )
    config = resolve(None, None, config=path)
    assert (config.storage.name, config.storage.config["n_step"], config.storage.config["alpha"]) == (
        "PERBuffer",
        5,
        0.6,
    )
    assert config.scheme.config["num_col_workers"] == 7
    path.write_text(config.to_yaml())
    again = resolve(None, None, config=path)  # a run's own file repeats it
    assert (again.scheme, again.storage) == (config.scheme, config.storage)


@pytest.mark.parametrize("name", [name for name in PAPERS if name != "single"])
def test_a_run_from_start_to_end(name: str, tmp_path: Path, warm: None) -> None:
    """Train, save, resume: the same parts as on one process."""
    ppo = {"storage.size": 16, "env.num_envs": 2, "algorithm.num_epochs": 1}
    sizes: dict[str, Any] = {"PPO": ppo, "A2C": {"storage.size": 8}, "DDQN": {}}
    algorithm = PAPERS[name][0]
    engine = "process" if name == "ddppo" else "local"
    overrides = {"scheme.name": name, "scheme.engine": engine, **sizes[algorithm]}
    if name == "r2d2":
        overrides |= {"actor.recurrent_net_kwargs": {"layer_size": 8, "num_layers": 1}}
        overrides |= {"algorithm.update_every": 8, "algorithm.num_updates": 8}
    if algorithm == "DDQN":
        overrides |= {"algorithm.start_steps": 32, "storage.size": 500, "algorithm.mini_batch_size": 40}
        overrides |= {"actor.common_feature_extractor_kwargs": {"hidden_sizes": [8]}}
    run = pytorchrl.train(algorithm, "CartPole-v1", steps=300, seed=2, overrides=overrides, run=tmp_path / "run")
    with (run.path / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert int(rows[-1]["time/total_timesteps"]) >= 300
    assert int(rows[-1]["train/n_updates"]) > 0
    if "a" in (PAPERS[name][1][1][0], PAPERS[name][2][1][0]):
        assert any(float(row["scheme/policy_lag"]) + float(row["scheme/gradient_asynchrony"]) > 0 for row in rows)
    further = pytorchrl.resume(run.path, steps=500)
    assert further.path == run.path
    assert pytorchrl.load(run.path).predict([0.0, 0.0, 0.0, 0.0])[0] in (0, 1)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], warm: None) -> None:
    words = ["train", "ppo", "CartPole-v1", "--steps", "600", "--scheme", "dppo", "--grad-workers", "3", "--envs", "2"]
    words += ["--engine", "process", "--set", "storage.size=32", "--run", str(tmp_path / "run")]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "Scheme dppo: 3 gradient workers, which collect for themselves, on engine process." in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ppo", "--scheme", "impalla"], "Did you mean 'impala'?"),
        (["sac", "--scheme", "impala"], "scheme impala needs an algorithm that learns from rollouts, and SAC does not"),
        (["ppo", "--scheme", "apex"], "scheme apex needs an algorithm that learns from replays, and PPO does not"),
        (["ppo", "--col-workers", "0"], "scheme.num_col_workers: expected a number of at least 1"),
        (["ppo", "--engine", "rya"], "Did you mean 'ray'?"),
        (["ppo", "--set", "scheme.num_workers=3"], "scheme.num_workers"),
    ],
)
def test_bad_requests(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", words[0], "Pendulum-v1", *words[1:]]) == 2
    assert told in capsys.readouterr().err


def test_units_longer_than_a_rollout_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"a rollout of 500 steps, and storage\.size is 128"):
        pytorchrl.train(
            "PPO", "CartPole-v1", overrides={"scheme.name": "rapid", "scheme.engine": "local", "scheme.col_steps": 500}
        )
