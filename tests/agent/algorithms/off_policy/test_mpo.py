"""MPO against hand-worked numbers and formulas in numpy: targets, E-step, M-step; and who notices what is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
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

from pytorchrl.agent.actors.distributions import BoxScale, DiagGaussian
from pytorchrl.agent.algorithms.off_policy import mpo as mpo_module
from pytorchrl.agent.algorithms.off_policy.base import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.off_policy.mpo import MPO
from pytorchrl.functional.log_probs import gaussian_log_prob
from pytorchrl.keys import ACT, PER_WEIGHTS, REW, TERMINAL

K = 4


def continuous(**parameters: Any) -> Any:
    return algorithm_of(MPO, Products(DiagGaussian, 4), Products(DiagGaussian, 5), sample_action_num=K, **parameters)


def drawn(target: Formulas, s: Any) -> tuple[Any, Any, Any]:
    """(mean, σ, u) of π̄ at s: the K actions ``[K, 5, 2]`` of the injected noise, in [−1, 1] units, not clipped."""
    mean, std = np.tanh(target.mean(s)), np.exp(target.values["log_std"])
    return mean, std, mean + std * normal(K, 5, 2)


def clipped(u: Any) -> Any:
    """What is executed, in [−1, 1] units; the bounds are −2 … 2 and −1 … 3."""
    return np.clip(u, -1.0, 1.0)


def log_density(u: Any, mean: Any, std: Any) -> Any:
    return -(((u - mean) / std) ** 2 / 2 + np.log(std) + 0.5 * np.log(2 * np.pi)).sum(-1)


def eta_of(scores: Any, log_prior: Any, constraint: float) -> float:
    """By bisection of mean KL(q ‖ prior) = ε."""
    low, high = 1e-6, 1e6
    for _ in range(200):
        eta = np.sqrt(low * high)
        logits = log_prior + scores / eta
        log_q = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        log_q -= logits.max(-1, keepdims=True)
        low, high = (eta, high) if (np.exp(log_q) * (log_q - log_prior)).sum(-1).mean() > constraint else (low, eta)
    return float(eta)


# Checks: each raises AssertionError where something is wrong.


def critic() -> None:
    """½·mean w·(Q − y)², y from the mean of Q̄1 over K actions of π̄, executed; q2 does not count."""
    batch = continuous_batch()
    mpo = continuous()
    s, u, r, s2 = arrays(batch)
    slow = Formulas(mpo.target)
    bootstrap = slow.q(0, s2, clipped(drawn(slow, s2)[2])).mean(0)
    delta = Formulas(mpo.actor).q(0, s, u) - (r + 0.9**M_STEPS * (1 - ENDS) * bootstrap)
    loss, errors = mpo.compute_loss_q(batch, torch.tensor(M_STEPS), torch.tensor(WEIGHTS))
    assert loss.item() == pytest.approx(0.5 * (WEIGHTS * delta**2).mean())
    np.testing.assert_allclose(errors.numpy(), np.abs(delta), **EXACT)


def discrete_critic() -> None:
    """Σ π̄·Q̄1, exactly: 1 + 0.9·(0.2·1 + 0.5·7 + 0.3·0)."""
    target = Tables([[0.0] * 3, [1.0, 7.0, 0.0]], [[9.0] * 3] * 2, [[1 / 3] * 3, [0.2, 0.5, 0.3]])
    mpo = algorithm_of(MPO, Tables(ANY, ANY, EVEN), target)
    assert mpo.compute_loss_q(ONE)[1].item() == pytest.approx(1 + 0.9 * 3.7 - 0.5)


def policy() -> None:
    """−mean w·Σ_k q_k·[log N(u_k; μ, σ̄) + log N(u_k; μ̄, σ)] + Σ α·(C − ε), and its gradient, numerically."""
    batch = continuous_batch()
    mpo = continuous(dual_constraint=0.2, kl_mean_constraint=0.5, kl_var_constraint=0.1)
    s = arrays(batch)[0]
    slow, online = Formulas(mpo.target), Formulas(mpo.actor)
    mean, std, u = drawn(slow, s)
    scores = slow.q(0, s, clipped(u))[..., 0].T
    eta = eta_of(scores, np.full((5, K), -np.log(K)), 0.2)
    q = np.exp((scores - scores.max(-1, keepdims=True)) / eta)
    q /= q.sum(-1, keepdims=True)
    found = continuous(dual_constraint=0.2).e_step(batch, 1)
    assert found.eta == pytest.approx(eta)
    np.testing.assert_allclose(found.q.numpy(), q, rtol=1e-6)

    def formula(multipliers: tuple[float, float] | None = None) -> tuple[Any, tuple[float, float]]:
        new, scale = np.tanh(online.mean(s)), np.exp(online.values["log_std"])
        fit = (q.T * (log_density(u, new, std) + log_density(u, mean, scale))).sum(0)
        by_mean = (((new - mean) / std) ** 2).sum(-1).mean() / 2
        by_var = (((std / scale) ** 2 - 1 - 2 * np.log(std / scale)) / 2).sum()
        alpha = multipliers or (np.clip(by_mean - 0.5, 0.0, 0.1), np.clip(100 * (by_var - 0.1), 0.0, 10.0))
        constraints = alpha[0] * (by_mean - 0.5) + alpha[1] * (by_var - 0.1)
        return -(WEIGHTS[:, 0] * fit).mean() + constraints, alpha

    loss = mpo.compute_loss_pi(batch, torch.tensor(WEIGHTS))
    expected, multipliers = formula()
    assert min(multipliers) > 0
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    gradients = torch.autograd.grad(loss, mpo.policy)
    for name, gradient in zip(["M", "log_std"], gradients, strict=True):
        kept = online.values[name]
        for index in np.ndindex(kept.shape):
            ends = []
            for step in (1e-5, -1e-5):
                online.values[name] = kept.copy()
                online.values[name][index] += step
                ends.append(formula(multipliers)[0])
            online.values[name] = kept
            assert gradient[index].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-6)


def discrete_policy() -> None:
    """q ∝ π̄·exp(Q̄/η), the loss −Σ q·log π + α·(KL(π̄ ‖ π) − ε), its gradient in the logits π·(1 + α) − q − α·π̄."""
    scores, old, new = np.array([1.0, 5.0, 0.0]), np.array([0.6, 0.1, 0.3]), np.array([0.2, 0.5, 0.3])
    online, target = Tables([[9.0] * 3] * 2, ANY, [new, new]), Tables([scores, scores], ANY, [old, old])
    mpo = algorithm_of(MPO, online, target, alpha_scale=2.0, alpha_max=9.0)
    eta = eta_of(scores[None], np.log(old)[None], 0.1)
    q = old * np.exp(scores / eta) / (old * np.exp(scores / eta)).sum()
    kl = (old * np.log(old / new)).sum()
    alpha = 2.0 * (kl - 0.01)
    loss = mpo.compute_loss_pi(ONE)
    assert loss.item() == pytest.approx(-(q * np.log(new)).sum() + alpha * (kl - 0.01), rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, [online.logits])
    np.testing.assert_allclose(gradient[0].numpy(), new * (1 + alpha) - q - alpha * old, rtol=1e-5)
    _, info = mpo.compute_gradients(ONE)
    found = [info[name].item() for name in ("eta", "kl", "alpha")]
    assert found == pytest.approx([eta, kl, alpha])
    assert mpo.duals["alpha"].item() == pytest.approx(alpha)
    assert mpo.eta == pytest.approx(eta)


def multipliers() -> None:
    """A shift breaks the mean's constraint alone, a change of scale that of the covariance alone."""
    batch = continuous_batch()
    for shift, scale in ((1.0, 0.0), (0.0, 1.0)):
        target = Products(DiagGaussian, 5)
        online = Products(DiagGaussian, 5)
        online.M.data += shift
        online.log_std.data += scale
        mpo = algorithm_of(MPO, online, target, sample_action_num=K)
        _, info = mpo.compute_gradients(batch)
        assert (info["kl_mean"].item() > 0.1, info["kl_var"].item() > 0.1) == (shift > 0, scale > 0)
        duals = [mpo.duals[name].item() for name in ("alpha_mean", "alpha_var")]
        assert duals == pytest.approx([0.1 if shift else 0.0, 10.0 if scale else 0.0])


