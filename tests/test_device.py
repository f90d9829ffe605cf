"""Training, evaluation and resuming on a GPU; for machines that have one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl
from pytorchrl.run import evaluate

ON_POLICY = {"storage.size": 32}
OFF_POLICY = {"start_steps": 40, "update_every": 2, "num_updates": 2, "mini_batch_size": 16, "storage.size": 1000}
PLANNING = {"start_steps": 40, "update_every": 20, "mb_epochs": 1, "actor.horizon": 5, "actor.n_planner": 20}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", ON_POLICY),
    "ppo gaussian": ("ppo", "Pendulum-v1", {**ON_POLICY, "normalize_observations": True, "normalize_rewards": True}),
    "ppo gru": ("ppo", "CartPole-v1", {**ON_POLICY, "actor.recurrent_net": "GRU", "num_mini_batch": 1}),
    "ppo vtrace": ("ppo", "CartPole-v1", {**ON_POLICY, "storage.name": "VTraceBuffer"}),
    "ppo bf16": ("ppo", "CartPole-v1", {**ON_POLICY, "run.precision": "bf16"}),
    "a2c": ("a2c", "CartPole-v1", ON_POLICY),
    "ddqn": ("ddqn", "CartPole-v1", OFF_POLICY),
    "ddqn per": ("ddqn", "CartPole-v1", {**OFF_POLICY, "storage.name": "PERBuffer"}),
    "ddqn n-step": ("ddqn", "CartPole-v1", {**OFF_POLICY, "storage.name": "NStepBuffer"}),
    "ddpg": ("ddpg", "Pendulum-v1", OFF_POLICY),
    "ddpg ou": ("ddpg", "Pendulum-v1", {**OFF_POLICY, "actor.noise": "OU"}),
    "td3": ("td3", "Pendulum-v1", OFF_POLICY),
    "sac": ("sac", "Pendulum-v1", OFF_POLICY),
    "sac ere": ("sac", "Pendulum-v1", {**OFF_POLICY, "storage.name": "EREBuffer"}),
    "sac gru": ("sac", "Pendulum-v1", {**OFF_POLICY, "actor.recurrent_net": "GRU"}),
    "sac discrete": ("sac", "CartPole-v1", OFF_POLICY),
    "sac bf16": ("sac", "Pendulum-v1", {**OFF_POLICY, "run.precision": "bf16"}),
    "mpo": ("mpo", "Pendulum-v1", OFF_POLICY),
    "mpo discrete": ("mpo", "CartPole-v1", OFF_POLICY),
    "mpc_rs": ("mpc_rs", "CartPole-v1", PLANNING),
    "mpc_cem": ("mpc_cem", "Pendulum-v1", PLANNING),
    "mpc_cem discrete": ("mpc_cem", "CartPole-v1", PLANNING),
    "mpc_pddm": ("mpc_pddm", "Pendulum-v1", {**PLANNING, "actor.propagation": "TS1"}),
}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("case", CASES)
def test_a_run_on_a_gpu(tmp_path: Path, case: str) -> None:
    algorithm, env, overrides = CASES[case]
    overrides = {**overrides, "run.device": "cuda", "env.num_envs": 2}
    run = pytorchrl.train(algorithm, env, steps=256, overrides=overrides, run=tmp_path / "run")
    assert len(evaluate(run.policy, 2)) == 2
    resumed = pytorchrl.resume(tmp_path / "run", steps=512)
    assert all(torch.isfinite(parameter).all() for parameter in resumed.policy.actor.parameters())
