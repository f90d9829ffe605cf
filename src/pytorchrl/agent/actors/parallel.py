"""K networks of the same making side by side: policy and value, or the critics of an ensemble.

Multi-layer perceptrons are computed together, each layer of all K as one batched matrix product; everything else one
after the other. Either way features are ``[K, B, F]``, row k depends on the parameters of network k alone, and the
first ``count`` networks can be had without the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.feature_extractors import MLP, make_extractor
from pytorchrl.agent.actors.feature_extractors.inputs import as_float
from pytorchrl.tree import Tree


class ParallelLinear(nn.Module):
    """K linear layers: ``[K, B, m]`` to ``[K, B, n]``; weights are ``[K, m, n]``, biases ``[K, 1, n]``."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().t() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach().unsqueeze(0) for layer in layers]))

    def forward(self, x: Tensor) -> Tensor:
        count = len(x)
        if count == len(self.weight):
            return torch.baddbmm(self.bias, x, self.weight)
        return torch.baddbmm(self.bias[:count], x, self.weight[:count])


class ParallelMLP(nn.Module):
    """K multi-layer perceptrons."""

    def __init__(self, networks: Sequence[MLP]) -> None:
        super().__init__()
        first = networks[0]
        self.count = len(networks)
        self.scale, self.flatten, self.activation = first.scale, first.flatten, first.activation
        self.num_features = first.num_features
        self.layers = nn.ModuleList(
            ParallelLinear(layers) for layers in zip(*(network.layers for network in networks), strict=True)
        )

    def forward(self, obs: Tensor, count: int | None = None) -> Tensor:
        """The networks on the same observations, ``[B, *shape]``."""
        x = as_float(obs, self.scale)
        if self.flatten:
            x = x.flatten(1)
        return self.each(x.expand(count or self.count, *x.shape))

    def each(self, x: Tensor) -> Tensor:
        """Network k on ``x[k]``, vectors ``[K, B, F]``."""
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


class SideBySide(nn.Module):
    """K networks of any kind."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.num_features = networks[0].num_features

    def forward(self, obs: Tree, count: int | None = None) -> Tensor:
        """The networks on the same observations."""
        return torch.stack([network(obs) for network in self.networks[:count]])

    def each(self, x: Tensor) -> Tensor:
        """Network k on ``x[k]``."""
        return torch.stack([network(rows) for network, rows in zip(self.networks, x, strict=False)])


def make_extractors(
    count: int, input_space: gym.Space[Any], network: str | type[nn.Module] | None, kwargs: dict[str, Any] | None
) -> ParallelMLP | SideBySide:
    """``count`` extractors as ``make_extractor`` makes them, each with weights of its own."""
    networks = [make_extractor(input_space, network, kwargs) for _ in range(count)]
    perceptrons = [network for network in networks if type(network) is MLP]
    return ParallelMLP(perceptrons) if len(perceptrons) == count else SideBySide(networks)
