"""NaN and infinity, wherever they come from, stop a run before they touch a weight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl import state_tree
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env import VecEnv
from pytorchrl.checkpoint import newest_checkpoint
from pytorchrl.errors import NonFiniteError
from pytorchrl.policy import WEIGHTS, load_policy
from pytorchrl.run import train
from pytorchrl.trainer import STATE, STATE_TENSORS, repeat_failure

POISON = [np.nan, np.inf, -np.inf]
PPO_SMALL = {"storage.size": 16, "env.num_envs": 2, "algorithm.num_epochs": 1, "run.checkpoint_every": 32}
OFF_SMALL = {
    "storage.size": 200,
    "env.num_envs": 2,
    "algorithm.start_steps": 8,
    "algorithm.update_every": 4,
    "algorithm.num_updates": 1,
    "algorithm.mini_batch_size": 16,
    "run.checkpoint_every": 32,
}
AGENTS = {
    "PPO": PPO_SMALL,
    "A2C": {key: value for key, value in PPO_SMALL.items() if key != "algorithm.num_epochs"},
    "DDPG": OFF_SMALL,
    "TD3": OFF_SMALL,
    "SAC": OFF_SMALL,
    "MPO": OFF_SMALL,
}


class Poisoned(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that gives a non-finite value in one field at one of its steps."""

    def __init__(self, field: str, value: float, at: int) -> None:
        super().__init__(gym.make("Pendulum-v1", disable_env_checker=True))
        self.field, self.value, self.at, self.steps = field, value, at, 0

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        if self.steps == self.at:
            if self.field == "observation":
                observation = observation.copy()
                observation[1] = self.value
            elif self.field == "reward":
                reward = self.value
        return observation, reward, terminated, truncated, info


def weights_are_finite(run: Path) -> bool:
    path, files, _ = newest_checkpoint(run / "checkpoints")
    assert int(path.name) > 0
    tensors = state_tree.decode(files[STATE], files[STATE_TENSORS])
    assert tensors
    return all(tensor.isfinite().all() for tensor in load_policy(path).actor.state_dict().values())


@pytest.mark.parametrize("value", POISON)
@pytest.mark.parametrize("field", ["observation", "reward"])
@pytest.mark.parametrize("algorithm", AGENTS)
def test_poison_from_an_environment(algorithm: str, field: str, value: float, tmp_path: Path) -> None:
    def make(index_env: int) -> Any:
        return Poisoned(field if index_env == 1 else "none", value, at=37)

    with pytest.raises(NonFiniteError) as caught:
        train(algorithm, make, steps=400, overrides=AGENTS[algorithm], run=tmp_path / "run", preset="none")
    assert caught.value.who.startswith("environment 1")
    assert caught.value.when == "step 37"
    assert field in caught.value.what
    assert weights_are_finite(tmp_path / "run")
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "failed"
    assert "step 37" in status["error"]


@pytest.mark.parametrize("algorithm", AGENTS)
def test_poison_in_the_weights_stops_at_the_action(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = Algorithm.apply_gradients

    def apply_and_poison(self: Algorithm, gradients: Any = None) -> None:
        apply(self, gradients)
        if self.iter == 6:
            with torch.no_grad():
                for parameter in self.actor.parameters():
                    parameter.fill_(np.nan)

    monkeypatch.setattr(Algorithm, "apply_gradients", apply_and_poison)
    with pytest.raises(NonFiniteError):
        train(algorithm, "Pendulum-v1", steps=2000, overrides=AGENTS[algorithm], run=tmp_path / "run", preset="none")
    assert weights_are_finite(tmp_path / "run")


@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("algorithm", AGENTS)
def test_poison_in_an_update_touches_no_weight_and_can_be_repeated(
    algorithm: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytorchrl.scheme.scheme import Scheme

    kept: dict[str, Any] = {}
    learn = Scheme.learn

    def poisoned_learn(self: Scheme) -> Any:
        kept["scheme"] = self
        if self.algorithm.iter >= 4:
            kept["weights"] = {name: tensor.clone() for name, tensor in self.actor.state_dict().items()}
            poison(self, where, monkeypatch)
        return learn(self)

    monkeypatch.setattr(Scheme, "learn", poisoned_learn)
    with pytest.raises(NonFiniteError, match="weights were not touched"):
        train(algorithm, "Pendulum-v1", steps=2000, overrides=AGENTS[algorithm], run=tmp_path / "run", preset="none")
    for name, tensor in kept["scheme"].actor.state_dict().items():
        assert torch.equal(tensor, kept["weights"][name]), name
    failure = tmp_path / "run" / "failure"
    state = state_tree.decode((failure / STATE).read_bytes(), (failure / STATE_TENSORS).read_bytes())
    assert state["batch"].keys() >= {"Observation", "Action"}
    assert (failure / WEIGHTS).is_file()
    if where == "loss":
        monkeypatch.undo()
        with pytest.raises(NonFiniteError, match="loss"):
            repeat_failure(tmp_path / "run")


def poison(scheme: Any, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next update meets a batch, or a gradient, that is not finite."""
    if where == "gradient":
        next(iter(scheme.algorithm.actor.parameters())).register_hook(lambda gradient: gradient + torch.inf)
        return
    generate = scheme.storage.generate_batches

    def generate_bad_batches(*args: Any) -> Any:
        for batch in generate(*args):
            bad = {key: batch[key] + torch.nan for key in ("Reward", "ExternalReturn") if key in batch}
            yield {**batch, **bad}

    monkeypatch.setattr(scheme.storage, "generate_batches", generate_bad_batches)


@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_that_are_only_large_pass() -> None:
    class Large(Poisoned):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            return observation, 3e38, *rest

    envs = VecEnv(lambda: Large("none", 0.0, 0), 2)
    envs.reset([0, 1])
    _, reward, _, _ = envs.step(torch.zeros(2, 1))
    assert reward[0].item() == np.float32(3e38)
    envs.close()


def test_an_action_that_is_not_finite_never_reaches_the_environment() -> None:
    envs = VecEnv(lambda: gym.make("Pendulum-v1"), 2)
    envs.reset([0, 1])
    with pytest.raises(NonFiniteError, match="network"):
        envs.step(torch.tensor([[0.0], [float("nan")]]))
    envs.close()


def test_the_error_is_one_of_the_family() -> None:
    assert issubclass(NonFiniteError, prl.RLError)
