"""The residual network of the IMPALA paper (arXiv 1802.01561), also with the initialization of Fixup."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from pytorchrl.agent.actors.feature_extractors.convolution import Convolution
from pytorchrl.agent.actors.feature_extractors.inputs import Image, box
from pytorchrl.agent.actors.initialization import HIDDEN_GAIN, orthogonal
from pytorchrl.component import Component
from pytorchrl.parameters import PositiveFloat, PositiveInt


def _convolution(inputs: int, outputs: int, gain: float) -> Convolution:
    return orthogonal(Convolution(inputs, outputs, 3, padding=1), gain)


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int, gain: float) -> None:
        super().__init__()
        self.first = _convolution(channels, channels, gain)
        self.second = _convolution(channels, channels, gain)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(relu(self.first(relu(x))))  # type: ignore[no-any-return]


class FixupBlock(nn.Module):
    """A residual block that begins as the identity (arXiv 1901.09321).

    Scalar biases before each convolution and each nonlinearity, a scalar factor behind the second convolution. Of L
    blocks with two convolutions each, the first convolution starts with He's weights times L^(−1/2), the second with 0.
    """

    def __init__(self, channels: int, num_blocks: int) -> None:
        super().__init__()
        self.first = Convolution(channels, channels, 3, padding=1, bias=False)
        self.second = Convolution(channels, channels, 3, padding=1, bias=False)
        nn.init.normal_(self.first.weight, std=math.sqrt(2 / (channels * 9)) * num_blocks**-0.5)
        nn.init.zeros_(self.second.weight)
        self.biases = nn.Parameter(torch.zeros(4))
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        before_first, after_first, before_second, after_second = self.biases
        y = self.first(relu(x) + before_first)
        y = self.second(relu(y + after_first) + before_second)
        return x + y * self.factor + after_second  # type: ignore[no-any-return]


class ImpalaCNN(nn.Module, Component):
    """Stages of a convolution, a halving and two residual blocks over images ``[B, C, H, W]`` of any size.

    Parameters
        input_space: the observation space.
        channels: of each stage.
        output_size: width of the last layer.
        gain: scale of the orthogonal initialization; 1 in the residual blocks' convolutions.
    """

    supplied_parameters = ("input_space",)

    def __init__(
        self,
        input_space: gym.Space[Any],
        channels: Sequence[PositiveInt] = (16, 32, 32),
        output_size: PositiveInt = 256,
        gain: PositiveFloat = HIDDEN_GAIN,
    ) -> None:
        super().__init__()
        space = box(input_space, type(self).__name__, 3)
        layers: list[nn.Module] = [Image(space)]
        inputs = space.shape[0]
        for outputs in channels:
            layers += [_convolution(inputs, outputs, gain), nn.MaxPool2d(3, stride=2, padding=1)]
            layers += [self.block(outputs, num_blocks=2 * len(channels)) for _ in range(2)]
            inputs = outputs
        self.convolutions = nn.Sequential(*layers, nn.ReLU(), nn.Flatten())
        with torch.no_grad():
            size = self.convolutions(torch.zeros(1, *space.shape)).shape[1]
        self.output = orthogonal(nn.Linear(size, output_size), gain)
        self.num_features = output_size

    def block(self, channels: int, num_blocks: int) -> nn.Module:
        """One of the ``num_blocks`` residual blocks."""
        return ResidualBlock(channels, gain=1.0)

    def forward(self, obs: Tensor) -> Tensor:
        return relu(self.output(self.convolutions(obs)))


class FixupCNN(ImpalaCNN):
    """ImpalaCNN whose residual blocks begin as identities (Fixup, arXiv 1901.09321)."""

    def block(self, channels: int, num_blocks: int) -> nn.Module:
        return FixupBlock(channels, num_blocks)
