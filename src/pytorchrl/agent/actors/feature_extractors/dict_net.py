"""One network per entry of a Dict observation, their features side by side."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.component import Component
from pytorchrl.errors import ConfigError, SpaceError, suggestion


class DictNet(nn.Module, Component):
    """Dict observations: every entry through the extractor that fits it, or that is named for it, then concatenated.

    Parameters
        input_space: the observation space.
        networks: by key, name or class of the entry's extractor; the others have what fits.
        network_kwargs: by key, the parameters of the entry's extractor.
    """

    supplied_parameters = ("input_space",)

    def __init__(
        self,
        input_space: gym.Space[Any],
        networks: dict[str, Any] | None = None,
        network_kwargs: dict[str, Any] | None = None,
    ) -> None:
        from pytorchrl.agent.actors.feature_extractors import make_extractor

        super().__init__()
        if not isinstance(input_space, spaces.Dict):
            raise SpaceError(f"DictNet cannot read observation space {input_space}", "Supported: Dict.")
        networks, network_kwargs = networks or {}, network_kwargs or {}
        self.keys = list(input_space.spaces)
        for key in (*networks, *network_kwargs):
            if key not in self.keys:
                raise ConfigError(f"the observation has no entry '{key}'", suggestion(key, self.keys))
        self.networks = nn.ModuleList(
            make_extractor(space, networks.get(key), network_kwargs.get(key))
            for key, space in input_space.spaces.items()
        )
        self.num_features = sum(network.num_features for network in self.networks)  # type: ignore[misc]

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        return torch.cat([network(obs[key]) for key, network in zip(self.keys, self.networks, strict=True)], -1)
