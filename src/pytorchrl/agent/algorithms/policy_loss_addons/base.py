"""PolicyLossAddOn: one more term in a policy loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.base import Actor


class PolicyLossAddOn(ABC):
    """A term that depends on the policy's distribution at a batch's observations.

    ``parameters`` are what the add-on learns itself; they join the algorithm's.
    """

    @abstractmethod
    def setup(self, actor: Actor, device: torch.device) -> None:
        """Called once, before the first loss."""

    @abstractmethod
    def compute_loss_term(
        self, batch: Mapping[str, Any], dist: Any, info: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(the weighted term, info with what is worth logging)."""

    def parameters(self) -> Iterable[nn.Parameter]:
        """Parameters of its own; none unless it learns."""
        return ()


AddOns = PolicyLossAddOn | Sequence[PolicyLossAddOn]


def set_up(addons: AddOns, actor: Actor, device: torch.device) -> list[PolicyLossAddOn]:
    """The add-ons as a list of one's own, ready."""
    ready = [addons] if isinstance(addons, PolicyLossAddOn) else list(addons)
    for addon in ready:
        addon.setup(actor, device)
    return ready
