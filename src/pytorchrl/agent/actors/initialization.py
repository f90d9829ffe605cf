"""Orthogonal initialization with the gain that is asked for."""

from __future__ import annotations

import math
from typing import TypeVar

from torch import nn

Layer = TypeVar("Layer", bound="nn.Linear | nn.Conv2d")

# The gain behind which a ReLU, and with little loss a tanh, keeps the size of what flows through.
HIDDEN_GAIN = math.sqrt(2)


def orthogonal(layer: Layer, gain: float) -> Layer:
    """The layer with an orthogonal weight matrix scaled by ``gain``, and zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
