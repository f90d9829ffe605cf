"""Runs of planning agents: what their logs tell, what files say of a user's own functions, and scores that repeat."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import pytorchrl as prl
from pytorchrl.agent.actors import reward_functions
from pytorchrl.run import evaluate

SMALL = {
    "start_steps": 40,
    "update_every": 20,
    "mb_epochs": 1,
    "actor.horizon": 5,
    "actor.n_planner": 20,
    "env.kwargs": {"max_episode_steps": 30},
    "run.log_every": 20,
    "run.logger": ["csv"],
}


def upright(obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
    return next_obs[:, :1]


def sideways(obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
    return (next_obs[:, 1:2] > 0.99).float()


def test_the_log_tells_of_the_model_and_of_promises(tmp_path: Path) -> None:
    run = prl.train("mpc_cem", "Pendulum-v1", steps=160, overrides=SMALL, run=tmp_path / "run")
    with (run.path / "progress.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    for name in ("loss", "validation_error", "predicted_return", "realized_return"):
        assert float(last[f"train/{name}"]) == float(last[f"train/{name}"])
    assert float(last["train/predicted_return"]) < 0 > float(last["train/realized_return"])
    scores = [[episode.ret for episode in evaluate(prl.load(run.path), 3, seed=5)] for _ in range(2)]
    assert scores[0] == scores[1]


def test_functions_of_ones_own_go_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"upright": reward_functions.REWARDS, "sideways": reward_functions.TERMINALS}
    for name, function in (("upright", upright), ("sideways", sideways)):
        monkeypatch.setitem(tables[name], name, function)  # gone after the test
    own: dict[str, Any] = {"actor.reward_function": upright, "actor.terminal_function": sideways}
    run = prl.train("mpc_pddm", "Pendulum-v1", steps=80, overrides=SMALL | own, run=tmp_path / "run")
    text = (run.path / "config.yaml").read_text()
    assert "reward_function: upright" in text
    assert "terminal_function: sideways" in text
    assert (
        json.loads((run.path / "policy" / "policy.json").read_text())["actor"]["config"]["reward_function"] == "upright"
    )
    model: Any = run.policy.actor.dynamics_model
    assert model.reward_function is upright
    assert model.terminal_function is sideways
    assert prl.resume(run.path, steps=100).path == run.path
    for name, known in tables.items():
        function = known.pop(name)  # as in another process
        with pytest.raises(prl.RLError, match=f"unknown .* function '{name}'"):
            prl.load(run.path)
        known[name] = function
