"""Long short-term memory (Hochreiter and Schmidhuber 1997)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.memory_networks.base import Memory, initialize
from pytorchrl.component import Component
from pytorchrl.parameters import PositiveInt


class LSTM(Memory, Component):
    """Stacked layers; hidden states are ``[N, 2·num_layers, layer_size]``: every layer's output, then every cell.

    Parameters
        input_size: number of features that come in.
        layer_size: units of each layer.
        num_layers: how many layers.
    """

    supplied_parameters = ("input_size",)

    def __init__(self, input_size: PositiveInt, layer_size: PositiveInt = 512, num_layers: PositiveInt = 3) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_size, layer_size, num_layers)
        initialize(self.lstm)
        self.num_layers = num_layers
        self.num_features = layer_size

    def initial(self, num_envs: int) -> Tensor:
        device = next(self.parameters()).device
        return torch.zeros(num_envs, 2 * self.num_layers, self.num_features, device=device)

    def run(self, x: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor]:
        h, c = rhs.transpose(0, 1).contiguous().chunk(2)
        y, (h, c) = self.lstm(x, (h, c))
        return y, torch.cat([h, c]).transpose(0, 1)
