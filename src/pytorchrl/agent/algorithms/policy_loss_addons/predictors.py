"""Auxiliary losses: what an observation is worth, predicted by a network of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.actors.feature_extractors import make_extractor
from pytorchrl.agent.actors.initialization import orthogonal
from pytorchrl.agent.algorithms.policy_loss_addons.base import PolicyLossAddOn
from pytorchrl.component import Component
from pytorchrl.errors import ConfigError
from pytorchrl.keys import OBS, RET, REW
from pytorchrl.parameters import UnitFloat
from pytorchrl.seeding import own_generator


class RewardPredictor(PolicyLossAddOn, Component):
    """½ · mean (r̂(o) − r)² over the rows that are kept; r̂ is learned along with the policy.

    Parameters
        predictor_net_factory: name or class of the network that reads observations; null takes what fits.
        predictor_net_kwargs: its parameters.
        masked_sparse_obs_ratio: probability with which a row whose reward is 0 is left out.
    """

    # What is predicted, and how its figures are called.
    predicts: ClassVar[str] = REW
    name: ClassVar[str] = "reward"

    def __init__(
        self,
        predictor_net_factory: str | type[nn.Module] | None = None,
        predictor_net_kwargs: dict[str, Any] | None = None,
        masked_sparse_obs_ratio: UnitFloat = 0.0,
    ) -> None:
        self.predictor_net_factory = predictor_net_factory
        self.predictor_net_kwargs = predictor_net_kwargs
        self.masked_sparse_obs_ratio = masked_sparse_obs_ratio

    def setup(self, actor: Actor, device: torch.device) -> None:
        """Build the network; a predictor serves one algorithm."""
        features = make_extractor(actor.input_space, self.predictor_net_factory, self.predictor_net_kwargs)
        head = orthogonal(nn.Linear(features.num_features, 1), 1.0)  # type: ignore[arg-type]
        self.network = nn.Sequential(features, head).to(device)
        self.generator = own_generator()

    def parameters(self) -> list[nn.Parameter]:
        """Those of the network."""
        return list(self.network.parameters())

    def kept(self, targets: Tensor) -> Tensor:
        """Which rows count, ``[B, 1]`` of 0 and 1."""
        chance = torch.rand(targets.shape, generator=self.generator).to(targets.device)
        return ((targets != 0) | (chance >= self.masked_sparse_obs_ratio)).float()

    def compute_loss_term(
        self, batch: Mapping[str, Any], dist: Any, info: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if self.predicts not in batch:
            raise ConfigError(
                f"{type(self).__name__} needs '{self.predicts}', and the batches do not hold it",
                "Use it with an on-policy algorithm.",
            )
        targets = batch[self.predicts]
        kept = self.kept(targets)
        count = kept.sum().clamp(min=1.0)
        errors = self.network(batch[OBS]) - targets
        loss = 0.5 * (errors.square() * kept).sum() / count
        sizes = errors.detach().abs() * kept
        largest = sizes.max()
        return loss, {
            f"{self.name}_predictor_loss": loss.detach(),
            f"{self.name}_predictor_error": (2 * loss.detach()).sqrt(),
            f"max_{self.name}_pred_error_rms": largest,
            f"mean_{self.name}_pred_error_rms": sizes.sum() / count,
            f"min_{self.name}_pred_error_rms": torch.where(kept > 0, sizes, largest).min(),
        }

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"generator": self.generator.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.generator.set_state(state["generator"])


class ReturnPredictor(RewardPredictor):
    """The same of returns, on-policy only: ½ · mean (R̂(o) − R)² over the rows that are kept."""

    predicts: ClassVar[str] = RET
    name: ClassVar[str] = "return"
