"""Terms that pull a policy towards others, or push it away from them (arXiv 2105.12196)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.policy_loss_addons.base import PolicyLossAddOn
from pytorchrl.component import Component
from pytorchrl.errors import CheckpointError, ConfigError
from pytorchrl.keys import DONE, OBS, RHS
from pytorchrl.parameters import NonNegativeFloat, UnitFloat
from pytorchrl.tree import first_leaf


class ReferenceKL(PolicyLossAddOn, Component):
    """Base of the terms made of KL(π ‖ b_i) to fixed policies b_i.

    Parameters
        behavior_factories: the policies b_i: each a run, checkpoint or policy folder, or from Python the factory of an
            actor (with a restart_model).
        behavior_weights: w_i, one for each policy; they are divided by their sum.
        loss_term_weight: λ, the weight of the term in the loss.
        eps: the smallest probability of an action that counts, of discrete actions.
    """

    def __init__(
        self,
        behavior_factories: Sequence[str | Callable[..., Actor]],
        behavior_weights: Sequence[NonNegativeFloat],
        loss_term_weight: NonNegativeFloat = 1.0,
        eps: UnitFloat = 1e-8,
    ) -> None:
        if not behavior_factories or len(behavior_factories) != len(behavior_weights):
            raise ConfigError(
                f"{type(self).__name__} needs a weight for each policy, and at least one:"
                f" got {len(behavior_factories)} policies and {len(behavior_weights)} weights"
            )
        if sum(behavior_weights) <= 0 or not 0 < eps < 0.5:
            raise ConfigError(f"{type(self).__name__} needs a weight above 0, and eps between 0 and 0.5")
        self.behavior_factories = list(behavior_factories)
        self.behavior_weights = [weight / sum(behavior_weights) for weight in behavior_weights]
        self.loss_term_weight = loss_term_weight
        self.eps = eps
        self.references: list[Actor] = []

    def setup(self, actor: Actor, device: torch.device) -> None:
        """Load the policies, and refuse those that cannot be compared with the actor's."""
        self.references = [_reference(source, actor, device) for source in self.behavior_factories]

    def divergences(self, batch: Mapping[str, Any], dist: Any) -> Tensor:
        """KL(π ‖ b_i) at each observation, ``[K, B, 1]``. Memories of the b_i begin anew with each sequence."""
        sequences = len(first_leaf(batch[RHS]))
        policy, found = dist.floored(self.eps), []
        for reference in self.references:
            with torch.no_grad():
                other, _ = reference.get_policy(batch[OBS], reference.initial_rhs(sequences), batch[DONE])
            if type(other) is not type(dist):
                raise ConfigError(
                    f"{type(self).__name__}: a reference policy is a {type(other).__name__},"
                    f" and the one that learns is a {type(dist).__name__}",
                    "Take one that was trained with the same kind of algorithm.",
                )
            found.append(policy.kl(other.floored(self.eps)))
        return torch.stack(found)

    @abstractmethod
    def term(self, divergences: Tensor, weights: Tensor) -> Tensor:
        """The term of KL(π ‖ b_i) ``[K, B, 1]`` and w_i ``[K, 1, 1]``, without λ."""

    def compute_loss_term(
        self, batch: Mapping[str, Any], dist: Any, info: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        divergences = self.divergences(batch, dist)
        weights = torch.tensor(self.behavior_weights, device=divergences.device).view(-1, 1, 1)
        loss = self.loss_term_weight * self.term(divergences, weights)
        return loss, {f"{self.logged_as}_loss": loss.detach(), f"{self.logged_as}_kl": divergences.detach().mean()}

    # How its figures are called.
    logged_as = "reference"


class AttractionKL(ReferenceKL):
    """λ · mean_s min_i [KL(π ‖ b_i) − log w_i], a bound of KL(π ‖ Σ_i w_i b_i): close to one of the policies."""

    logged_as = "attraction"

    def term(self, divergences: Tensor, weights: Tensor) -> Tensor:
        return (divergences - weights.log()).amin(0).mean()


class RepulsionKL(ReferenceKL):
    """−λ · Σ_i w_i · mean_s KL(π ‖ b_i): away from all of the policies."""

    logged_as = "repulsion"

    def term(self, divergences: Tensor, weights: Tensor) -> Tensor:
        return -(weights * divergences).sum(0).mean()


def _reference(source: str | Callable[..., Actor], actor: Actor, device: torch.device) -> Actor:
    """A fixed policy, from its folder or its factory; nothing of it is ever unpickled."""
    if isinstance(source, str):
        from pytorchrl.policy import load_policy

        try:
            reference = load_policy(source).actor
        except CheckpointError as error:
            raise ConfigError(f"a reference policy cannot be taken: {error.what}", error.fix) from error
    else:
        reference = source(device)
    reference.requires_grad_(False).to(device).eval()
    reference.device = device
    for what in ("action_space", "input_space"):
        theirs, ours = getattr(reference, what), getattr(actor, what)
        if theirs != ours:
            raise ConfigError(f"a reference policy has the {what.replace('_', ' ')} {theirs}, and the actor {ours}")
    if reference.is_recurrent and not (actor.is_recurrent and type(reference) is type(actor)):
        raise ConfigError(
            "a reference policy has a memory, and the batches are not sequences that it could follow",
            "Give the actor a recurrent_net too, or take a reference policy without memory.",
        )
    return reference
