"""Proximal policy optimization (arXiv 1707.06347)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam

from pytorchrl.agent.actors.on_policy_actor import OnPolicyActor
from pytorchrl.agent.algorithms.base import Batch, Info
from pytorchrl.agent.algorithms.on_policy.base import OnPolicyAlgorithm
from pytorchrl.agent.algorithms.policy_loss_addons.base import AddOns
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.functional.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    value_loss,
)
from pytorchrl.keys import ACT, ADV, DONE, LOGP, OBS, RET, RHS, VAL
from pytorchrl.parameters import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat

# Times target_kl.
FURTHEST = 1.5


class PPO(OnPolicyAlgorithm):
    """Several epochs of mini-batch steps on the clipped surrogate objective, over one rollout.

    Parameters
        lr: learning rate of Adam.
        eps: Adam's epsilon.
        num_epochs: passes over each rollout.
        clip_param: how far the probability ratio (and the value, if clipped) may move.
        num_mini_batch: mini-batches per epoch.
        entropy_coef: weight of the entropy bonus.
        value_loss_coef: weight of the value loss.
        use_clipped_value_loss: whether the value may move at most clip_param per rollout.
        target_kl: a rollout is done with once a mini-batch finds the policy further than 1.5 times this from the one
            that collected it; null for never.
    """

    def __init__(
        self,
        device: torch.device | str,
        envs: VecEnv | None,
        actor: OnPolicyActor,
        lr: NonNegativeFloat = 1e-4,
        eps: PositiveFloat = 1e-8,
        gamma: UnitFloat = 0.99,
        num_epochs: PositiveInt = 4,
        clip_param: NonNegativeFloat = 0.2,
        num_mini_batch: PositiveInt = 1,
        test_every: NonNegativeInt = 1000,
        max_grad_norm: PositiveFloat = 0.5,
        entropy_coef: NonNegativeFloat = 0.01,
        value_loss_coef: NonNegativeFloat = 0.5,
        num_test_episodes: NonNegativeInt = 5,
        use_clipped_value_loss: bool = True,
        policy_loss_addons: AddOns = [],  # noqa: B006  the documented default; copied at once
        *,
        target_kl: PositiveFloat | None = None,
    ) -> None:
        super().__init__(
            device,
            envs,
            actor,
            gamma=gamma,
            test_every=test_every,
            num_test_episodes=num_test_episodes,
            max_grad_norm=max_grad_norm,
            num_epochs=num_epochs,
            num_mini_batch=num_mini_batch,
            policy_loss_addons=policy_loss_addons,
        )
        self.clip_param = clip_param
        self.entropy_coef = entropy_coef
        self.value_loss_coef = value_loss_coef
        self.use_clipped_value_loss = use_clipped_value_loss
        self.target_kl = target_kl
        self.lr, self.eps = lr, eps
        self.optimizers = [self.adam([*actor.parameters(), *self.addon_parameters])]

    def adam(self, parameters: Iterable[Tensor]) -> Adam:
        """The optimizer of some parameters."""
        return Adam(list(parameters), lr=self.lr, eps=self.eps, fused=True)

    def advantages(self, batch: Batch) -> Tensor:
        """What the policy is to follow, ``[B, 1]``."""
        return batch[ADV]  # type: ignore[no-any-return]

    def critic_losses(self, values: Mapping[str, Tensor], batch: Batch) -> Info:
        """The loss of each critic; in the end each one counts value_loss_coef times."""
        return {"value_loss": self.critic_loss(values["value_net1"], batch[VAL], batch[RET])}

    def critic_loss(self, values: Tensor, old_values: Tensor, returns: Tensor) -> Tensor:
        """L^VF, clipped or not."""
        if self.use_clipped_value_loss:
            return clipped_value_loss(values, old_values, returns, self.clip_param)
        return value_loss(values, returns)

    def compute_loss(self, batch: Batch) -> tuple[Tensor, Info]:
        """L = −L^CLIP + value_loss_coef · L^VF − entropy_coef · S (eq. 9), with L^CLIP of eq. 7."""
        dist, values, _ = self.actor(batch[OBS], batch[RHS], batch[DONE])
        log_ratio = dist.log_prob(batch[ACT]) - batch[LOGP]
        action_loss = clipped_surrogate(log_ratio, self.advantages(batch), self.clip_param)
        critic_losses = self.critic_losses(values, batch)
        entropy = dist.entropy().mean()
        info: Info = {}
        policy_loss = self.with_addons(action_loss - self.entropy_coef * entropy, batch, dist, info)
        loss = policy_loss + self.value_loss_coef * sum(critic_losses.values())
        info |= {"loss": loss, **critic_losses, "action_loss": action_loss, "entropy_loss": entropy}
        moved = log_ratio.detach()
        info |= {"approx_kl": approximate_kl(moved), "clip_fraction": clip_fraction(moved, self.clip_param)}
        return loss, {name: value.detach() for name, value in info.items()}

    def compute_gradients(self, batch: Batch, grads_to_cpu: bool = True) -> tuple[list[Tensor | None], Info]:
        loss, info = self.compute_loss(batch)
        return self.gradients_of(loss, grads_to_cpu), info

    def is_done_with_data(self, info: Info) -> bool:
        """Whether the policy went further than ``target_kl`` allows."""
        return self.target_kl is not None and info["approx_kl"].item() > FURTHEST * self.target_kl

    def _set_parameter(self, name: str, value: Any) -> None:
        super()._set_parameter(name, value)
        if name in ("lr", "eps"):
            for optimizer in self.optimizers:
                optimizer.param_groups[0][name] = value
