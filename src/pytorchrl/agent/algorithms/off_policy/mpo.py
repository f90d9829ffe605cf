"""Maximum a posteriori policy optimization (arXiv 1806.06920, and 1812.02256 for decoupled constraints)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.algorithms.base import Batch, Info
from pytorchrl.agent.algorithms.off_policy.base import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.policy_loss_addons.base import AddOns
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.functional.draws import normal_like
from pytorchrl.functional.mpo import ascend, decoupled_kl, decoupled_log_prob, improved_policy, temperature
from pytorchrl.keys import DONE, OBS, PER_WEIGHTS, RHS
from pytorchrl.parameters import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat
from pytorchrl.tree import Tree


@dataclass(frozen=True)
class Improvement:
    """An E-step: how a better policy than the target's weighs actions at the states of a batch.

    ``old`` is the target's policy π̄, ``drawn`` K of its actions ``[K, B, A]`` (None: all actions of a discrete space),
    ``q`` their weights ``[B, K]``.
    """

    batch: Batch
    per_weights: Any
    old: Any
    drawn: Tensor | None
    q: Tensor
    eta: float


class MPO(OffPolicyAlgorithm):
    """A critic, and a policy that follows its improvement by the critic as far as constraints on both steps allow.

    The E-step weighs actions of the target policy, q ∝ π̄·exp(Q̄/η), as far as KL(q ‖ π̄) ≤ ε. The M-step fits the
    policy to q under constraints on its divergence from π̄, of mean and covariance apart. ``apply_gradients()`` takes
    all ``mstep_iterations`` steps of the M-step, given gradients one. With polyak = 1 the targets are copied.

    Parameters
        lr_q: learning rate of the critic.
        lr_pi: learning rate of the policy.
        polyak: how much of the targets stays at each of their updates; 1 copies the networks, as the papers do.
        dual_constraint: ε, the largest mean KL(q ‖ π̄) of the E-step.
        kl_mean_constraint: ε_μ, the largest divergence by the mean (continuous actions).
        kl_var_constraint: ε_Σ, the largest divergence by the covariance (continuous actions).
        kl_constraint: ε_π, the largest divergence (discrete actions).
        alpha_scale: step size of the multiplier of kl_constraint.
        alpha_mean_scale: step size of the multiplier of kl_mean_constraint.
        alpha_var_scale: step size of the multiplier of kl_var_constraint.
        alpha_mean_max: largest multiplier of kl_mean_constraint.
        alpha_var_max: largest multiplier of kl_var_constraint.
        alpha_max: largest multiplier of kl_constraint.
        mstep_iterations: policy steps per update.
        sample_action_num: K, actions drawn at each state (continuous actions).
    """

    num_critics: ClassVar = 1
    factory_defaults: ClassVar = {
        "polyak": 0.995,
        "num_updates": 50,
        "test_every": 5000,
        "start_steps": 1000,
        "target_update_interval": 1.0,
    }
    factory_order = (
        "lr_q",
        "lr_pi",
        "gamma",
        "polyak",
        "num_updates",
        "test_every",
        "update_every",
        "start_steps",
        "mini_batch_size",
        "num_test_episodes",
        "target_update_interval",
        "dual_constraint",
        "kl_mean_constraint",
        "kl_var_constraint",
        "kl_constraint",
        "alpha_scale",
        "alpha_mean_scale",
        "alpha_var_scale",
        "alpha_mean_max",
        "alpha_var_max",
        "alpha_max",
        "mstep_iterations",
        "sample_action_num",
        "max_grad_norm",
        "policy_loss_addons",
    )

    def __init__(
        self,
        device: torch.device | str,
        envs: VecEnv | None,
        actor: OffPolicyActor,
        lr_q: PositiveFloat = 1e-4,
        lr_pi: PositiveFloat = 1e-4,
        gamma: UnitFloat = 0.99,
        polyak: UnitFloat = 1.0,
        num_updates: PositiveInt = 1,
        update_every: PositiveInt = 50,
        test_every: NonNegativeInt = 1000,
        start_steps: NonNegativeInt = 20000,
        mini_batch_size: PositiveInt = 64,
        num_test_episodes: NonNegativeInt = 5,
        target_update_interval: PositiveFloat = 1,
        dual_constraint: PositiveFloat = 0.1,
        kl_mean_constraint: NonNegativeFloat = 0.01,
        kl_var_constraint: NonNegativeFloat = 0.0001,
        kl_constraint: NonNegativeFloat = 0.01,
        alpha_scale: NonNegativeFloat = 10.0,
        alpha_mean_scale: NonNegativeFloat = 1.0,
        alpha_var_scale: NonNegativeFloat = 100.0,
        alpha_mean_max: NonNegativeFloat = 0.1,
        alpha_var_max: NonNegativeFloat = 10.0,
        alpha_max: NonNegativeFloat = 1.0,
        mstep_iterations: PositiveInt = 5,
        sample_action_num: PositiveInt = 64,
        max_grad_norm: PositiveFloat = 0.1,
        policy_loss_addons: AddOns = [],  # noqa: B006  the page's default; copied at once
    ) -> None:
        super().__init__(
            device,
            envs,
            actor,
            gamma=gamma,
            polyak=polyak,
            num_updates=num_updates,
            update_every=update_every,
            test_every=test_every,
            max_grad_norm=max_grad_norm,
            start_steps=start_steps,
            mini_batch_size=mini_batch_size,
            num_test_episodes=num_test_episodes,
            target_update_interval=target_update_interval,
            policy_loss_addons=policy_loss_addons,
        )
        self.lr_q, self.lr_pi = lr_q, lr_pi
        self.dual_constraint = dual_constraint
        self.kl_mean_constraint, self.kl_var_constraint = kl_mean_constraint, kl_var_constraint
        self.kl_constraint = kl_constraint
        self.alpha_scale, self.alpha_max = alpha_scale, alpha_max
        self.alpha_mean_scale, self.alpha_mean_max = alpha_mean_scale, alpha_mean_max
        self.alpha_var_scale, self.alpha_var_max = alpha_var_scale, alpha_var_max
        self.mstep_iterations = mstep_iterations
        self.sample_action_num = sample_action_num
        self.eta = 1.0
        self.duals = {name: torch.zeros((), device=self.device) for name in self.constraints}
        self.improvement: Improvement | None = None  # of the last gradients that were computed
        self.optimize_apart(lr_q, lr_pi)

    @property
    def discrete_version(self) -> bool:
        """Whether actions are discrete."""
        return isinstance(self.actor.action_space, spaces.Discrete)

    @property
    def constraints(self) -> dict[str, tuple[float, float, float]]:
        """By name of its multiplier: (largest divergence, step size, largest multiplier)."""
        if self.discrete_version:
            return {"alpha": (self.kl_constraint, self.alpha_scale, self.alpha_max)}
        return {
            "alpha_mean": (self.kl_mean_constraint, self.alpha_mean_scale, self.alpha_mean_max),
            "alpha_var": (self.kl_var_constraint, self.alpha_var_scale, self.alpha_var_max),
        }

    @property
    def target_step(self) -> float:
        """1 − polyak, or all the way: an average with polyak = 1 would never move."""
        return 1.0 if self.polyak == 1.0 else super().target_step

    def scores(self, obs: Tree, rhs: Any, done: Tensor) -> tuple[Any, Tensor | None, Tensor]:
        """(π̄, K of its actions ``[K, B, A]``, their scores by Q̄ ``[B, K]``); discrete: (π̄, None, all scores).

        Samples are scored as they would be executed; the policy is fitted to what was drawn.
        """
        old: Any = self.target.get_policy(obs, rhs, done)[0]
        if self.discrete_version:
            return old, None, self.target.get_q_scores(obs, rhs, done, num_critics=1)["q1"]
        noise = normal_like(old.mean.new_empty(self.sample_action_num, *old.mean.shape), self.generator)
        drawn = torch.addcmul(old.mean, old.log_std.exp(), noise)
        executed = old.executed(self.actor.box_scale.to_box(drawn)).flatten(0, 1)
        q = self.target.get_q_scores(obs, rhs, done, executed, num_critics=1)["q1"]
        return old, drawn, q.view(len(drawn), -1).t()

    @torch.no_grad()
    def bootstrap(self, batch: Batch) -> Tensor:
        """E_{a~π̄(s')}[Q̄(s', a)]: the mean of K samples, or exact if discrete."""
        old, drawn, scores = self.scores(*self.successors(batch))
        if drawn is None:
            return (old.log_probs.exp() * scores).sum(-1, keepdim=True)  # type: ignore[no-any-return]
        return scores.mean(-1, keepdim=True)

    def compute_loss_q(self, batch: Batch, n_step: Any = 1, per_weights: Any = 1) -> tuple[Tensor, Tensor]:
        """(½·mean w·(Q(s, a) − y)², |Q(s, a) − y|)."""
        _, _, loss, errors = self.critic_losses(batch, n_step, per_weights)
        return loss, errors

    @torch.no_grad()
    def e_step(self, batch: Batch, per_weights: Any) -> Improvement:
        """q ∝ π̄·exp(Q̄/η) at the η that minimizes the dual (1806.06920, eq. 9)."""
        old, drawn, scores = self.scores(batch[OBS], batch[RHS], batch[DONE])
        log_prior = old.log_probs if drawn is None else torch.full_like(scores, -math.log(len(drawn)))
        eta = temperature(scores, log_prior, self.dual_constraint, self.eta)
        return Improvement(batch, per_weights, old, drawn, improved_policy(eta, scores, log_prior), eta)

    def m_step(self, found: Improvement) -> tuple[Tensor, Any, Info, dict[str, Tensor]]:
        """(loss, π, divergences by name, multipliers one step on) (1812.02256, eq. 4; 1806.06920, eq. 12).

        The loss is −mean w·Σ_k q_k·log π(a_k) + Σ α·(C − ε).
        """
        new: Any = self.actor.get_policy(found.batch[OBS], found.batch[RHS], found.batch[DONE])[0]
        if found.drawn is None:
            fit = (found.q * new.log_probs).sum(-1, keepdim=True)
            divergences = {"kl": found.old.kl(new).mean()}
        else:
            gaussians = (found.old.mean, found.old.log_std), (new.mean, new.log_std)
            fit = (found.q.t().unsqueeze(-1) * decoupled_log_prob(found.drawn, *gaussians)).sum(0)
            by_mean, by_var = decoupled_kl(*gaussians)
            divergences = {"kl_mean": by_mean.mean(), "kl_var": by_var.mean()}
        loss = -(found.per_weights * fit).mean()
        duals = {}
        for (name, (constraint, scale, largest)), kl in zip(
            self.constraints.items(), divergences.values(), strict=True
        ):
            duals[name] = ascend(self.duals[name], kl.detach(), constraint, scale, largest)
            loss = loss + duals[name] * (kl - constraint)
        return loss, new, {name: kl.detach() for name, kl in divergences.items()}, duals

    def compute_loss_pi(self, batch: Batch, per_weights: Any = 1) -> Tensor:
        """The loss of the first step of an M-step, after an E-step; neither is remembered."""
        return self.m_step(self.e_step(batch, per_weights))[0]

    def compute_gradients(self, batch: Batch, grads_to_cpu: bool = True) -> tuple[list[Tensor | None], Info]:
        """The critic's gradients, and the policy's of an M-step's first step."""
        batch, n_step, weights = self.replayed(batch)
        loss_q, errors = self.compute_loss_q(batch, n_step, weights)
        found = self.e_step(batch, weights)
        loss_pi, dist, divergences, duals = self.m_step(found)
        info = {"loss_q": loss_q.detach(), "loss_pi": loss_pi.detach(), "eta": torch.tensor(found.eta)}
        info |= divergences | duals
        loss_pi = self.with_addons(loss_pi, batch, dist, info)
        if PER_WEIGHTS in batch:
            info["errors"] = errors
        gradients = self.gradients_by([(loss_q, self.critic), (loss_pi, self.policy)], grads_to_cpu)
        self.improvement, self.eta, self.duals = found, found.eta, duals  # of losses that were not refused
        return gradients, info

    def further_steps(self) -> None:
        """The other steps of the M-step, on the E-step of the last gradients."""
        found, self.improvement = self.improvement, None
        if found is None:
            return
        for _ in range(self.mstep_iterations - 1):
            loss, dist, _, duals = self.m_step(found)
            self.gradients_by([(self.with_addons(loss, found.batch, dist, {}), self.policy)], grads_to_cpu=False)
            self.duals = duals
            self.step_optimizers()

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"eta": self.eta, "duals": dict(self.duals)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.eta = state["eta"]
        self.duals = {name: dual.to(self.device) for name, dual in state["duals"].items()}
