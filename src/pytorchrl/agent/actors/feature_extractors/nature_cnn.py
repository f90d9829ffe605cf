"""The convolutional network of the DQN paper (Nature 518, 2015)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from pytorchrl.agent.actors.feature_extractors.convolution import Convolution
from pytorchrl.agent.actors.feature_extractors.inputs import Image, box
from pytorchrl.agent.actors.initialization import HIDDEN_GAIN, orthogonal
from pytorchrl.component import Component
from pytorchrl.errors import SpaceError
from pytorchrl.parameters import PositiveFloat, PositiveInt

# The smallest image that the three convolutions leave something of.
SMALLEST = 36


class NatureCNN(nn.Module, Component):
    """Three convolutions and a layer over images ``[B, C, H, W]``, to ``[B, num_features]``.

    Parameters
        input_space: the observation space.
        output_size: width of the last layer.
        gain: scale of the orthogonal initialization.
    """

    supplied_parameters = ("input_space",)

    def __init__(
        self, input_space: gym.Space[Any], output_size: PositiveInt = 512, gain: PositiveFloat = HIDDEN_GAIN
    ) -> None:
        super().__init__()
        space = box(input_space, type(self).__name__, 3)
        if min(space.shape[1:]) < SMALLEST:
            raise SpaceError(
                f"NatureCNN needs images of at least {SMALLEST}x{SMALLEST}, got {space.shape[1]}x{space.shape[2]}",
                "ImpalaCNN reads smaller ones.",
            )
        self.convolutions = nn.Sequential(
            Image(space),
            orthogonal(Convolution(space.shape[0], 32, 8, stride=4), gain),
            nn.ReLU(),
            orthogonal(Convolution(32, 64, 4, stride=2), gain),
            nn.ReLU(),
            orthogonal(Convolution(64, 64, 3), gain),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            size = self.convolutions(torch.zeros(1, *space.shape)).shape[1]
        self.output = orthogonal(nn.Linear(size, output_size), gain)
        self.num_features = output_size

    def forward(self, obs: Tensor) -> Tensor:
        return relu(self.output(self.convolutions(obs)))
