"""Rounds that are closed without stragglers, and updates that learners make among themselves."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest
import torch
from tests.scheme.test_distributed import kill_at_random, make, make_env, run, same, state_of

from pytorchrl import ASYNC, ConfigError
from pytorchrl.scheme import together
from pytorchrl.scheme.preemption import PARTS, Preemption
from pytorchrl.scheme.together import BrokenCircleError, digest, learn_together

THRESHOLDS = {"fraction_workers": 0.5, "fraction_samples": 0.25}


class Slow(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        time.sleep(0.01)
        return self.env.step(action)


def make_uneven(index_grad_worker: int) -> gym.Env[Any, Any]:
    env = make_env("CartPole-v1")
    return Slow(env) if index_grad_worker == 2 else env


class Clockwork:
    """Collectors that need 1, 1, 1 and 20 ticks for a step."""

    speeds = (1, 1, 1, 20)

    def __init__(self) -> None:
        self.now = 0
        self.due: list[tuple[int, int, int]] = []

    def send(self, worker: int, steps: int) -> None:
        self.due.append((self.now + steps * self.speeds[worker], worker, steps))

    def receive(self) -> Any:
        first = min(self.due)
        self.due.remove(first)
        self.now, worker, steps = first
        return SimpleNamespace(unit=SimpleNamespace(worker=worker), steps=steps)


@pytest.mark.parametrize(
    ("workers", "samples", "straggler", "ticks"),
    [(1.0, 1.0, 80, 1600), (0.75, 0.25, 20, 400), (0.75, 0.125, 10, 200), (1.0, 0.1, 80, 1600)],
)
def test_a_round_is_closed_as_the_thresholds_say(workers: float, samples: float, straggler: int, ticks: int) -> None:
    clock = Clockwork()
    preemption = Preemption({"fraction_workers": workers, "fraction_samples": samples}, 4, 80)
    for number in (1, 2, 3):
        before = clock.now
        rollouts = preemption.round(clock.send, clock.receive)
        held = [sum(part.steps for part in parts) for parts in rollouts]
        assert held == [80, 80, 80, straggler], number
        assert clock.now - before <= ticks
        # A straggler is at one part, which opens its next rollout; nobody else is at anything.
        assert [worker for _, worker, _ in clock.due] == ([3] if straggler < 80 else [])
        assert len(rollouts[0]) == PARTS


def test_stragglers_do_not_hold_up_a_round(warm: None) -> None:
    scheme = make("PPO", "process", env=(make_uneven, {}), num_grad_workers=2, col_preemption_thresholds=THRESHOLDS)
    distributed: Any = scheme.distributed
    with closing(scheme):
        results = [scheme.step() for _ in range(4)]
        sizes = [storage.size for storage in distributed.storages]
    assert all(result.updates == 4 for result in results)
    assert sum(result.env_steps for result in results) < 4 * 2 * 2 * 8  # not everybody had it all
    assert sizes[0] == 8
    assert 2 <= sizes[1] <= 8
    assert max(result.policy_lag for result in results) > 0  # what a straggler was playing is older


def test_without_thresholds_everything_is_waited_for() -> None:
    whole = {"fraction_workers": 1.0, "fraction_samples": 1.0}
    with closing(make("PPO", num_col_workers=2, col_preemption_thresholds=whole)) as scheme:
        assert scheme.distributed.preemption is None  # type: ignore[union-attr]


DECENTRALIZED: dict[str, Any] = {"num_grad_workers": 2, "decentralized_update_execution": True}


def test_learners_agree_whoever_is_lost(warm: None) -> None:
    whole = run(make("PPO", "process", **DECENTRALIZED), 4)
    scheme = make("PPO", "process", **DECENTRALIZED)
    kill_at_random(scheme, 3, seed=4)
    found = run(scheme, 4)
    assert scheme.distributed.crew.losses > 0  # type: ignore[union-attr]
    assert same(found, whole)


def test_a_learner_alone_takes_the_steps_of_a_single_process(tmp_path: Path) -> None:
    """In this process, with nobody to average with: weights, moments and updates."""
    scheme = make("PPO")
    with closing(scheme):
        scheme.collector.collect(8)
        other = make("PPO")
        with closing(other):
            other.collector.collect(8)
            infos = other.learn()
            found, updates = learn_together(
                scheme.products, scheme.algorithm, scheme.storage, 0, 1, str(tmp_path / "meeting")
            )
            assert updates == len(infos) == scheme.algorithm.iter
            assert set(found) == set(infos[0])
            for one, two in zip(state_of(scheme), state_of(other), strict=True):
                torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
            assert digest(scheme.actor.state_dict()) != digest(make("PPO", seed=9).actor.state_dict())


def test_a_learner_that_waits_in_vain_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "PATIENCE", 0.3)
    scheme = make("PPO")
    with closing(scheme), pytest.raises(BrokenCircleError):
        learn_together(scheme.products, scheme.algorithm, scheme.storage, 0, 2, str(tmp_path / "meeting"))


def test_learners_average_as_a_driver_does(warm: None) -> None:
    """Advantages are normalized and dealt out by each learner's own stream, so the first steps agree but for those."""
    parameters = {"num_mini_batch": 1, "num_epochs": 1}
    weights = []
    for options in (DECENTRALIZED, {"num_grad_workers": 2}):
        with closing(make("PPO", "process", algorithm_parameters=parameters, **options)) as scheme:
            result = scheme.step()
            assert result.updates == 1
            weights.append(torch.cat([value.flatten() for value in scheme.actor.state_dict().values()]))
            moments = scheme.algorithm.optimizers[0].state_dict()["state"]
            assert all(item["step"] == 1 for item in moments.values())
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-3, atol=1e-5)


def test_decentralized_halves_are_a_whole(warm: None) -> None:
    whole = run(make("PPO", "process", **DECENTRALIZED), 4)
    with closing(make("PPO", "process", **DECENTRALIZED)) as first:
        _ = [first.step() for _ in range(2)]
        state, weights = first.get_state(), first.actor.state_dict()
    with closing(make("PPO", "process", **DECENTRALIZED)) as second:
        second.actor.load_state_dict(weights)
        second.set_state(state)
        _ = [second.step() for _ in range(2)]
        assert same(state_of(second), whole)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"col_preemption_thresholds": {"fraction_worker": 0.5}}, "Did you mean 'fraction_workers'"),
        ({"col_preemption_thresholds": {"fraction_workers": 0.0}}, "expected a share above 0"),
        (
            {"col_preemption_thresholds": THRESHOLDS, "col_workers_communication": ASYNC},
            "asynchronous workers have none",
        ),
        ({**DECENTRALIZED, "num_col_workers": 2}, "workers that collect for themselves"),
        ({**DECENTRALIZED, "engine": "ray"}, "within one machine"),
        ({**DECENTRALIZED, "engine": "local"}, "needs processes"),
        ({**DECENTRALIZED, "algorithm": "DDQN", "engine": "process"}, "learns from a replay"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], told: str, warm: None) -> None:
    with pytest.raises(ConfigError, match=told):
        make(**options)
