"""Soft actor-critic (arXiv 1812.05905), and its discrete form (arXiv 1910.07207)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.base import mask_in
from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.algorithms.base import Batch, Info
from pytorchrl.agent.algorithms.off_policy.base import OffPolicyAlgorithm, smallest
from pytorchrl.agent.algorithms.policy_loss_addons.base import AddOns
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.keys import DONE, OBS, PER_WEIGHTS, RHS
from pytorchrl.parameters import NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat
from pytorchrl.tree import Tree


class SAC(OffPolicyAlgorithm):
    """Critics of reward and entropy, a stochastic policy that climbs them, and a temperature that keeps its entropy.

    Parameters
        lr_q: learning rate of the critics.
        lr_pi: learning rate of the policy.
        lr_alpha: learning rate of the temperature.
        initial_alpha: temperature at the start.
        target_entropy: H̄; null for minus the number of action dimensions, or 0.98·log n of n discrete actions. Where
            a mask allows m of them, log m / log n of it.
    """

    factory_defaults: ClassVar = {
        "num_updates": 50,
        "test_every": 5000,
        "start_steps": 1000,
        "target_update_interval": 1.0,
    }
    factory_order = (
        "lr_q",
        "lr_pi",
        "lr_alpha",
        "gamma",
        "polyak",
        "num_updates",
        "test_every",
        "update_every",
        "start_steps",
        "max_grad_norm",
        "initial_alpha",
        "mini_batch_size",
        "num_test_episodes",
        "target_update_interval",
        "policy_loss_addons",
    )

    def __init__(
        self,
        device: torch.device | str,
        envs: VecEnv | None,
        actor: OffPolicyActor,
        lr_q: PositiveFloat = 1e-4,
        lr_pi: PositiveFloat = 1e-4,
        lr_alpha: PositiveFloat = 1e-4,
        gamma: UnitFloat = 0.99,
        polyak: UnitFloat = 0.995,
        num_updates: PositiveInt = 1,
        update_every: PositiveInt = 50,
        test_every: NonNegativeInt = 1000,
        max_grad_norm: PositiveFloat = 0.5,
        initial_alpha: PositiveFloat = 1.0,
        start_steps: NonNegativeInt = 20000,
        mini_batch_size: PositiveInt = 64,
        num_test_episodes: NonNegativeInt = 5,
        target_update_interval: PositiveFloat = 1,
        policy_loss_addons: AddOns = [],  # noqa: B006  the page's default; copied at once
        *,
        target_entropy: float | None = None,
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
        self.lr_q, self.lr_pi, self.lr_alpha = lr_q, lr_pi, lr_alpha
        self.initial_alpha = initial_alpha
        self.target_entropy = self.default_entropy if target_entropy is None else target_entropy
        self.log_alpha = torch.tensor(math.log(initial_alpha), device=self.device, requires_grad=True)
        self.optimize_apart(lr_q, lr_pi)
        self.unclipped = [self.adam([self.log_alpha], lr_alpha)]

    @property
    def discrete_version(self) -> bool:
        """Whether actions are discrete."""
        return isinstance(self.actor.action_space, spaces.Discrete)

    @property
    def default_entropy(self) -> float:
        """H̄ = 0.98·log n of n discrete actions, or minus the number of action dimensions."""
        space = self.actor.action_space
        return 0.98 * math.log(space.n) if isinstance(space, spaces.Discrete) else -float(math.prod(space.shape or ()))

    @property
    def alpha(self) -> Tensor:
        """The temperature α."""
        return self.log_alpha.detach().exp()

    @property
    def trainable_parameters(self) -> list[Tensor]:
        """The networks, those of the add-ons, log α."""
        return [*super().trainable_parameters, self.log_alpha]

    @torch.no_grad()
    def bootstrap(self, batch: Batch) -> Tensor:
        """E_{a'~π(s')}[min_i Q̄_i(s', a') − α·log π(a'|s')] (eq. 3): of one sample, or exact if discrete."""
        obs, rhs, done = self.successors(batch)
        dist, _ = self.actor.get_policy(obs, rhs, done)
        if self.discrete_version:
            return self.soft_value(dist, self.target.get_q_scores(obs, rhs, done, num_critics=2))
        action, log_prob = dist.rsample(self.generator)  # type: ignore[attr-defined]
        score = smallest(self.target.get_q_scores(obs, rhs, done, action, num_critics=2))
        return score - self.alpha * log_prob  # type: ignore[no-any-return]

    def soft_value(self, dist: Any, scores: Mapping[str, Tensor]) -> Tensor:
        """Σ_a π(a)(min_i Q_i(a) − α·log π(a)), ``[B, 1]``."""
        soft = smallest(scores) - self.alpha * dist.log_probs
        return (dist.log_probs.exp() * soft).sum(-1, keepdim=True)  # type: ignore[no-any-return]

    def compute_loss_q(self, batch: Batch, n_step: Any = 1, per_weights: Any = 1) -> tuple[Tensor, ...]:
        """(L_1, L_2, ½L_1 + ½L_2, errors) with L_i = mean w·(Q_i(s, a) − y)² (eq. 5)."""
        return self.critic_losses(batch, n_step, per_weights)

    def compute_loss_pi(self, batch: Batch, per_weights: Any = 1) -> tuple[Tensor, Tensor]:
        """(mean w·(α·log π(a|s) − min_i Q_i(s, a)), log π) of reparametrized a (eq. 9); expectations if discrete."""
        loss, log_prob, _ = self._loss_pi(batch, per_weights)
        return loss, log_prob

    def _loss_pi(self, batch: Batch, weights: Any) -> tuple[Tensor, Tensor, Any]:
        inputs = batch[OBS], batch[RHS], batch[DONE]
        dist, _ = self.actor.get_policy(*inputs)
        if self.discrete_version:
            with torch.no_grad():
                scores = self.actor.get_q_scores(*inputs, num_critics=2)
            return -(weights * self.soft_value(dist, scores)).mean(), -dist.entropy(), dist
        action, log_prob = dist.rsample(self.generator)  # type: ignore[attr-defined]
        score = smallest(self.actor.get_q_scores(*inputs, action, num_critics=2))
        return (weights * (self.alpha * log_prob - score)).mean(), log_prob, dist

    def entropy_share(self, obs: Tree) -> Tensor | float:
        """The share of H̄ to aim for, ``[B, 1]``: log m / log n where masks allow m of n actions."""
        space = self.actor.action_space
        if not (self.actor.is_masked and isinstance(space, spaces.Discrete)) or space.n < 2:
            return 1.0
        allowed = (mask_in(obs) != 0).sum(-1, keepdim=True)
        return allowed.float().log() / math.log(space.n)

    def compute_loss_alpha(
        self, log_probs: Tensor, per_weights: Any = 1, *, entropy_share: Tensor | float = 1.0
    ) -> Tensor:
        """−mean w·log α·(log π + H̄) (eq. 18, in log α): α falls while the entropy is above H̄."""
        loss: Tensor = per_weights * self.log_alpha * (log_probs.detach() + self.target_entropy * entropy_share)
        return -loss.mean()

    def compute_gradients(self, batch: Batch, grads_to_cpu: bool = True) -> tuple[list[Tensor | None], Info]:
        batch, n_step, weights = self.replayed(batch)
        loss_q1, loss_q2, loss_q, errors = self.compute_loss_q(batch, n_step, weights)
        loss_pi, log_prob, dist = self._loss_pi(batch, weights)
        loss_alpha = self.compute_loss_alpha(log_prob, weights, entropy_share=self.entropy_share(batch[OBS]))
        info = {
            "loss_q1": loss_q1.detach(),
            "loss_q2": loss_q2.detach(),
            "loss_pi": loss_pi.detach(),
            "loss_alpha": loss_alpha.detach(),
            "alpha": self.alpha,
        }
        loss_pi = self.with_addons(loss_pi, batch, dist, info)
        if PER_WEIGHTS in batch:
            info["errors"] = errors
        losses = [(loss_q, self.critic), (loss_pi, self.policy), (loss_alpha, [self.log_alpha])]
        return self.gradients_by(losses, grads_to_cpu), info

    def _set_parameter(self, name: str, value: Any) -> None:
        super()._set_parameter(name, value)
        if name == "target_entropy" and value is None:
            self.target_entropy = self.default_entropy
        if name == "lr_alpha":
            self.unclipped[0].param_groups[0]["lr"] = value
        if name == "initial_alpha":
            self.log_alpha.data.fill_(math.log(value))

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"log_alpha": self.log_alpha.detach().clone()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.log_alpha.data.copy_(state["log_alpha"])
