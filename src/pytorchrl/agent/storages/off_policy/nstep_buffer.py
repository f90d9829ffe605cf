"""Replay of n-step windows."""

from __future__ import annotations

import torch

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.parameters import PositiveInt


class NStepBuffer(ReplayBuffer):
    """Transitions over n steps: the discounted sum of m ≤ n rewards, and what followed the last of them.

    m ends with the episode, and with the newest transition: ``n_step`` of a batch says how many rewards were summed.
    Windows are made when they are drawn, with the present γ and n: nothing waits for steps to come, the tails of
    episodes are windows like others, and both parameters may change at any time.

    Parameters
        n_step: steps per window.
    """

    def __init__(
        self,
        size: PositiveInt,
        device: torch.device | str,
        actor: Actor,
        algorithm: Algorithm | None,
        envs: VecEnv | None,
        n_step: PositiveInt = 1,
        *,
        sequence_length: PositiveInt = 20,
        memmap: str | None = None,
    ) -> None:
        super().__init__(size, device, actor, algorithm, envs, sequence_length=sequence_length, memmap=memmap)
        self.n_step = n_step
