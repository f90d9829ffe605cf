"""Feature extractors: from an observation to a vector of features."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces
from torch import nn

from pytorchrl.agent.actors.feature_extractors.dict_net import DictNet
from pytorchrl.agent.actors.feature_extractors.impala_cnn import FixupCNN, ImpalaCNN
from pytorchrl.agent.actors.feature_extractors.mlp import MLP
from pytorchrl.agent.actors.feature_extractors.nature_cnn import SMALLEST, NatureCNN
from pytorchrl.agent.actors.networks import build_network

FEATURE_EXTRACTORS: dict[str, type[nn.Module]] = {
    "MLP": MLP,
    "NatureCNN": NatureCNN,
    "ImpalaCNN": ImpalaCNN,
    "FixupCNN": FixupCNN,
    "DictNet": DictNet,
}


def fitting_extractor(space: gym.Space[Any]) -> type[nn.Module]:
    """What reads a space unless something else is chosen: Dict DictNet, images NatureCNN (small ones ImpalaCNN)."""
    if isinstance(space, spaces.Dict):
        return DictNet
    if isinstance(space, spaces.Box) and len(space.shape) == 3:
        return NatureCNN if min(space.shape[1:]) >= SMALLEST else ImpalaCNN
    return MLP


def make_extractor(
    input_space: gym.Space[Any], network: str | type[nn.Module] | None, kwargs: dict[str, Any] | None
) -> nn.Module:
    """The extractor by name or class; None means the one that fits the space.

    A class of one's own takes the observation space first, and has ``num_features``.
    """
    choice = fitting_extractor(input_space) if network is None else network
    return build_network("feature extractor", FEATURE_EXTRACTORS, choice, input_space, kwargs or {})


__all__ = ["FEATURE_EXTRACTORS", "MLP", "DictNet", "FixupCNN", "ImpalaCNN", "NatureCNN", "make_extractor"]
