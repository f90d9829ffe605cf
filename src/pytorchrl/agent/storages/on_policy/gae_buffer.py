"""One rollout with generalized advantage estimation (arXiv 1506.02438)."""

from __future__ import annotations

import torch
from torch import Tensor

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from pytorchrl.functional.returns import gae
from pytorchrl.parameters import PositiveInt, UnitFloat


class GAEBuffer(VanillaOnPolicyBuffer):
    """A rollout whose returns are GAE(λ) advantages plus values.

    Parameters
        gae_lambda: λ, from one-step targets (0) to plain returns (1).
    """

    def __init__(
        self,
        size: PositiveInt,
        device: torch.device | str,
        actor: Actor,
        algorithm: Algorithm | None,
        envs: VecEnv | None,
        gae_lambda: UnitFloat = 0.95,
    ) -> None:
        super().__init__(size, device, actor, algorithm, envs)
        self.gae_lambda = gae_lambda

    def compute_returns(self, rewards: Tensor, returns: Tensor, values: Tensor, dones: Tensor, gamma: float) -> None:
        """RET_t = A_t + V_t with A_t of GAE(λ), written into ``returns``; shapes as in the vanilla buffer."""
        ended = dones[1:]
        returns[:-1] = gae(rewards, values[:-1], values[1:], ended, ended, gamma, self.gae_lambda) + values[:-1]
        returns[-1] = values[-1]

    @property
    def used_capacity(self) -> int:
        """Steps of the rollout that hold transitions."""
        return self.size
