"""Targets and losses against hand-worked numbers and against their formulas in numpy; and who notices what is broken.

The actors are those of `formulas`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.agent.algorithms.off_policy.formulas import (
    ANY,
    ENDS,
    EVEN,
    EXACT,
    M_STEPS,
    ONE,
    WEIGHTS,
    Formulas,
    Products,
    Tables,
    algorithm_of,
    arrays,
    columns,
    continuous_batch,
    normal,
)
from torch import Tensor
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from pytorchrl.agent.actors.distributions import BoxScale, Deterministic, SquashedGaussian
from pytorchrl.agent.algorithms.off_policy import ddpg as ddpg_module
from pytorchrl.agent.algorithms.off_policy import sac as sac_module
from pytorchrl.agent.algorithms.off_policy import td3 as td3_module
from pytorchrl.agent.algorithms.off_policy.base import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.off_policy.ddpg import DDPG
from pytorchrl.agent.algorithms.off_policy.ddqn import DDQN
from pytorchrl.agent.algorithms.off_policy.sac import SAC
from pytorchrl.agent.algorithms.off_policy.td3 import TD3
from pytorchrl.keys import DONE2, REW, TERMINAL


def check_critic_loss(algorithm: Any, batch: Any, bootstrap: Any, critics: int) -> None:
    """L_1, L_2, loss and errors, weighted and of m rewards each, from a bootstrap in numpy."""
    s, u, r, _ = arrays(batch)
    y = r + 0.9**M_STEPS * (1 - ENDS) * bootstrap
    online = Formulas(algorithm.actor)
    deltas = [online.q(k, s, u) - y for k in range(critics)]
    losses = [(WEIGHTS * delta**2).mean() for delta in deltas]
    second = losses[1] if critics == 2 else 0.0
    found = algorithm.compute_loss_q(batch, torch.tensor(M_STEPS), torch.tensor(WEIGHTS))
    np.testing.assert_allclose([loss.item() for loss in found[:3]], [losses[0], second, (losses[0] + second) / 2])
    np.testing.assert_allclose(found[3].numpy(), np.mean([np.abs(delta) for delta in deltas], 0), **EXACT)


# Checks: each raises AssertionError where something is wrong.


def double_q() -> None:
    """The online network selects (action 1), the target network scores: 1 + 0.9·0.5; plain Q-learning has 1 + 0.9·5."""
    online = Tables([[0.0, 0.25, 0.0], [1.0, 3.0, 2.0]], ANY, EVEN)
    target = Tables([[9.0, 9.0, 9.0], [5.0, 0.5, 4.0]], ANY, EVEN)
    ddqn = algorithm_of(DDQN, online, target)
    loss, errors = ddqn.compute_loss(ONE)
    assert errors.item() == pytest.approx(1.45 - 0.25)
    assert loss.item() == pytest.approx(1.2**2)
    _, errors = ddqn.compute_loss(ONE, n_step=2)
    assert errors.item() == pytest.approx(1 + 0.81 * 0.5 - 0.25)
    gradients, _ = ddqn.compute_gradients(ONE)
    expected = torch.zeros(2, 2, 3, dtype=torch.float64)
    expected[0, 0, 1] = 2 * (0.25 - 1.45)
    torch.testing.assert_close(gradients[0], expected)


def n_step_table() -> None:
    """The worked example of n-step sums: m = 3, 2, 1, 2, 1, 1 rewards, bootstrapped by γᵐ but for the terminal one."""
    m, sums = [3, 2, 1, 2, 1, 1], [0.19, -0.9, -1.0, 2.45, 0.5, 1.0]
    ends, values = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0], [1.5, 1.5, 1.5, -7.0, -7.0, 0.75]
    batch = columns(s=[0] * 6, a=[0] * 6, r=sums, s2=list(range(6)), e=ends, d=[1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    table = [[value, value - 1] for value in values]
    zeros = [[0.0, 0.0]] * 6
    ddqn = algorithm_of(
        DDQN, Tables(np.array(table) * 0, zeros, [[0.5, 0.5]] * 6), Tables(table, zeros, [[0.5, 0.5]] * 6)
    )
    _, errors = ddqn.compute_loss(batch, n_step=torch.tensor(m)[:, None])
    expected = [0.19 + 0.729 * 1.5, 0.315, 0.35, 2.45, 0.5, 1.675]
    assert errors.flatten().tolist() == pytest.approx(expected)


def ends() -> None:
    """Terminal successors do not count, whatever they are; truncated ones do."""
    for value in (1e30, np.inf, np.nan):
        table = [[0.0, 0.0], [value, value], [4.0, 4.0]]
        even = [[0.5, 0.5]] * 3
        batch = columns(s=[0, 0], a=[0, 0], r=[1.0, 1.0], s2=[1, 2], e=[1.0, 0.0], d=[1.0, 1.0])
        for cls, alpha in ((DDQN, {}), (SAC, {"initial_alpha": 1e-300})):
            tables = Tables(table, table, even)
            algorithm = algorithm_of(cls, tables, tables, **alpha)
            loss = algorithm.compute_loss if cls is DDQN else algorithm.compute_loss_q
            assert loss(batch)[-1].flatten().tolist() == pytest.approx([1.0, 1 + 0.9 * 4.0])


def ddpg_critic() -> None:
    """Q̄1(s', μ̄(s')), without noise, of the target's policy and critic."""
    batch = continuous_batch()
    for seed in range(2):
        target = Products(Deterministic, 20 + seed)
        ddpg = algorithm_of(DDPG, Products(Deterministic, 10 + seed), target)
        slow, s2 = Formulas(target), arrays(batch)[3]
        check_critic_loss(ddpg, batch, slow.q(0, s2, np.tanh(slow.mean(s2))), 1)


