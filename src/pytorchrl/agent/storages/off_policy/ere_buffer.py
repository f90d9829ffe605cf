"""Replay with emphasis on recent experience (ERE, arXiv 1906.04009)."""

from __future__ import annotations

import torch

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.parameters import NonNegativeInt, PositiveInt, UnitFloat


class EREBuffer(ReplayBuffer):
    """Batch k = 1 … K of a round is drawn from the newest c_k = max(⌊stored · η^(1000 k / K)⌋, cmin) transitions.

    Parameters
        eta: η, how fast the window narrows within a round; 1 draws from everything.
        cmin: the fewest transitions that a batch is drawn from.
        eta_updates: updates in which η rises to 1, linearly; 0 keeps it.
        n_step: steps per window, as in NStepBuffer.
    """

    def __init__(
        self,
        size: PositiveInt,
        device: torch.device | str,
        actor: Actor,
        algorithm: Algorithm | None,
        envs: VecEnv | None,
        eta: UnitFloat = 1.0,
        cmin: PositiveInt = 5000,
        *,
        eta_updates: NonNegativeInt = 0,
        n_step: PositiveInt = 1,
        sequence_length: PositiveInt = 20,
        memmap: str | None = None,
    ) -> None:
        super().__init__(size, device, actor, algorithm, envs, sequence_length=sequence_length, memmap=memmap)
        self.eta = eta
        self.cmin = cmin
        self.eta_updates = eta_updates
        self.n_step = n_step
