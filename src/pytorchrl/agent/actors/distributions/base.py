"""What all policy distributions can do."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Distribution(Protocol):
    """A policy at B observations; everything that it returns has B rows."""

    def sample(self, generator: torch.Generator) -> Tensor:
        """An action per row, in environment units."""
        ...

    def mode(self) -> Tensor:
        """The action to take when nothing should be left to chance."""
        ...

    def log_prob(self, action: Tensor) -> Tensor: ...

    def entropy(self) -> Tensor: ...

    def executed(self, action: Tensor) -> Tensor:
        """The action as the environment may take it."""
        ...

    def kl(self, other: Any) -> Tensor:
        """KL(self ‖ other), to a distribution of the same class."""
        ...

    def floored(self, eps: float) -> Any:
        """The same with no probability below about ``eps``; densities stay as they are."""
        ...