def deterministic_policy() -> None:
    """The loss and its gradient, by the chain rule: −w·(c − 2·d·u)·(1 − u²)·s, averaged, in the policy alone."""
    batch = continuous_batch()
    s = arrays(batch)[0]
    for cls in (DDPG, TD3):
        algorithm = algorithm_of(cls, Products(Deterministic, 1), Products(Deterministic, 2))
        online = Formulas(algorithm.actor)
        u = np.tanh(online.mean(s))
        loss = algorithm.compute_loss_pi(batch, torch.tensor(WEIGHTS))
        assert loss.item() == pytest.approx(-(WEIGHTS * online.q(0, s, u)).mean())
        c, d = online.values["c"][0], online.values["d"][0]
        slope = WEIGHTS * (c.T - 2 * d * u) * (1 - u**2)
        (gradient,) = torch.autograd.grad(loss, [algorithm.actor.M])
        np.testing.assert_allclose(gradient.numpy(), -s.T @ slope / 5, **EXACT)


def td3_critic() -> None:
    """min_k Q̄_k(s', ã): noise of each number, clipped in halves of the range, then the action clipped to the box."""
    batch = continuous_batch()
    for policy_noise, noise_clip in ((0.2, 0.5), (0.6, 0.3), (5.0, 10.0), (0.0, 0.5)):
        target = Products(Deterministic, 5)
        parameters = {"policy_noise": policy_noise, "noise_clip": noise_clip}
        td3 = algorithm_of(TD3, Products(Deterministic, 4), target, **parameters)
        slow, s2 = Formulas(target), arrays(batch)[3]
        noise = np.clip(policy_noise * normal(5, 2), -noise_clip, noise_clip)
        action = np.array([0.0, 1.0]) + 2.0 * (np.tanh(slow.mean(s2)) + noise)
        u = (np.clip(action, [-2, -1], [2, 3]) - [0.0, 1.0]) / 2.0
        check_critic_loss(td3, batch, np.minimum(slow.q(0, s2, u), slow.q(1, s2, u)), 2)


