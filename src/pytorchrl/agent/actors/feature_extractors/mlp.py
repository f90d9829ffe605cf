"""A multi-layer perceptron, alone or several side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn.functional import elu, relu, silu

from pytorchrl.agent.actors.feature_extractors.inputs import as_float, box, pixel_scale
from pytorchrl.agent.actors.initialization import HIDDEN_GAIN, orthogonal
from pytorchrl.component import Component
from pytorchrl.parameters import PositiveFloat, PositiveInt

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": relu, "elu": elu, "silu": silu}


class MLP(nn.Module, Component):
    """A multi-layer perceptron over the flattened observation, ``[B, *shape]`` to ``[B, num_features]``.

    Parameters
        input_space: the observation space.
        hidden_sizes: width of each layer; none of them passes the observation on.
        activation: the nonlinearity behind each layer.
        gain: scale of the orthogonal initialization.
    """

    supplied_parameters = ("input_space",)

    def __init__(
        self,
        input_space: gym.Space[Any],
        hidden_sizes: Sequence[PositiveInt] = (64, 64),
        activation: Literal["tanh", "relu", "elu", "silu"] = "tanh",
        gain: PositiveFloat = HIDDEN_GAIN,
    ) -> None:
        super().__init__()
        space = box(input_space, type(self).__name__)
        sizes = [math.prod(space.shape), *hidden_sizes]
        self.scale = pixel_scale(space)
        self.flatten = len(space.shape) != 1
        self.layers = nn.ModuleList(orthogonal(nn.Linear(m, n), gain) for m, n in pairwise(sizes))
        self.activation = ACTIVATIONS[activation]
        self.num_features = sizes[-1]

    def forward(self, obs: Tensor) -> Tensor:
        x = as_float(obs, self.scale)
        if self.flatten:
            x = x.flatten(1)
        for layer in self.layers:
            x = self.activation(layer(x))
        return x
