"""The Learner: how long it runs, when it evaluates, what it anneals and reports; over a scheme that only counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import PPO
from pytorchrl.agent.env.vec_env import Episode
from pytorchrl.learner import Learner
from pytorchrl.scheme.scheme import Round


class CountingScheme:
    """Ten environment steps and three updates a round; round k ends an episode of return k."""

    def __init__(self, **ppo: Any) -> None:
        self.actor = OnPolicyActor("cpu", spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2), "PPO")
        self.algorithm = PPO("cpu", None, self.actor, **{"test_every": 0, **ppo})
        self.rounds = self.evaluations = self.closed = 0
        self.seen: list[tuple[float, float, float]] = []

    def step(self) -> Round:
        self.rounds += 1
        ppo = self.algorithm
        self.seen.append((ppo.optimizers[0].param_groups[0]["lr"], ppo.clip_param, ppo.gamma))
        return Round(10, 3, {"loss": torch.tensor(float(self.rounds))}, [(7, Episode(0, float(self.rounds), 5))])

    def evaluate(self) -> list[Episode]:
        self.evaluations += 1
        return [Episode(0, 1.0, 1), Episode(1, 3.0, 1)]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def make() -> Callable[..., tuple[Any, Learner]]:
    def make_learner(
        target_steps: int = 100, ppo: dict[str, Any] | None = None, **options: Any
    ) -> tuple[CountingScheme, Learner]:
        scheme: Any = CountingScheme(**(ppo or {}))
        return scheme, Learner(scheme, target_steps, **options)

    return make_learner


def test_runs_to_the_target_and_closes(make: Callable[..., Any]) -> None:
    scheme, learner = make(35)
    while not learner.done():
        assert scheme.closed == 0
        learner.step()
    assert (learner.steps, learner.updates, scheme.rounds) == (40, 12, 4)
    learner.stop()
    assert scheme.closed == 1


@pytest.mark.parametrize(
    ("ppo", "options", "expected"),
    [
        ({"test_every": 4}, {}, [2, 3, 4, 6, 7, 8, 10]),  # updates 3, 6, 9, …: whenever a multiple of 4 is crossed
        ({"test_every": 9}, {}, [3, 6, 9]),
        ({"test_every": 1000}, {}, []),
        ({"test_every": 0}, {}, []),
        ({"test_every": 0}, {"eval_every": 25}, [3, 5, 8, 10]),
        ({"test_every": 1}, {"eval_every": 0}, []),
        ({"test_every": 1}, {"eval_every": 50}, [5, 10]),
    ],
)
def test_evaluates_when_a_multiple_is_crossed(
    make: Callable[..., Any], ppo: dict[str, int], options: dict[str, int], expected: list[int]
) -> None:
    scheme, learner = make(100, ppo, **options)
    evaluated = []
    while not learner.done():
        before = scheme.evaluations
        learner.step()
        if scheme.evaluations > before:
            evaluated.append(scheme.rounds)
            assert len(learner.last_evaluation) == 2
        else:
            assert learner.last_evaluation == []
    assert evaluated == expected


def test_annealing_is_linear_and_reaches_the_optimizer(make: Callable[..., Any]) -> None:
    scheme, learner = make(
        100, {"lr": 1e-2, "clip_param": 0.4, "gamma": 0.5}, anneal={"lr": 0.0, "clip_param": 0.1, "gamma": 1.0}
    )
    for _ in range(12):  # two rounds beyond the target as well
        learner.step()
    fractions = [min(k / 10, 1.0) for k in range(12)]
    expected = [(1e-2 * (1 - f), 0.4 - 0.3 * f, 0.5 + 0.5 * f) for f in fractions]
    assert np.array(scheme.seen) == pytest.approx(np.array(expected))


def test_a_parameter_that_is_not_there_cannot_be_annealed(make: Callable[..., Any]) -> None:
    with pytest.raises(AttributeError, match="lr_q"):
        make(100, anneal={"lr_q": 0.0})


def test_clipping_may_anneal_to_nothing(make: Callable[..., Any]) -> None:
    scheme, learner = make(20, anneal={"clip_param": 0.0, "lr": 0.0})
    for _ in range(4):
        learner.step()
    assert scheme.seen[-1][:2] == (0.0, 0.0)


def test_metrics_by_section(make: Callable[..., Any]) -> None:
    _, learner = make(1000, eval_every=30)
    assert learner.get_metrics(True, True) == {}
    for _ in range(3):
        learner.step()
    assert learner.get_metrics() == {"Algorithm/loss": 3.0}
    assert learner.get_metrics(False, add_episodes_metrics=True) == {
        "Episodes/TrainReward": 2.0,
        "Episodes/TrainLength": 5.0,
        "Episodes/TestReward": 2.0,
    }
    assert learner.get_metrics(False, add_scheme_metrics=True) == {
        "Scheme/NumberSamples": 30,
        "Scheme/NumberUpdates": 9,
    }
    timed = learner.get_metrics(False, add_time_metrics=True)
    assert set(timed) == {"Time/Elapsed", "Time/FramesPerSecond"}
    assert all(value > 0 for value in timed.values())


def test_the_mean_return_is_that_of_the_last_hundred_episodes(make: Callable[..., Any]) -> None:
    _, learner = make(10_000)
    for _ in range(150):
        learner.step()
    assert learner.get_metrics(False, True)["Episodes/TrainReward"] == pytest.approx(sum(range(51, 151)) / 100)


def test_parameters_change_on_the_way(make: Callable[..., Any]) -> None:
    scheme, learner = make()
    learner.update_algorithm_parameter("gamma", 0.25)
    assert scheme.algorithm.gamma == 0.25
    with pytest.raises(ValueError, match="Did you mean 'gamma'"):
        learner.update_algorithm_parameter("gama", 0.25)


def test_save_model(make: Callable[..., Any], tmp_path: Path) -> None:
    scheme, learner = make(log_dir=tmp_path / "new" / "folder")
    path = learner.save_model("weights")
    assert path == tmp_path / "new" / "folder" / "weights"
    saved = torch.load(path, weights_only=True)
    torch.testing.assert_close(saved, dict(scheme.actor.state_dict()), rtol=0, atol=0)
    assert learner.save_model().name == "model.state_dict"
    with pytest.raises(ValueError, match="log_dir"):
        make()[1].save_model()


def test_print_info_is_one_line(make: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    _, learner = make(2000)
    learner.step()
    learner.print_info()
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert printed.startswith("10 of 2,000 steps")
    assert "loss 1" in printed


def test_a_round_that_did_not_learn_has_no_losses(make: Callable[..., Any]) -> None:
    scheme, learner = make()
    scheme.step = lambda: Round(10, 0, {}, [])
    learner.step()
    assert learner.get_metrics(True, True) == {}
    assert (learner.steps, learner.updates) == (10, 0)


class TestCallbacks:
    def test_each_is_called_after_every_round(self) -> None:
        seen: list[tuple[int, float]] = []

        def note(learner: Learner, result: Round) -> None:
            seen.append((learner.steps, result.losses["loss"].item()))

        learner = Learner(CountingScheme(), 30, callbacks=[note, note])  # type: ignore[arg-type]
        while not learner.done():
            learner.step()
        assert seen == [(10, 1.0), (10, 1.0), (20, 2.0), (20, 2.0), (30, 3.0), (30, 3.0)]

    @pytest.mark.parametrize(("answer", "rounds"), [(True, 2), (None, 5), (1, 5)])
    def test_true_alone_ends_the_run(self, answer: Any, rounds: int) -> None:
        scheme = CountingScheme()
        learner = Learner(scheme, 50, callbacks=[lambda learner, result: answer if learner.steps == 20 else None])  # type: ignore[arg-type]
        while not learner.done():
            learner.step()
        assert (scheme.rounds, scheme.closed) == (rounds, 1)

    def test_a_run_that_ends_early_is_whole(self, tmp_path: Path) -> None:
        overrides = {"storage.size": 32, "env.num_envs": 2, "algorithm.num_epochs": 1, "run.log_every": 1000}
        run = prl.train(
            "PPO",
            "CartPole-v1",
            steps=640,
            overrides=overrides,
            run=tmp_path / "x",
            callbacks=[lambda learner, result: learner.steps >= 128],
        )
        assert (run.path / "checkpoints" / "128").is_dir()
        assert (run.path / "policy" / "policy.safetensors").is_file()
        assert (run.path / "progress.csv").read_text().splitlines()[-1].startswith("128,")