def ends() -> None:
    """A terminal successor does not count, whatever it is worth."""
    for value in (1e30, np.inf, np.nan):
        tables = Tables([[0.0, 0.0], [value, value], [4.0, 4.0]], np.zeros((3, 2)), [[0.5, 0.5]] * 3)
        batch = columns(s=[0, 0], a=[0, 0], r=[1.0, 1.0], s2=[1, 2], e=[1.0, 0.0], d=[1.0, 1.0])
        errors = algorithm_of(MPO, tables, tables).compute_loss_q(batch)[1]
        assert errors.flatten().tolist() == pytest.approx([1.0, 1 + 0.9 * 4.0])


CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check for check in (critic, discrete_critic, policy, discrete_policy, multipliers, ends)
}


@pytest.mark.parametrize("check", CHECKS)
def test_number(check: str) -> None:
    CHECKS[check]()


# Steps


@pytest.mark.parametrize("kind", ["MPO", "MPO-discrete"])
@pytest.mark.parametrize("iterations", [1, 5])
def test_iterations_are_steps_of_the_policy(
    make: Callable[..., Any], replayed: Callable[..., Any], kind: str, iterations: int
) -> None:
    """On one E-step; the critic steps once, the targets move behind the last; given gradients are one step."""
    mpo = make(kind, mstep_iterations=iterations, polyak=0.0)
    batch = replayed(mpo)
    before = [p.detach().clone() for p in mpo.target.parameters()]

    def steps() -> list[int]:
        return [int(o.state[o.param_groups[0]["params"][0]]["step"]) for o in mpo.optimizers]

    gradients, _ = mpo.compute_gradients(batch, grads_to_cpu=False)
    mpo.apply_gradients()
    assert steps() == [1, iterations]
    assert mpo.iter == 1
    assert all(torch.equal(*pair) for pair in zip(mpo.target.parameters(), mpo.actor.parameters(), strict=True))
    assert not all(torch.equal(*pair) for pair in zip(mpo.target.parameters(), before, strict=True))
    gradients, _ = mpo.compute_gradients(batch)
    mpo.apply_gradients(gradients)
    assert steps() == [2, iterations + 1]


