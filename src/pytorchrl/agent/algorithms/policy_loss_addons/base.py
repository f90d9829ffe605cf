"""PolicyLossAddOn: one more term in a policy loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.base import Actor
from pytorchrl.errors import ConfigError
from pytorchrl.registry import load_class


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

    def get_state(self) -> dict[str, Any]:
        """What the next loss depends on, for a checkpoint."""
        return {"parameters": [parameter.detach().clone() for parameter in self.parameters()]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        for parameter, value in zip(self.parameters(), state["parameters"], strict=True):
            parameter.data.copy_(value)


# One or several; in a configuration each is ``{name: RewardPredictor, config: {…}}``.
AddOns = PolicyLossAddOn | Mapping[str, Any] | Sequence[PolicyLossAddOn | Mapping[str, Any]]


def set_up(addons: AddOns, actor: Actor, device: torch.device) -> list[PolicyLossAddOn]:
    """The add-ons as a list of one's own, ready."""
    several = [addons] if isinstance(addons, (PolicyLossAddOn, Mapping)) else list(addons)
    ready = [_described(addon) if isinstance(addon, Mapping) else addon for addon in several]
    for addon in ready:
        if not isinstance(addon, PolicyLossAddOn):
            raise ConfigError(f"policy_loss_addons: expected a PolicyLossAddOn, got {addon!r}")
        addon.setup(actor, device)
    return ready


def _described(description: Mapping[str, Any]) -> PolicyLossAddOn:
    """The add-on that ``{name, config}`` describes."""
    unknown = [key for key in description if key not in ("name", "config")]
    if unknown or not isinstance(description.get("name"), str):
        got = ", ".join(map(str, description)) or "nothing"
        raise ConfigError(f"policy_loss_addons: expected {{name: …, config: {{…}}}}, got the keys {got}")
    try:
        addon: PolicyLossAddOn = load_class("policy-loss add-on", description["name"]).instantiate_from_config_dict(
            description.get("config") or {}
        )
    except ConfigError as error:
        raise ConfigError(f"policy_loss_addons: {error.what}", error.fix) from None
    return addon
