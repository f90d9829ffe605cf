"""Memory: recurrent networks that forget where an episode begins."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise

import torch
from torch import Tensor, nn


class Memory(nn.Module):
    """Base of all memory networks: features and a hidden state in, features and the next hidden state out.

    A hidden state has one row per environment (or sequence). Several steps of n sequences come as ``[L·n, F]``, time
    first, with the hidden states ``[n, …]`` before the first step; L follows from the two.
    """

    num_features: int

    @abstractmethod
    def initial(self, num_envs: int) -> Tensor:
        """Hidden states at the start of an episode: zeros."""

    @abstractmethod
    def run(self, x: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor]:
        """(``[L, n, num_features]``, next hidden states) of steps ``[L, n, F]`` without a reset."""

    def forward(self, x: Tensor, rhs: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """(features, next hidden states) of rows ``[L·n, F]``; where ``done`` is 1, x is read with a state of zeros."""
        n = rhs.shape[0]
        x, done = x.reshape(-1, n, x.shape[-1]), done.reshape(-1, n) != 0
        if x.shape[0] == 1:
            y, rhs = self.run(x, forget(rhs, done[0]))
            return y[0], rhs
        # The native loop runs from reset to reset.
        resets = done[1:].any(1).nonzero().flatten() + 1
        outputs = []
        for start, end in pairwise([0, *resets.tolist(), len(x)]):
            y, rhs = self.run(x[start:end], forget(rhs, done[start]))
            outputs.append(y)
        return torch.cat(outputs).flatten(0, 1), rhs


def forget(rhs: Tensor, done: Tensor) -> Tensor:
    """Hidden states with the rows set to zero where ``done``, as a new tensor."""
    return rhs.masked_fill(done.view(-1, *[1] * (rhs.dim() - 1)), 0.0)


def initialize(network: nn.Module) -> None:
    """Orthogonal weight matrices, zero biases."""
    for name, parameter in network.named_parameters():
        if "weight" in name:
            nn.init.orthogonal_(parameter)
        else:
            nn.init.zeros_(parameter)
