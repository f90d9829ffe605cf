"""What on-policy algorithms share: how they act."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.on_policy_actor import VALUE_HEADS, OnPolicyActor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.keys import LOGP, VAL
from pytorchrl.tree import Tree


class OnPolicyAlgorithm(Algorithm):
    """Acts by sampling from the policy, and predicts values and log-probabilities on the way."""

    # The values that are predicted while acting.
    predicts: ClassVar[tuple[str, ...]] = (VAL,)

    actor: OnPolicyActor

    @torch.no_grad()  # as quick as inference mode here, and its tensors may meet autograd later
    def acting_step(
        self, obs: Tree, rhs: dict[str, Tensor], done: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """(action, clipped_action, rhs, {VAL, LOGP, …}); stored is the sampled action, whose log-prob is known."""
        dist, values, rhs = self.actor(obs, rhs, done)
        action = dist.mode() if deterministic else dist.sample(self.actor.generator)
        other = {key: values[VALUE_HEADS[key]] for key in self.predicts}
        return action, dist.executed(action), rhs, {**other, LOGP: dist.log_prob(action)}
