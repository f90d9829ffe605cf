"""The choice of a matrix product by measurement, and what a run does with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import pytorchrl
from pytorchrl import precision
from pytorchrl.precision import ERROR, LARGE, Products, by_onednn, fastest, precision_of

LARGE_ENOUGH = {"actor.common_feature_extractor_kwargs": {"hidden_sizes": [256, 256]}, "mini_batch_size": 64}
SHORT = {"start_steps": 8, "update_every": 1, "num_updates": 1, "storage.size": 500, "test_every": 0}


def inside(context: Products, rows: int) -> str:
    with context(rows):
        return torch.get_float32_matmul_precision()


def test_the_switch_is_put_back_after_a_failure():
    before = torch.get_float32_matmul_precision()
    assert inside(Products("onednn", nn.Linear(2048, 2048)), 1) == "medium"

    def fail() -> None:
        with by_onednn():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.get_float32_matmul_precision() == before


def test_only_large_products_go_to_onednn():
    products = Products("onednn", nn.Linear(256, 256))
    assert inside(products, LARGE // 256**2) == "medium"
    assert inside(products, LARGE // 256**2 - 1) == "highest"
    assert inside(Products("fp32", nn.Linear(256, 256)), 10_000) == "highest"


def test_a_stack_of_layers_counts_as_one_of_them():
    stack = nn.ParameterList([torch.zeros(2, 256, 256)])
    assert Products("onednn", stack).largest == 256**2


def test_what_is_chosen_is_as_exact_as_allowed():
    chosen, _ = fastest()
    a, b = torch.randn(64, 256), torch.randn(256, 256)
    exact = a.double() @ b.double()
    with Products(chosen, nn.Linear(256, 256))(64):
        error = float(((a @ b).double() - exact).norm() / exact.norm())
    assert error < 2 * ERROR


@pytest.mark.parametrize(("seconds", "error", "choice"), [((2.0, 1.0), 0.0, "onednn"), ((1.1, 1.0), 0.0, "fp32")])
def test_onednn_is_taken_where_it_gains(monkeypatch, seconds, error, choice):
    times = iter(seconds)
    monkeypatch.setattr(precision, "shortest", lambda work: next(times))
    assert fastest.__wrapped__()[0] == choice


def test_rounding_is_refused_whatever_it_gains(monkeypatch):
    times = iter((9.0, 1.0))
    monkeypatch.setattr(precision, "shortest", lambda work: next(times))
    monkeypatch.setattr(precision, "ERROR", 0.0)
    assert fastest.__wrapped__() == ("fp32", "oneDNN would round products")


def test_a_wish_is_granted_and_a_gpu_is_not_measured():
    assert precision_of("bf16", "cpu") == ("bf16", "as asked")
    assert precision_of("auto", "cuda")[0] == "fp32"


def test_a_resumed_run_computes_as_it_did(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "pytorchrl.trainer.precision_of", lambda wish, device: ("onednn" if wish == "auto" else wish, "")
    )
    pytorchrl.train("sac", "Pendulum-v1", steps=20, overrides={**SHORT, **LARGE_ENOUGH}, run=tmp_path / "run")
    assert "precision: onednn" in (tmp_path / "run" / "config.yaml").read_text()
    monkeypatch.setattr("pytorchrl.trainer.precision_of", lambda wish, device: (wish, ""))
    pytorchrl.resume(tmp_path / "run", steps=24)
    assert "precision: onednn" in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.parametrize("algorithm", ["ppo", "ddqn", "sac"])
def test_bf16_rounds_the_products_of_updates(tmp_path: Path, algorithm: str):
    """The same seed learns something else than with exact products, and what it learns is finite."""
    settings = {"storage.size": 32, "test_every": 0} if algorithm == "ppo" else SHORT
    env = "Pendulum-v1" if algorithm == "sac" else "CartPole-v1"
    weights = {}
    for name in ("fp32", "bf16"):
        overrides = {**settings, "run.precision": name}
        run = pytorchrl.train(algorithm, env, steps=64, overrides=overrides, run=tmp_path / name)
        weights[name] = torch.cat([p.flatten() for p in run.policy.actor.parameters()])
    assert torch.isfinite(weights["bf16"]).all()
    assert 0 < (weights["bf16"] - weights["fp32"]).abs().max() < 0.1