def test_the_m_step_climbs_towards_q_and_stays_near_the_target(
    make: Callable[..., Any], replayed: Callable[..., Any]
) -> None:
    """More steps fit q better; where the constraint is tight, the policy stays nearer."""
    for kind in ("MPO", "MPO-discrete"):
        fits, divergences = [], []
        loose = {"kl_mean_constraint": 9.0, "kl_var_constraint": 9.0, "kl_constraint": 9.0}
        tight = {"kl_mean_constraint": 1e-6, "kl_var_constraint": 1e-6, "kl_constraint": 1e-6}
        tight |= {"alpha_mean_max": 100.0, "alpha_mean_scale": 100.0, "alpha_max": 100.0, "alpha_var_max": 100.0}
        for iterations, constraints in ((1, loose), (30, loose), (30, tight)):
            mpo = make(kind, mstep_iterations=iterations, lr_pi=3e-3, lr_q=1e-9, **constraints)
            batch = replayed(mpo)
            mpo.compute_gradients(batch)
            found = mpo.improvement
            mpo.apply_gradients()
            loss, _, kls, duals = mpo.m_step(found)
            limits = [limit for limit, *_ in mpo.constraints.values()]
            penalties = [duals[name] * (kl - e) for name, kl, e in zip(duals, kls.values(), limits, strict=True)]
            fits.append((loss - sum(penalties)).item())
            divergences.append(sum(kl.item() for kl in kls.values()))
        assert fits[1] < fits[0]
        assert divergences[2] < 0.5 * divergences[1]


def test_mean_and_covariance_both_learn(make: Callable[..., Any], replayed: Callable[..., Any]) -> None:
    mpo = make("MPO")
    gradients, _ = mpo.compute_gradients(replayed(mpo))
    names = [name for name, _ in mpo.actor.named_parameters()]
    (head,) = [g for name, g in zip(names, gradients, strict=True) if name == "policy_net.linear.weight"]
    assert all(row.abs().sum() > 0 for row in head)  # two means, two log σ


def test_one_critic_is_enough(make: Callable[..., Any], replayed: Callable[..., Any]) -> None:
    for kind in ("MPO", "MPO-discrete"):
        mpo = make(kind, actor={"num_critics": 1})
        mpo.compute_gradients(replayed(mpo))
        mpo.apply_gradients()
        assert mpo.iter == 1


