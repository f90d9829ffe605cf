"""Twin delayed deep deterministic policy gradient (arXiv 1802.09477)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.algorithms.base import Batch, Info
from pytorchrl.agent.algorithms.off_policy.base import OffPolicyAlgorithm, smallest
from pytorchrl.agent.algorithms.off_policy.ddpg import FACTORY_ORDER, deterministic_policy_loss
from pytorchrl.agent.algorithms.policy_loss_addons.base import AddOns
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.functional.draws import normal_like
from pytorchrl.keys import PER_WEIGHTS
from pytorchrl.parameters import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat


class TD3(OffPolicyAlgorithm):
    """DDPG with the smaller of two critics, smoothed target actions, and a policy that moves less often.

    The policy and the targets move every ``target_update_interval`` updates.

    Parameters
        lr_q: learning rate of the critics.
        lr_pi: learning rate of the policy.
        policy_noise: standard deviation of the target actions' noise, in halves of the action range.
        noise_clip: where that noise is clipped, likewise.
    """

    factory_defaults: ClassVar = {
        "num_updates": 50,
        "test_every": 5000,
        "start_steps": 1000,
        "mini_batch_size": 100,
        "target_update_interval": 1.0,
    }
    factory_order = FACTORY_ORDER

    def __init__(
        self,
        device: torch.device | str,
        envs: VecEnv | None,
        actor: OffPolicyActor,
        lr_q: PositiveFloat = 1e-4,
        lr_pi: PositiveFloat = 1e-4,
        gamma: UnitFloat = 0.99,
        polyak: UnitFloat = 0.995,
        num_updates: PositiveInt = 1,
        update_every: PositiveInt = 50,
        test_every: NonNegativeInt = 1000,
        max_grad_norm: PositiveFloat = 0.5,
        start_steps: NonNegativeInt = 20000,
        mini_batch_size: PositiveInt = 64,
        num_test_episodes: NonNegativeInt = 5,
        target_update_interval: PositiveFloat = 1,
        policy_loss_addons: AddOns = [],  # noqa: B006  the page's default; copied at once
        *,
        policy_noise: NonNegativeFloat = 0.2,
        noise_clip: NonNegativeFloat = 0.5,
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
        self.need_critics(2)
        self.lr_q, self.lr_pi = lr_q, lr_pi
        self.policy_noise, self.noise_clip = policy_noise, noise_clip
        self.last_loss_pi = torch.zeros((), device=self.device)
        self.optimize_apart(lr_q, lr_pi)

    @torch.no_grad()
    def bootstrap(self, batch: Batch) -> Tensor:
        """min_i Q̄_i(s', ã), ã = clip(μ̄(s') + clip(ξ, ±c), low, high), ξ ~ N(0, σ²) drawn for each number (eq. 14)."""
        obs, rhs, done = self.successors(batch)
        dist, _ = self.target.get_policy(obs, rhs, done)
        scale = self.actor.box_scale
        u = scale.from_box(dist.mode())
        noise = normal_like(u, self.generator, self.policy_noise)
        action = scale.clip(scale.to_box(u + noise.clamp(-self.noise_clip, self.noise_clip)))
        return smallest(self.target.get_q_scores(obs, rhs, done, action, num_critics=2))

    def compute_loss_q(self, data: Batch, n_step: Any = 1, per_weights: Any = 1) -> tuple[Tensor, ...]:
        """(L_1, L_2, ½L_1 + ½L_2, errors) with L_i = mean w·(Q_i(s, a) − y)²."""
        return self.critic_losses(data, n_step, per_weights)

    def compute_loss_pi(self, data: Batch, per_weights: Any = 1) -> Tensor:
        """−mean w·Q1(s, μ(s))."""
        loss, _ = deterministic_policy_loss(self.actor, data, per_weights)
        return loss

    def compute_gradients(self, batch: Batch, grads_to_cpu: bool = True) -> tuple[list[Tensor | None], Info]:
        """The critics' gradients always, the policy's (None otherwise) at updates d, 2d, …"""
        batch, n_step, weights = self.replayed(batch)
        loss_q1, loss_q2, loss_q, errors = self.compute_loss_q(batch, n_step, weights)
        info = {"loss_q1": loss_q1.detach(), "loss_q2": loss_q2.detach()}
        losses, last_loss_pi = [(loss_q, self.critic)], self.last_loss_pi
        if (self.iter + 1) % self.target_update_interval == 0:
            loss_pi, dist = deterministic_policy_loss(self.actor, batch, weights)
            last_loss_pi = loss_pi.detach()
            losses.append((self.with_addons(loss_pi, batch, dist, info), self.policy))
        info["loss_pi"] = last_loss_pi
        if PER_WEIGHTS in batch:
            info["errors"] = errors
        gradients = self.gradients_by(losses, grads_to_cpu)
        self.last_loss_pi = last_loss_pi  # of a loss that was not refused
        return gradients, info

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"last_loss_pi": self.last_loss_pi}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.last_loss_pi = state["last_loss_pi"].to(self.device)
