"""Feature extractors: from an observation to a vector of features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.initialization import orthogonal
from pytorchrl.component import Component
from pytorchrl.errors import ConfigError, SpaceError, suggestion
from pytorchrl.parameters import PositiveInt

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}


class MLP(nn.Module, Component):
    """A multi-layer perceptron over the flattened observation, ``[B, *shape]`` to ``[B, num_features]``.

    Parameters
        input_space: the observation space.
        hidden_sizes: width of each layer.
        activation: the nonlinearity behind each layer.
    """

    supplied_parameters = ("input_space",)

    def __init__(
        self,
        input_space: gym.Space[Any],
        hidden_sizes: Sequence[PositiveInt] = (64, 64),
        activation: Literal["tanh", "relu", "elu", "silu"] = "tanh",
    ) -> None:
        super().__init__()
        if not isinstance(input_space, spaces.Box):
            raise SpaceError(f"MLP cannot read observation space {input_space}", "Supported: Box.")
        size = math.prod(input_space.shape)
        layers: list[nn.Module] = []
        for width in hidden_sizes:
            layers += [orthogonal(nn.Linear(size, width), math.sqrt(2)), ACTIVATIONS[activation]()]
            size = width
        self.layers = nn.Sequential(*layers)
        self.num_features = size
        self.flatten = len(input_space.shape) != 1

    def forward(self, obs: Tensor) -> Tensor:
        if self.flatten:
            obs = obs.flatten(1)
        return self.layers(obs.float())  # type: ignore[no-any-return]


FEATURE_EXTRACTORS: dict[str, type[nn.Module]] = {"MLP": MLP}


def make_extractor(
    input_space: gym.Space[Any], network: str | type[nn.Module] | None, kwargs: dict[str, Any] | None
) -> nn.Module:
    """The extractor by name or class; None means the one that fits the space.

    A class of one's own takes the observation space first, and has ``num_features``.
    """
    if network is None:
        network = MLP
    elif isinstance(network, str):
        if network not in FEATURE_EXTRACTORS:
            raise ConfigError(f"unknown feature extractor '{network}'", suggestion(network, FEATURE_EXTRACTORS))
        network = FEATURE_EXTRACTORS[network]
    if issubclass(network, Component):
        return network(**network.complete({"input_space": input_space, **(kwargs or {})}))
    return network(input_space, **(kwargs or {}))