def sac_discrete_bootstrap() -> None:
    """Σ π·(min Q̄ − α·log π) of the worked example, each action's minimum from another critic."""
    target = Tables([[0.0] * 3, [1.0, 7.0, 0.0]], [[0.0] * 3, [3.0, 2.0, 4.0]], EVEN)
    online = Tables([[9.0] * 3, [9.0] * 3], [[9.0] * 3, [9.0] * 3], [[1 / 3] * 3, [0.2, 0.5, 0.3]])
    sac = algorithm_of(SAC, online, target, initial_alpha=0.2)
    assert sac.bootstrap(ONE).item() == pytest.approx(1.405931, abs=1e-6)
    *_, errors = sac.compute_loss_q(ONE)
    assert errors.item() == pytest.approx(9 - 1 - 0.9 * 1.405931, abs=1e-6)


def sac_discrete_policy() -> None:
    """Σ π·(α·log π − min Q), and its gradient in the logits: π·(f − Σ π·f) with f = α·log π − min Q."""
    q1, q2, pi = np.array([1.0, 5.0, 0.0]), np.array([2.0, 2.0, 3.0]), np.array([0.2, 0.5, 0.3])
    online = Tables([q1, q1], [q2, q2], [pi, pi])
    sac = algorithm_of(SAC, online, online, initial_alpha=0.2)
    loss, log_prob = sac.compute_loss_pi(ONE)
    f = 0.2 * np.log(pi) - np.minimum(q1, q2)
    assert loss.item() == pytest.approx((pi * f).sum(), abs=1e-6)
    assert loss.item() == pytest.approx(-1.405931, abs=1e-6)
    assert log_prob.item() == pytest.approx((pi * np.log(pi)).sum())
    (gradient,) = torch.autograd.grad(loss, [online.logits])
    np.testing.assert_allclose(gradient[0].numpy(), pi * (f - (pi * f).sum()), rtol=1e-6)


def sampled(actor: Formulas, s: Any) -> tuple[Any, Any]:
    """(u = tanh(pre), log π) of the injected noise, the density from the change of variables in torch.distributions."""
    mean, std = actor.mean(s), np.exp(actor.values["log_std"])
    pre = mean + std * normal(5, 2)
    base = Independent(Normal(torch.tensor(mean), torch.tensor(std).expand(5, 2)), 1)
    squashed = TransformedDistribution(base, TanhTransform(cache_size=1))
    transform = squashed.transforms[0]
    log_prob = base.log_prob(torch.tensor(pre)) - transform.log_abs_det_jacobian(torch.tensor(pre), None).sum(-1)
    return np.tanh(pre), log_prob.numpy()[:, None]


def sac_critic() -> None:
    """min Q̄(s', a') − α·log π(a'|s') with a' from the present policy."""
    batch = continuous_batch()
    for alpha in (0.2, 1.0):
        target = Products(SquashedGaussian, 5)
        sac = algorithm_of(SAC, Products(SquashedGaussian, 4), target, initial_alpha=alpha)
        slow, s2 = Formulas(target), arrays(batch)[3]
        u, log_prob = sampled(Formulas(sac.actor), s2)
        bootstrap = np.minimum(slow.q(0, s2, u), slow.q(1, s2, u)) - sac.alpha.item() * log_prob
        check_critic_loss(sac, batch, bootstrap, 2)


def sac_policy() -> None:
    """mean w·(α·log π − min Q), through the action (pathwise) and the density."""
    batch = continuous_batch()
    sac = algorithm_of(SAC, Products(SquashedGaussian, 4), Products(SquashedGaussian, 5), initial_alpha=0.2)
    s = arrays(batch)[0]
    online = Formulas(sac.actor)

    def formula() -> Any:
        u, log_prob = sampled(online, s)
        return (WEIGHTS * (0.2 * log_prob - np.minimum(online.q(0, s, u), online.q(1, s, u)))).mean()

    loss, log_prob = sac.compute_loss_pi(batch, torch.tensor(WEIGHTS))
    assert loss.item() == pytest.approx(formula(), rel=1e-6)
    np.testing.assert_allclose(log_prob.detach().numpy(), sampled(online, s)[1], **EXACT)
    gradients = torch.autograd.grad(loss, sac.policy)
    for name, gradient in zip(["M", "log_std"], gradients, strict=True):
        kept = online.values[name]
        for index in np.ndindex(kept.shape):
            ends = []
            for step in (1e-5, -1e-5):
                online.values[name] = kept.copy()
                online.values[name][index] += step
                ends.append(formula())
            online.values[name] = kept
            assert gradient[index].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-6)