def test_the_constructors_default_copies_the_networks(make: Callable[..., Any]) -> None:
    online = Tables(ANY, ANY, EVEN)
    mpo = MPO("cpu", None, online)
    assert mpo.polyak == 1.0
    online.q.data += 1.0
    mpo.set_weights(online.state_dict())
    assert torch.equal(mpo.target.q, online.q)
    assert make("MPO").polyak == 0.995


def test_the_factory_keeps_every_argument(make: Callable[..., Any]) -> None:
    chosen = {
        "dual_constraint": 0.2,
        "kl_mean_constraint": 0.3,
        "kl_var_constraint": 0.4,
        "kl_constraint": 0.5,
        "alpha_scale": 2.0,
        "alpha_mean_scale": 3.0,
        "alpha_var_scale": 4.0,
        "alpha_mean_max": 5.0,
        "alpha_var_max": 6.0,
        "alpha_max": 7.0,
        "mstep_iterations": 8,
        "sample_action_num": 9,
    }
    mpo = make("MPO", **chosen)
    assert {name: getattr(mpo, name) for name in chosen} == chosen


def test_scores_are_of_actions_in_the_environments_units(make: Callable[..., Any]) -> None:
    """Inside the box, each observation's K actions one pass after the other, as asked one by one."""
    mpo = make("MPO", sample_action_num=3, actor={"obs_feature_extractor_kwargs": {"hidden_sizes": [5]}})
    obs, done, rhs = torch.rand(6, 4), torch.zeros(6, 1), mpo.actor.initial_rhs(6)
    asked = []
    scores_of = mpo.target.get_q_scores
    mpo.target.get_q_scores = lambda *inputs, **more: asked.append(inputs[3]) or scores_of(*inputs, **more)
    with torch.no_grad():
        _, drawn_u, scores = mpo.scores(obs, rhs, done)
        (actions,) = asked
        assert actions.shape == (18, 2)
        assert scores.shape == (6, 3)
        assert (actions >= torch.tensor([-2.0, -1.0])).all()
        assert (actions <= torch.tensor([2.0, 3.0])).all()
        torch.testing.assert_close(actions, mpo.actor.box_scale.to_box(drawn_u.clamp(-1, 1)).flatten(0, 1))
        for k, chosen in enumerate(actions.view(3, 6, 2)):
            torch.testing.assert_close(scores[:, k : k + 1], scores_of(obs, rhs, done, chosen)["q1"])


def test_sequences_are_scored_pass_by_pass(make: Callable[..., Any], replayed: Callable[..., Any]) -> None:
    """With memories, each pass over the sequences begins with their hidden states and resets where they do."""
    space: gym.Space[Any] = spaces.Box(-1.0, 1.0, (4,), np.float32)
    memory = {"recurrent_net": "GRU", "recurrent_net_kwargs": {"output_size": 8}}
    mpo = make("MPO", actor=memory, observations=space, sample_action_num=3)
    batch = replayed(mpo)
    done = torch.zeros(12, 1)
    done[[0, 4, 9]] = 1.0
    rhs = {key: torch.rand(2, *state.shape[1:]) for key, state in mpo.actor.initial_rhs(2).items()}
    actions = torch.rand(36, 2)
    with torch.no_grad():
        together = mpo.target.get_q_scores(batch["Observation"], rhs, done, actions)["q1"]
        for k, chosen in enumerate(actions.view(3, 12, 2)):
            alone = mpo.target.get_q_scores(batch["Observation"], rhs, done, chosen)["q1"]
            torch.testing.assert_close(together.view(3, 12, 1)[k], alone)


def test_weights_reach_the_policys_loss() -> None:
    mpo, batch = continuous(), continuous_batch()
    losses = []
    for weight in (1.0, 3.0):
        mpo.generator.manual_seed(11)
        _, info = mpo.compute_gradients(batch | {PER_WEIGHTS: torch.full((5, 1), weight, dtype=torch.float64)})
        losses.append([info["loss_q"].item(), info["loss_pi"].item()])
    assert losses[1][0] == pytest.approx(3 * losses[0][0])
    assert losses[1][1] != pytest.approx(losses[0][1])


# Breaking


