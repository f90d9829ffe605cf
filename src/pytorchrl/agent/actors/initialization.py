"""Orthogonal initialization with the gain that is asked for."""

from __future__ import annotations

from torch import nn


def orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    """The layer with an orthogonal weight matrix scaled by ``gain``, and zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
