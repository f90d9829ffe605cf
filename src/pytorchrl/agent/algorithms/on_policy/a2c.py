"""Advantage actor-critic (arXiv 1602.01783)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam

from pytorchrl.agent.actors.on_policy_actor import OnPolicyActor
from pytorchrl.agent.algorithms.base import Batch, Info
from pytorchrl.agent.algorithms.on_policy.base import OnPolicyAlgorithm
from pytorchrl.agent.algorithms.policy_loss_addons.base import AddOns
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.keys import ACT, ADV, DONE, OBS, RET, RHS
from pytorchrl.parameters import NonNegativeFloat, NonNegativeInt, PositiveFloat, UnitFloat


class A2C(OnPolicyAlgorithm):
    """One step along the policy gradient per rollout; policy and value have learning rates of their own.

    Parameters
        lr_v: learning rate of the value function's own layers.
        lr_pi: learning rate of everything else: the policy, and features that are shared or computed side by side.
        entropy_coef: weight of the entropy bonus.
    """

    def __init__(
        self,
        device: torch.device | str,
        envs: VecEnv | None,
        actor: OnPolicyActor,
        lr_v: PositiveFloat = 1e-4,
        lr_pi: PositiveFloat = 1e-4,
        gamma: UnitFloat = 0.99,
        test_every: NonNegativeInt = 5000,
        max_grad_norm: PositiveFloat = 0.5,
        num_test_episodes: NonNegativeInt = 5,
        policy_loss_addons: AddOns = [],  # noqa: B006  the documented default; copied at once
        *,
        entropy_coef: NonNegativeFloat = 0.0,
    ) -> None:
        super().__init__(
            device,
            envs,
            actor,
            gamma=gamma,
            test_every=test_every,
            num_test_episodes=num_test_episodes,
            max_grad_norm=max_grad_norm,
            policy_loss_addons=policy_loss_addons,
        )
        self.entropy_coef = entropy_coef
        self.lr_v, self.lr_pi = lr_v, lr_pi
        policy = actor.policy_parameters()
        value = [parameter for parameter in actor.parameters() if all(parameter is not other for other in policy)]
        policy += self.addon_parameters
        self.optimizers = [Adam(value, lr=lr_v, fused=True), Adam(policy, lr=lr_pi, fused=True)]

    def compute_loss(self, batch: Batch) -> tuple[Tensor, Info]:
        """−mean(log π(a|o)·A) − entropy_coef·H + mean (R − V)²."""
        dist, values, _ = self.actor(batch[OBS], batch[RHS], batch[DONE])
        action_loss = -(dist.log_prob(batch[ACT]) * batch[ADV]).mean()
        value_loss = (batch[RET] - values["value_net1"]).square().mean()
        entropy = dist.entropy().mean()
        info: Info = {}
        policy_loss = self.with_addons(action_loss - self.entropy_coef * entropy, batch, dist, info)
        loss = policy_loss + value_loss
        info |= {"loss": loss, "value_loss": value_loss, "action_loss": action_loss, "entropy_loss": entropy}
        return loss, {name: value.detach() for name, value in info.items()}

    def compute_gradients(self, batch: Batch, grads_to_cpu: bool = True) -> tuple[list[Tensor | None], Info]:
        loss, info = self.compute_loss(batch)
        return self.gradients_of(loss, grads_to_cpu), info

    def _set_parameter(self, name: str, value: Any) -> None:
        super()._set_parameter(name, value)
        if name in ("lr_v", "lr_pi"):
            self.optimizers[("lr_v", "lr_pi").index(name)].param_groups[0]["lr"] = value
