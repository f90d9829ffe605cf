"""Memory networks: what lets a policy remember what it saw."""

from __future__ import annotations

from typing import Any, cast

from torch import nn

from pytorchrl.agent.actors.memory_networks.base import Memory
from pytorchrl.agent.actors.memory_networks.gru import GRU
from pytorchrl.agent.actors.memory_networks.lstm import LSTM
from pytorchrl.agent.actors.networks import build_network

MEMORY_NETWORKS: dict[str, type[nn.Module]] = {"GRU": GRU, "LSTM": LSTM}


def make_memory(input_size: int, network: str | type[nn.Module], kwargs: dict[str, Any] | None) -> Memory:
    """The memory network by name, or of a class of one's own, which takes the number of features first.

    Such a class is a ``Memory``, or has its ``num_features``, ``initial`` and ``forward``.
    """
    return cast(Memory, build_network("memory network", MEMORY_NETWORKS, network, input_size, kwargs or {}))


__all__ = ["GRU", "LSTM", "MEMORY_NETWORKS", "Memory", "make_memory"]