improved_policy = mpo_module.improved_policy
decoupled_kl = mpo_module.decoupled_kl
m_step = MPO.m_step
scores = MPO.scores


def flipped(self: Any, found: Any) -> Any:
    loss, *others = m_step(self, found)
    return (-loss, *others)


def no_prior(eta: float, values: Tensor, log_prior: Tensor) -> Tensor:
    return improved_policy(eta, values, torch.zeros_like(log_prior))


def worst_first(eta: float, values: Tensor, log_prior: Tensor) -> Tensor:
    return improved_policy(eta, -values, log_prior)


def of_the_online_networks(self: Any, *inputs: Any) -> Any:
    target, self.target = self.target, self.actor
    try:
        return scores(self, *inputs)
    finally:
        self.target = target


def not_decoupled(x: Tensor, old: Any, new: Any) -> Tensor:
    return gaussian_log_prob(x, *old) + gaussian_log_prob(x, *new)


def joint_kl(old: Any, new: Any) -> Any:
    """Not decoupled: of the mean under the new scale."""
    return decoupled_kl((old[0], new[1]), new)[0], decoupled_kl(old, new)[1]


def multipliers_exchanged(old: Any, new: Any) -> Any:
    return decoupled_kl(old, new)[::-1]


def no_terminal(self: Any, batch: Any, bootstrap: Tensor, n_step: Any) -> Any:
    return batch[REW] + self.gamma**n_step * bootstrap


def multiplied_terminal(self: Any, batch: Any, bootstrap: Tensor, n_step: Any) -> Any:
    return batch[REW] + self.gamma**n_step * (1 - batch[TERMINAL]) * bootstrap


def unclipped(self: BoxScale, action: Tensor) -> Tensor:
    return action


def constant_multiplier(multiplier: Tensor, *others: Any) -> Tensor:
    return multiplier


# What is replaced, by what, and who must notice.
BREAKAGES: dict[str, tuple[Any, str, Any, list[str]]] = {
    "sign of the loss": (MPO, "m_step", flipped, ["policy", "discrete_policy"]),
    "no prior": (mpo_module, "improved_policy", no_prior, ["discrete_policy"]),
    "sign of the scores": (mpo_module, "improved_policy", worst_first, ["policy", "discrete_policy"]),
    "without a target": (
        MPO,
        "scores",
        of_the_online_networks,
        ["critic", "discrete_critic", "policy", "discrete_policy"],
    ),
    "fit not decoupled": (mpo_module, "decoupled_log_prob", not_decoupled, ["policy"]),
    "divergence not decoupled": (mpo_module, "decoupled_kl", joint_kl, ["policy"]),
    "multipliers exchanged": (mpo_module, "decoupled_kl", multipliers_exchanged, ["policy", "multipliers"]),
    "no multipliers": (mpo_module, "ascend", constant_multiplier, ["policy", "discrete_policy", "multipliers"]),
    "no terminal mask": (OffPolicyAlgorithm, "target_of", no_terminal, ["critic", "ends"]),
    "terminal mask multiplied": (OffPolicyAlgorithm, "target_of", multiplied_terminal, ["ends"]),
    "scored outside the box": (BoxScale, "clip", unclipped, ["critic", "policy"]),
}


@pytest.mark.parametrize(
    ("breakage", "check"), [(name, check) for name, (*_, noticed) in BREAKAGES.items() for check in noticed]
)
def test_is_noticed(monkeypatch: pytest.MonkeyPatch, breakage: str, check: str) -> None:
    owner, name, replacement, _ = BREAKAGES[breakage]
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(AssertionError):
        CHECKS[check]()


def test_actions_are_stored_as_executed(make: Callable[..., Any], replayed: Callable[..., Any]) -> None:
    """The policy's mean and the drawn actions stay inside the box."""
    mpo = make("MPO")
    inputs = torch.rand(300, 4), mpo.actor.initial_rhs(300), torch.zeros(300, 1)
    action, executed, *_ = mpo.acting_step(*inputs)
    assert action is executed
    assert replayed(mpo)[ACT].shape[1:] == action.shape[1:]
    assert (action >= torch.tensor([-2.0, -1.0])).all()
    assert (action == torch.tensor([-2.0, -1.0])).any()  # clipped, with σ = 1 of the half range