def alpha_direction() -> None:
    """−mean w·log α·(log π + H̄): entropy above H̄ lowers α, below raises it; at H̄ it stays."""
    online = Tables(ANY, ANY, EVEN)
    for target_entropy, direction in ((0.5, -1), (1.5, 1), (0.0, -1), (float(np.log(3)), 0)):
        sac = algorithm_of(SAC, online, online, initial_alpha=0.5, target_entropy=target_entropy, lr_alpha=0.01)
        assert sac.target_entropy == target_entropy
        log_prob = torch.full((2, 1), -np.log(3), requires_grad=True)
        weights = torch.tensor([[1.0], [3.0]])
        loss = sac.compute_loss_alpha(log_prob, weights)
        assert loss.item() == pytest.approx(-2 * np.log(0.5) * (target_entropy - np.log(3)), abs=1e-6)
        assert torch.autograd.grad(loss, [log_prob, sac.log_alpha], allow_unused=True)[0] is None
        gradients, info = sac.compute_gradients(ONE)
        assert gradients[-1].item() == pytest.approx(np.log(3) - target_entropy, abs=1e-6)
        sac.apply_gradients(gradients)
        if direction:
            assert np.sign(sac.alpha.item() - info["alpha"].item()) == direction


def targets_move() -> None:
    online, target = Tables(ANY, ANY, EVEN), Tables(np.array(ANY) + 1, ANY, EVEN)
    ddqn = algorithm_of(DDQN, online, target, polyak=0.75)
    ddqn.set_weights(online.state_dict())
    expected = torch.tensor(np.array(ANY) + 0.75)
    torch.testing.assert_close(ddqn.target.q[0], expected, **EXACT)


CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check
    for check in (
        double_q,
        n_step_table,
        ends,
        ddpg_critic,
        deterministic_policy,
        td3_critic,
        sac_discrete_bootstrap,
        sac_discrete_policy,
        sac_critic,
        sac_policy,
        alpha_direction,
        targets_move,
    )
}


@pytest.mark.parametrize("check", CHECKS)
def test_number(check: str) -> None:
    CHECKS[check]()


def test_smoothing_differs_per_sample_and_dimension_and_stays_in_the_box() -> None:
    """What the target critic is asked for, where the same successor stands in every row."""
    target = Products(Deterministic, 5)
    target.M.data.zero_()
    td3 = algorithm_of(TD3, Products(Deterministic, 4), target, policy_noise=0.4, noise_clip=0.5)
    asked = []
    scores = td3.target.get_q_scores
    td3.target.get_q_scores = lambda *inputs, **more: asked.append(inputs[3]) or scores(*inputs, **more)
    s2 = np.zeros((2000, 3))
    td3.bootstrap(columns(s=s2, a=np.zeros((2000, 2)), r=np.zeros(2000), s2=s2))
    noise = asked[0] - torch.tensor([0.0, 1.0])  # half the range is 2 in both dimensions
    assert noise.abs().max().item() == pytest.approx(1.0)  # noise_clip · 2
    inner = noise[noise.abs() < 1.0]
    assert len(inner.unique()) == len(inner) > 2500
    assert inner.mean().item() == pytest.approx(0.0, abs=0.05)
    assert (noise.abs() >= 1.0).double().mean().item() == pytest.approx(0.2113, abs=0.02)  # P(|ξ| > 0.5), σ = 0.4
    assert abs(torch.corrcoef(noise.T)[0, 1].item()) < 0.08
    td3.policy_noise, td3.noise_clip = 5.0, 50.0
    td3.bootstrap(columns(s=s2, a=np.zeros((2000, 2)), r=np.zeros(2000), s2=s2))
    assert asked[1].min(0).values.tolist() == [-2.0, -1.0]
    assert asked[1].max(0).values.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("cls", [DDPG, TD3, SAC])
