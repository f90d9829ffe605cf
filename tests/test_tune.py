"""Searching hyper-parameters: where, how it is given up, gone on with and what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.agent.algorithms import PPO
from pytorchrl.cli import main
from pytorchrl.config import resolve
from pytorchrl.options import RunConfig
from pytorchrl.parameters import Node, Parameter, parameters_of
from pytorchrl.tune import Dimension, Tuning, dimension_of, search_space, with_values

optuna = pytest.importorskip("optuna")
SMALL = {"storage.size": 32, "env.num_envs": 2, "algorithm.num_epochs": 1, "algorithm.num_test_episodes": 1}
WORDS = [word for path, value in SMALL.items() for word in ("--set", f"{path}={value}")]


def config(steps: int = 320, **overrides: Any) -> RunConfig:
    nodes = [(path, Node.of(value)) for path, value in {**SMALL, "run.steps": steps, **overrides}.items()]
    return resolve("PPO", "CartPole-v1", overrides=nodes)


class FakeTrial:
    """Suggests the lower end of everything, and gives up when it is told to."""

    number = 0

    def __init__(self, give_up: bool = False) -> None:
        self.give_up = give_up
        self.reported: list[int] = []

    def suggest_float(self, name: str, low: float, high: float, log: bool = False) -> float:
        return low

    def suggest_int(self, name: str, low: int, high: int, log: bool = False) -> int:
        return low

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        return choices[0]

    def report(self, value: float, step: int) -> None:
        self.reported.append(step)

    def should_prune(self) -> bool:
        return self.give_up


class TestSpace:
    def test_every_dimension_lies_in_its_parameters_range(self) -> None:
        for name in ("PPO", "A2C", "SAC", "DDQN", "DDPG", "TD3"):
            env = "Pendulum-v1" if name != "DDQN" else "CartPole-v1"
            fixed = [("storage.size", Node(100)), ("run.steps", Node(1000))]
            resolved = resolve(name, env, overrides=fixed)
            space = search_space(resolved)
            assert len(space) > 4
            for choose in ("suggest_low", "suggest_high"):
                values = {dimension.path: dimension.suggest(Ends(choose == "suggest_high")) for dimension in space}
                tried = with_values(resolved, values)
                nodes = [(path, Node.of(value)) for path, value in values.items()]
                resolve(
                    name, env, overrides=[("run.steps", Node(1000)), ("storage.size", Node(100)), *nodes]
                )  # every value is accepted
                assert tried.algorithm.config != resolved.algorithm.config

    def test_by_type_and_range(self) -> None:
        class Taken:
            """x

            Parameters
                rate: r
            """

            def __init__(self, rate: float = 0.01, many: int = 8, sure: bool = True, name: str = "a") -> None:
                pass

        found = parameters_of(Taken)
        assert dimension_of("rate", found["rate"], 0.01) == Dimension("rate", 0.001, 0.1, log=True)
        assert dimension_of("many", found["many"], 8) == Dimension("many", 2, 32, whole=True, log=True)
        assert dimension_of("sure", found["sure"], True) == Dimension("sure", choices=(False, True))
        assert dimension_of("name", found["name"], "a") is None
        gamma = Parameter("gamma", PPO.configurable()["gamma"].annotation, 0.99, "")
        discount = dimension_of("gamma", gamma, 0.99)
        assert discount is not None
        assert (discount.suggest(Ends(False)), discount.suggest(Ends(True))) == pytest.approx((0.998, 0.95))

    def test_chosen_paths_and_misspelt_ones(self) -> None:
        assert [d.path for d in search_space(config(), ["algorithm.lr", "storage.size"])] == [
            "algorithm.lr",
            "storage.size",
        ]
        with pytest.raises(prl.ConfigError, match=r"Did you mean 'algorithm\.lr'"):
            search_space(config(), ["algorithm.lrr"])

    def test_large_memories_are_left_alone(self) -> None:
        large = search_space(config(**{"storage.size": 20_000}))
        assert "storage.size" not in [dimension.path for dimension in large]


class Ends(FakeTrial):
    """Suggests the lower or the upper end."""

    def __init__(self, high: bool) -> None:
        super().__init__()
        self.high = high

    def suggest_float(self, name: str, low: float, high: float, log: bool = False) -> float:
        return high if self.high else low

    def suggest_int(self, name: str, low: int, high: int, log: bool = False) -> int:
        return high if self.high else low

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        return choices[-1 if self.high else 0]


class TestTrial:
    def test_evaluations_are_reported_and_the_last_one_counts(self, tmp_path: Path) -> None:
        trial = FakeTrial()
        score = Tuning(config(), search_space(config(), ["algorithm.lr"]), tmp_path).try_out(trial)
        assert trial.reported == [1, 2, 3, 4, 5]
        rows = (tmp_path / "trial-0" / "progress.csv").read_text().splitlines()
        column = rows[0].split(",").index("eval/mean_reward")
        assert score == float(rows[-1].split(",")[column])
        assert "lr: 0.0001\n" in (tmp_path / "trial-0" / "config.yaml").read_text()

    def test_a_hopeless_one_is_given_up(self, tmp_path: Path) -> None:
        tuning = Tuning(config(), search_space(config(), ["algorithm.lr"]), tmp_path)
        trial = FakeTrial(give_up=True)
        with pytest.raises(optuna.TrialPruned):
            tuning.try_out(trial)
        assert trial.reported == [1]
        assert json.loads((tmp_path / "trial-0" / "status.json").read_text())["steps"] == 64


def test_the_command_goes_on_where_it_was_and_its_best_can_be_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["tune", "ppo", "CartPole-v1", "--steps", "320", "--search", "algorithm.lr,algorithm.gamma", *WORDS]
    assert main([*words, "--trials", "1"]) == 0
    assert main([*words, "--trials", "3"]) == 0
    told = capsys.readouterr().out
    folder = tmp_path / "tune" / "PPO__CartPole-v1"
    assert sorted(path.name for path in folder.glob("trial-*")) == ["trial-0", "trial-1", "trial-2"]
    assert "3 complete; best score" in told
    rates = {(path / "config.yaml").read_text().partition(" lr: ")[2][:12] for path in folder.glob("trial-*")}
    assert len(rates) == 3
    best = resolve(None, None, config=folder / "best.yaml")
    assert best.storage.config["size"] == 32
    assert f"{best.algorithm.config['lr']:.4g}" in told


@pytest.mark.slow
def test_in_parallel(tmp_path: Path) -> None:
    tuning = Tuning(config(), search_space(config(), ["algorithm.lr"]), tmp_path)
    study = tuning.run(4, jobs=2)
    assert 4 <= len(study.trials) <= 5
    assert len(list(tmp_path.glob("trial-*"))) == len(study.trials)


def test_a_failed_trial_does_not_end_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuning = Tuning(config(), search_space(config(), ["algorithm.lr"]), tmp_path)

    def fail(trial: Any) -> float:
        if trial.number == 0:
            raise prl.NonFiniteError("NaN in the loss")
        return 1.0

    object.__setattr__(tuning, "try_out", fail)
    study = tuning.run(2)
    assert [trial.state.name for trial in study.trials] == ["FAIL", "COMPLETE"]
