"""A2C: its losses, its two learning rates, and that it learns."""

from __future__ import annotations

import inspect
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import A2C
from pytorchrl.keys import ACT, ADV, DONE, LOGP, OBS, RET, RHS, VAL

DEFAULTS = {
    "lr_v": 1e-4,
    "lr_pi": 1e-4,
    "gamma": 0.99,
    "test_every": 5000,
    "max_grad_norm": 0.5,
    "num_test_episodes": 5,
    "policy_loss_addons": [],
    "entropy_coef": 0.0,
}


class Table(nn.Module):
    """An actor whose log-probabilities, values and entropy are its parameters."""

    is_recurrent = False

    def __init__(self, log_probs: Tensor, values: Tensor, entropy: float) -> None:
        super().__init__()
        self.log_probs, self.values = nn.Parameter(log_probs), nn.Parameter(values)
        self.mean_entropy = nn.Parameter(torch.tensor(entropy))

    def policy_parameters(self) -> list[Tensor]:
        return [self.log_probs, self.mean_entropy]

    def forward(self, obs: Any, rhs: Any, done: Any) -> Any:
        dist = SimpleNamespace(log_prob=lambda action: self.log_probs, entropy=lambda: self.mean_entropy.expand(2, 1))
        return dist, {"value_net1": self.values}, rhs


def worked() -> tuple[A2C, dict[str, Any]]:
    actor = Table(torch.tensor([[-0.5], [-1.5]]), torch.tensor([[1.0], [3.0]]), 0.7)
    algorithm = A2C("cpu", None, actor, entropy_coef=0.1)  # type: ignore[arg-type]
    batch = dict.fromkeys((OBS, RHS, DONE, ACT, LOGP, VAL))
    return algorithm, {**batch, ADV: torch.tensor([[2.0], [-1.0]]), RET: torch.tensor([[2.0], [2.0]])}


def test_the_default_table() -> None:
    parameters = inspect.signature(A2C).parameters
    assert {name: parameters[name].default for name in list(parameters)[3:]} == DEFAULTS
    assert parameters["entropy_coef"].kind is inspect.Parameter.KEYWORD_ONLY


def test_the_loss_by_hand() -> None:
    algorithm, batch = worked()
    loss, info = algorithm.compute_loss(batch)
    assert info["action_loss"].item() == pytest.approx(-(-0.5 * 2.0 + 1.5 * 1.0) / 2)
    assert info["value_loss"].item() == pytest.approx((1.0 + 1.0) / 2)
    assert loss.item() == pytest.approx(-0.25 - 0.1 * 0.7 + 1.0)


def test_the_gradient_by_hand() -> None:
    algorithm, batch = worked()
    gradients, _ = algorithm.compute_gradients(batch)
    log_probs, values, entropy = gradients
    assert log_probs is not None
    assert values is not None
    assert entropy is not None
    assert log_probs.flatten().tolist() == pytest.approx([-1.0, 0.5])  # −A/2: probable where the advantage is positive
    assert values.flatten().tolist() == pytest.approx([-1.0, 1.0])  # V − R
    assert entropy.item() == pytest.approx(-0.1)


def test_the_loss_and_its_gradient_by_an_independent_formula() -> None:
    """Of a real softmax policy: the formula in NumPy, its gradient in the logits from the textbook."""
    box = spaces.Box(-1.0, 1.0, (4,), np.float32)
    actor = OnPolicyActor("cpu", box, spaces.Discrete(3), "A2C", policy_gain=1.0, shared_policy_value_network=False)
    algorithm = A2C("cpu", None, actor, entropy_coef=0.3)
    generator = torch.Generator().manual_seed(0)
    rows = 20
    batch = {
        OBS: torch.rand(rows, 4, generator=generator),
        RHS: actor.initial_rhs(rows),
        DONE: torch.zeros(rows, 1),
        ACT: torch.randint(3, (rows, 1), generator=generator),
        ADV: torch.randn(rows, 1, generator=generator),
        RET: torch.randn(rows, 1, generator=generator),
    }
    with torch.no_grad():
        features, _ = actor.features(batch[OBS])
        logits = actor.policy_net.linear(features).double().numpy()  # type: ignore[union-attr,operator]
        value = actor.get_value(batch[OBS], batch[RHS], batch[DONE])["value_net1"].double().numpy()
    pi = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    advantage, taken = batch[ADV].double().numpy(), np.eye(3)[batch[ACT].flatten()]
    entropy = -(pi * np.log(pi)).sum(1, keepdims=True)
    policy = -(np.log((pi * taken).sum(1, keepdims=True)) * advantage).mean()
    expected = policy - 0.3 * entropy.mean() + ((value - batch[RET].double().numpy()) ** 2).mean()
    gradients, info = algorithm.compute_gradients(batch)
    assert info["loss"].item() == pytest.approx(expected, rel=1e-5)
    # d log π(a) / d logits = 1_a − π; d H / d logits = −π (log π + H).
    slope = -(taken - pi) * advantage + 0.3 * pi * (np.log(pi) + entropy)
    names = [name for name, _ in actor.named_parameters()]
    bias = gradients[names.index("policy_net.linear.bias")]
    assert bias is not None
    assert bias.tolist() == pytest.approx(slope.mean(0).tolist(), abs=1e-6)


@pytest.mark.parametrize(("name", "index"), [("lr_v", 0), ("lr_pi", 1)])
def test_each_learning_rate_reaches_its_optimizer(name: str, index: int) -> None:
    algorithm, _ = worked()
    algorithm.update_algorithm_parameter(name, 0.5)
    rates = [optimizer.param_groups[0]["lr"] for optimizer in algorithm.optimizers]
    assert rates[index] == 0.5
    assert rates[1 - index] == 1e-4


@pytest.mark.parametrize("shared", [True, False])
def test_every_parameter_has_one_optimizer(shared: bool) -> None:
    import gymnasium as gym

    env = gym.make("CartPole-v1")
    actor = OnPolicyActor("cpu", env.observation_space, env.action_space, "A2C", shared_policy_value_network=shared)
    algorithm = A2C("cpu", None, actor)
    owned = [parameter for optimizer in algorithm.optimizers for parameter in optimizer.param_groups[0]["params"]]
    assert sorted(map(id, owned)) == sorted(map(id, actor.parameters()))
    assert all(
        parameter is not other for parameter in actor.value_net1.parameters() for other in actor.policy_parameters()
    )


@pytest.mark.parametrize("storage", ["VanillaOnPolicyBuffer", "VTraceBuffer"])
def test_it_learns(storage: str, tmp_path: Any) -> None:
    import pytorchrl as prl

    overrides = {
        "algorithm.lr_pi": 3e-3,
        "algorithm.lr_v": 3e-3,
        "algorithm.test_every": 0,
        "storage.name": storage,
        "storage.size": 16,
        "env.num_envs": 8,
        "actor.shared_policy_value_network": False,
    }
    run = prl.train(
        "a2c", "CartPole-v1", steps=40_000, seed=1, overrides=overrides, preset="none", run=tmp_path / "run"
    )
    assert math.fsum(run.scores) / len(run.scores) > 100  # random play scores 22
