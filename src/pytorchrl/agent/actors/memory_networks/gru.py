"""Gated recurrent units (arXiv 1406.1078)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.memory_networks.base import Memory, initialize
from pytorchrl.component import Component
from pytorchrl.parameters import PositiveInt


class GRU(Memory, Component):
    """One layer; hidden states are ``[N, output_size]``.

    Parameters
        input_size: number of features that come in.
        output_size: number of units.
    """

    supplied_parameters = ("input_size",)

    def __init__(self, input_size: PositiveInt, output_size: PositiveInt = 256) -> None:
        super().__init__()
        self.gru = nn.GRU(input_size, output_size)
        initialize(self.gru)
        self.num_features = output_size

    def initial(self, num_envs: int) -> Tensor:
        return torch.zeros(num_envs, self.num_features, device=next(self.parameters()).device)

    def run(self, x: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor]:
        y, rhs = self.gru(x, rhs.unsqueeze(0))
        return y, rhs.squeeze(0)