def test_each_loss_twice_on_a_batch_is_equal(cls: Any) -> None:
    head = SquashedGaussian if cls is SAC else Deterministic
    algorithm = algorithm_of(cls, Products(head, 1), Products(head, 2))
    batch = continuous_batch()

    def losses() -> list[Any]:
        algorithm.generator.manual_seed(1)
        loss_pi = algorithm.compute_loss_pi(batch)
        return [*algorithm.compute_loss_q(batch), *(loss_pi if cls is SAC else [loss_pi])]

    assert all(torch.equal(*pair) for pair in zip(losses(), losses(), strict=True))


def test_an_action_that_is_ruled_out_gives_no_nan() -> None:
    tables = Tables(ANY, ANY, [[1.0, 1.0, 1.0]] * 2)
    tables.logits.data[:, 0] = -1e8
    sac = algorithm_of(SAC, tables, tables)
    gradients, info = sac.compute_gradients(ONE)
    assert all(torch.isfinite(value).all() for value in (*gradients, *info.values()))
    assert sac.bootstrap(ONE).item() == pytest.approx(np.log(2))


def test_default_target_entropies() -> None:
    tables, products = Tables(ANY, ANY, EVEN), Products(SquashedGaussian, 1)
    assert algorithm_of(SAC, tables, tables).target_entropy == pytest.approx(0.98 * np.log(3))
    assert algorithm_of(SAC, products, products).target_entropy == -2.0


# Breaking


loss_of_policy = ddpg_module.deterministic_policy_loss
target_of = OffPolicyAlgorithm.target_of
sac_loss_pi = SAC._loss_pi
soft_value = SAC.soft_value


def flipped_policy(*arguments: Any) -> Any:
    loss, dist = loss_of_policy(*arguments)
    return -loss, dist


def flipped_sac(self: Any, *arguments: Any) -> Any:
    loss, *others = sac_loss_pi(self, *arguments)
    return (-loss, *others)


def flipped_alpha(self: Any, log_probs: Tensor, per_weights: Any = 1) -> Tensor:
    return (per_weights * self.log_alpha * (log_probs.detach() + self.target_entropy)).mean()


def attached_alpha(self: Any, log_probs: Tensor, per_weights: Any = 1) -> Tensor:
    return -(per_weights * self.log_alpha * (log_probs + self.target_entropy)).mean()


def no_entropy(self: Any, dist: Any, scores: Any) -> Tensor:
    return (dist.log_probs.exp() * sac_module.smallest(scores)).sum(-1, keepdim=True)


def no_terminal(self: Any, batch: Any, bootstrap: Tensor, n_step: Any) -> Any:
    return batch[REW] + self.gamma**n_step * bootstrap


def multiplied_terminal(self: Any, batch: Any, bootstrap: Tensor, n_step: Any) -> Any:
    return batch[REW] + self.gamma**n_step * (1 - batch[TERMINAL]) * bootstrap


def truncation_taken_for_an_end(self: Any, batch: Any, bootstrap: Tensor, n_step: Any) -> Any:
    return target_of(self, batch | {TERMINAL: batch[DONE2]}, bootstrap, n_step)


def always_one_step(self: Any, batch: Any, bootstrap: Tensor, n_step: Any) -> Any:
    return target_of(self, batch, bootstrap, 1)


def plain_q(self: Any, batch: Any) -> Tensor:
    scores: Tensor = self.target.get_q_scores(*self.successors(batch))["q1"]
    return scores.max(-1, keepdim=True).values.detach()


def from_online(bootstrap: Any) -> Any:
    """A bootstrap for which the targets are the online networks."""

    def broken(self: Any, batch: Any) -> Any:
        target, self.target = self.target, self.actor
        try:
            return bootstrap(self, batch)
        finally:
            self.target = target

    return broken


