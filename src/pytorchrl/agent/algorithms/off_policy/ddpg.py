"""Deep deterministic policy gradient (arXiv 1509.02971)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.algorithms.base import Batch, Info
from pytorchrl.agent.algorithms.off_policy.base import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.policy_loss_addons.base import AddOns
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.keys import DONE, OBS, PER_WEIGHTS, RHS
from pytorchrl.parameters import NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat

FACTORY_ORDER = (
    "lr_q",
    "lr_pi",
    "gamma",
    "polyak",
    "num_updates",
    "test_every",
    "update_every",
    "start_steps",
    "max_grad_norm",
    "mini_batch_size",
    "num_test_episodes",
    "target_update_interval",
    "policy_loss_addons",
)


def deterministic_policy_loss(actor: OffPolicyActor, batch: Batch, weights: Any) -> tuple[Tensor, Any]:
    """(−mean w·Q_1(s, μ(s)), μ(s)), whose gradient in the policy is that of eq. 6."""
    inputs = batch[OBS], batch[RHS], batch[DONE]
    dist, _ = actor.get_policy(*inputs)
    scores = actor.get_q_scores(*inputs, dist.mode(), num_critics=1)
    return -(weights * scores["q1"]).mean(), dist


class DDPG(OffPolicyAlgorithm):
    """A critic of actions, and a deterministic policy that climbs it.

    Parameters
        lr_q: learning rate of the critics.
        lr_pi: learning rate of the policy.
    """

    num_critics: ClassVar = 1
    factory_defaults: ClassVar = {
        "lr_q": 1e-3,
        "num_updates": 50,
        "test_every": 5000,
        "start_steps": 1000,
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
        self.optimize_apart(lr_q, lr_pi)

    @torch.no_grad()
    def bootstrap(self, batch: Batch) -> Tensor:
        """Q̄(s', μ̄(s')): the target policy's action, without noise, as the target critic sees it."""
        obs, rhs, done = self.successors(batch)
        dist, _ = self.target.get_policy(obs, rhs, done)
        return self.target.get_q_scores(obs, rhs, done, dist.mode(), num_critics=1)["q1"]  # type: ignore[no-any-return]

    def compute_loss_q(self, data: Batch, n_step: Any = 1, per_weights: Any = 1) -> tuple[Tensor, ...]:
        """(L_1, 0, ½L_1, errors) with L_1 = mean w·(Q(s, a) − y)² (eq. 4)."""
        return self.critic_losses(data, n_step, per_weights)

    def compute_loss_pi(self, data: Batch, per_weights: Any = 1) -> Tensor:
        """−mean w·Q(s, μ(s))."""
        loss, _ = deterministic_policy_loss(self.actor, data, per_weights)
        return loss

    def compute_gradients(self, batch: Batch, grads_to_cpu: bool = True) -> tuple[list[Tensor | None], Info]:
        batch, n_step, weights = self.replayed(batch)
        loss_q1, _, loss_q, errors = self.compute_loss_q(batch, n_step, weights)
        loss_pi, dist = deterministic_policy_loss(self.actor, batch, weights)
        info = {"loss_q1": loss_q1.detach(), "loss_pi": loss_pi.detach()}
        loss_pi = self.with_addons(loss_pi, batch, dist, info)
        if PER_WEIGHTS in batch:
            info["errors"] = errors
        return self.gradients_by([(loss_q, self.critic), (loss_pi, self.policy)], grads_to_cpu), info
