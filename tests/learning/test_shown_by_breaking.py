"""A learning test that a broken loss passes is no test: each of these breaks one thing and shows who notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pytorchrl.agent.algorithms import A2C
from pytorchrl.agent.algorithms.on_policy import ppo
from pytorchrl.agent.storages import GAEBuffer, VanillaOnPolicyBuffer
from pytorchrl.agent.storages.on_policy import vtrace_buffer
from pytorchrl.keys import ADV, RET

Check = Callable[[], None]

surrogate = ppo.clipped_surrogate
compute_returns = GAEBuffer.compute_returns
a2c_loss = A2C.compute_loss
vtrace = vtrace_buffer.vtrace


def flipped_sign(*arguments: Any) -> Tensor:
    return -surrogate(*arguments)


def no_clip(log_ratios: Tensor, advantages: Tensor, clip: float) -> Tensor:
    return -(log_ratios.exp() * advantages).mean()


def old_policy_forgotten(log_ratios: Tensor, advantages: Tensor, clip: float) -> Tensor:
    return surrogate(log_ratios.detach(), advantages, clip) + 0 * log_ratios.sum()


def ends_ignored(self: Any, rewards: Tensor, returns: Tensor, values: Tensor, dones: Tensor, gamma: float) -> None:
    compute_returns(self, rewards, returns, values, torch.zeros_like(dones), gamma)


def ends_shifted(self: Any, rewards: Tensor, returns: Tensor, values: Tensor, dones: Tensor, gamma: float) -> None:
    compute_returns(self, rewards, returns, values, dones.roll(1, 0), gamma)


def no_value_at_truncations(self: Any, rewards: Tensor) -> Tensor:
    return rewards


def no_value_loss(values: Tensor, returns: Tensor) -> Tensor:
    return 0 * (values - returns).mean()


def a2c_flees(self: Any, batch: Any) -> Any:
    return a2c_loss(self, {**batch, ADV: -batch[ADV]})


def a2c_confuses_rows(self: Any, batch: Any) -> Any:
    return a2c_loss(self, {**batch, ADV: batch[ADV].roll(1, 0)})


def a2c_values_nothing(self: Any, batch: Any) -> Any:
    return a2c_loss(self, {**batch, RET: 0 * batch[RET]})


def vtrace_flees(*arguments: Any, **clips: Any) -> tuple[Tensor, Tensor]:
    targets, advantages = vtrace(*arguments, **clips)
    return targets, -advantages


def vtrace_ends_everywhere(*arguments: Any, **clips: Any) -> tuple[Tensor, Tensor]:
    ends = torch.ones_like(arguments[3])
    return vtrace(*arguments[:3], ends, ends, *arguments[5:], **clips)


def worked_surrogate() -> None:
    ratios, advantages = torch.tensor([0.7, 1.0, 1.5, 0.5]), torch.tensor([1.0, -1.0, 2.0, -0.5])
    log_ratios = ratios.log().requires_grad_()
    loss = ppo.clipped_surrogate(log_ratios, advantages, 0.2)
    assert loss.item() == pytest.approx(-0.425)
    (gradient,) = torch.autograd.grad(loss, log_ratios)
    assert gradient.tolist() == pytest.approx([-0.175, 0.25, 0.0, 0.0])


def worked_returns() -> None:
    """GAE, λ = 0.8, of the worked example, with the truncation's value in its reward."""
    rewards = torch.tensor([1.0, 0.0, -1.0 + 0.9 * 1.5, 2.0, 0.5, 1.0]).reshape(-1, 1, 1)
    values = torch.tensor([0.5, 1.0, -0.5, 2.0, 0.25, -1.0, 0.75]).reshape(-1, 1, 1)
    dones = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]).reshape(-1, 1, 1)
    returns = torch.zeros_like(values)
    parts: Any = (None, None, None)
    GAEBuffer(6, "cpu", *parts, gae_lambda=0.8).compute_returns(rewards, returns, values, dones, 0.9)
    found = (returns - values).flatten()[:-1].tolist()
    assert found == pytest.approx([0.79664, -0.838, 0.85, 0.405, 0.25, 2.675])


# What is replaced, by what, and who must notice.
BREAKAGES: dict[str, tuple[Any, str, Any, list[str]]] = {
    "sign flipped": (ppo, "clipped_surrogate", flipped_sign, ["worked surrogate", "bandit", "target", "chain"]),
    "clip removed": (ppo, "clipped_surrogate", no_clip, ["worked surrogate"]),
    "no policy gradient": (ppo, "clipped_surrogate", old_policy_forgotten, ["bandit", "target", "chain"]),
    "no value loss": (ppo, "value_loss", no_value_loss, ["truncated", "terminated", "chain"]),
    "ends ignored": (GAEBuffer, "compute_returns", ends_ignored, ["worked returns", "terminated", "both", "chain"]),
    "ends shifted": (GAEBuffer, "compute_returns", ends_shifted, ["worked returns", "terminated", "both"]),
    "truncation taken for an end": (
        VanillaOnPolicyBuffer,
        "_with_truncation_values",
        no_value_at_truncations,
        ["truncated"],
    ),
    "A2C's policy flees": (A2C, "compute_loss", a2c_flees, ["bandit of A2C"]),
    "A2C confuses rows": (A2C, "compute_loss", a2c_confuses_rows, ["bandit of A2C"]),
    "A2C's values stay": (A2C, "compute_loss", a2c_values_nothing, ["chain by V-trace"]),
    "V-trace: the policy flees": (vtrace_buffer, "vtrace", vtrace_flees, ["chain by V-trace"]),
    "V-trace: ends everywhere": (vtrace_buffer, "vtrace", vtrace_ends_everywhere, ["chain by V-trace"]),
}


@pytest.fixture
def all_checks(checks: dict[str, Check]) -> dict[str, Check]:
    return checks | {"worked surrogate": worked_surrogate, "worked returns": worked_returns}


@pytest.mark.parametrize(
    ("breakage", "check"), [(name, check) for name, (*_, noticed) in BREAKAGES.items() for check in noticed]
)
def test_is_noticed(monkeypatch: pytest.MonkeyPatch, all_checks: dict[str, Check], breakage: str, check: str) -> None:
    owner, name, replacement, _ = BREAKAGES[breakage]
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(AssertionError):
        all_checks[check]()


@pytest.mark.parametrize("check", ["worked surrogate", "worked returns"])
def test_is_right_when_nothing_is_broken(all_checks: dict[str, Check], check: str) -> None:
    all_checks[check]()