def from_target_policy(self: Any, batch: Any) -> Any:
    actor, self.actor = self.actor, self.target
    try:
        return sac_bootstrap(self, batch)
    finally:
        self.actor = actor


sac_bootstrap = SAC.bootstrap


def first(scores: Any) -> Any:
    return scores["q1"]


def largest(scores: Any) -> Any:
    return torch.maximum(scores["q1"], scores["q2"])


def polyak_reversed(self: Any) -> None:
    torch._foreach_lerp_(list(self.target.parameters()), [p.detach() for p in self.actor.parameters()], self.polyak)


def unclipped(self: BoxScale, action: Tensor) -> Tensor:
    return action


# What is replaced, by what, and who must notice.
BREAKAGES: dict[str, tuple[Any, str, Any, list[str]]] = {
    "sign of DDPG's policy loss": (ddpg_module, "deterministic_policy_loss", flipped_policy, ["deterministic_policy"]),
    "sign of TD3's policy loss": (td3_module, "deterministic_policy_loss", flipped_policy, ["deterministic_policy"]),
    "sign of SAC's policy loss": (SAC, "_loss_pi", flipped_sac, ["sac_policy", "sac_discrete_policy"]),
    "sign of the temperature's loss": (SAC, "compute_loss_alpha", flipped_alpha, ["alpha_direction"]),
    "temperature's loss attached": (SAC, "compute_loss_alpha", attached_alpha, ["alpha_direction"]),
    "no entropy": (SAC, "soft_value", no_entropy, ["sac_discrete_bootstrap", "sac_discrete_policy"]),
    "no terminal mask": (
        OffPolicyAlgorithm,
        "target_of",
        no_terminal,
        ["ends", "n_step_table", "ddpg_critic", "td3_critic", "sac_critic"],
    ),
    "terminal mask multiplied": (OffPolicyAlgorithm, "target_of", multiplied_terminal, ["ends"]),
    "truncation taken for an end": (
        OffPolicyAlgorithm,
        "target_of",
        truncation_taken_for_an_end,
        ["ends", "n_step_table", "ddpg_critic", "td3_critic", "sac_critic"],
    ),
    "one step's discount": (
        OffPolicyAlgorithm,
        "target_of",
        always_one_step,
        ["double_q", "n_step_table", "ddpg_critic", "td3_critic", "sac_critic"],
    ),
    "plain Q-learning": (DDQN, "bootstrap", plain_q, ["double_q"]),
    "DDQN without a target": (DDQN, "bootstrap", from_online(DDQN.bootstrap), ["double_q", "n_step_table"]),
    "DDPG without a target": (DDPG, "bootstrap", from_online(DDPG.bootstrap), ["ddpg_critic"]),
    "TD3 without a target": (TD3, "bootstrap", from_online(TD3.bootstrap), ["td3_critic"]),
    "SAC without a target": (SAC, "bootstrap", from_online(SAC.bootstrap), ["sac_critic", "sac_discrete_bootstrap"]),
    "SAC acting as its target": (SAC, "bootstrap", from_target_policy, ["sac_critic", "sac_discrete_bootstrap"]),
    "TD3 with one target critic": (td3_module, "smallest", first, ["td3_critic"]),
    "SAC with the larger critic": (sac_module, "smallest", largest, ["sac_critic", "sac_policy"]),
    "targets' share reversed": (OffPolicyAlgorithm, "move_targets", polyak_reversed, ["targets_move"]),
    "target actions outside the box": (BoxScale, "clip", unclipped, ["td3_critic"]),
}


@pytest.mark.parametrize(
    ("breakage", "check"), [(name, check) for name, (*_, noticed) in BREAKAGES.items() for check in noticed]
)
def test_is_noticed(monkeypatch: pytest.MonkeyPatch, breakage: str, check: str) -> None:
    owner, name, replacement, _ = BREAKAGES[breakage]
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(AssertionError):
        CHECKS[check]()
