"""Random tensors for any device from a generator on the CPU: a seed means the same numbers wherever networks live."""

from __future__ import annotations

import torch
from torch import Tensor


def normal_like(x: Tensor, generator: torch.Generator, sigma: float = 1.0) -> Tensor:
    """Normal numbers of mean 0, in the shape and on the device of ``x``."""
    return torch.empty_like(x, device=generator.device).normal_(0.0, sigma, generator=generator).to(x.device)


def uniform_like(x: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers from [0, 1), likewise."""
    return torch.empty_like(x, device=generator.device).uniform_(generator=generator).to(x.device)


def exponential_like(x: Tensor, generator: torch.Generator) -> Tensor:
    """Exponential numbers of rate 1, likewise."""
    return torch.empty_like(x, device=generator.device).exponential_(generator=generator).to(x.device)
