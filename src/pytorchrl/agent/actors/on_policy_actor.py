"""OnPolicyActor: a stochastic policy and a state-value function."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.actors.distributions import Distribution, stochastic_head
from pytorchrl.agent.actors.feature_extractors import make_extractor
from pytorchrl.agent.actors.initialization import orthogonal
from pytorchrl.tree import Tree

Rhs = dict[str, Tensor]


class OnPolicyActor(Actor):
    """Policy π(a|o) and value V(o), on shared features or on features of their own.

    Parameters
        feature_extractor_network: name or class of the network that reads observations; null takes what fits.
        feature_extractor_kwargs: its parameters.
        shared_policy_value_network: whether policy and value read the same features.
    """

    def __init__(
        self,
        device: torch.device | str,
        input_space: gym.Space[Any],
        action_space: gym.Space[Any],
        algorithm_name: str,
        feature_extractor_network: str | type[nn.Module] | None = None,
        feature_extractor_kwargs: dict[str, Any] | None = None,
        shared_policy_value_network: bool = True,
    ) -> None:
        super().__init__(device, input_space, action_space, algorithm_name)

        def extractor() -> nn.Module:
            return make_extractor(input_space, feature_extractor_network, feature_extractor_kwargs)

        self.policy_features = extractor()
        self.value_features = self.policy_features if shared_policy_value_network else extractor()
        size: int = self.policy_features.num_features  # type: ignore[assignment]
        self.policy_net = stochastic_head(size, action_space)
        self.value_net1 = orthogonal(nn.Linear(size, 1), 1.0)
        self.to(self.device)

    def forward(self, obs: Tree, rhs: Rhs, done: Tensor) -> tuple[Distribution, dict[str, Tensor], Rhs]:
        """(π(·|o), {"value_net1": V(o) [B, 1]}, next hidden states): everything that the networks say about ``obs``."""
        features = self.policy_features(obs)
        shared = self.value_features is self.policy_features
        value_features = features if shared else self.value_features(obs)
        return self.policy_net(features), {"value_net1": self.value_net1(value_features)}, dict(rhs)

    def get_action(
        self, obs: Tree, rhs: Rhs, done: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, Rhs, Tensor, Distribution]:
        """(action, clipped_action, logp, rhs, entropy, dist); the clipped action is the one to execute."""
        dist: Distribution = self.policy_net(self.policy_features(obs))
        action = dist.mode() if deterministic else dist.sample(self.generator)
        return action, dist.executed(action), dist.log_prob(action), dict(rhs), dist.entropy(), dist

    def evaluate_actions(
        self, obs: Tree, rhs: Rhs, done: Tensor, action: Tensor
    ) -> tuple[Tensor, Tensor, Distribution]:
        """(logp [B, 1], entropy [B, 1], dist) of given actions."""
        dist: Distribution = self.policy_net(self.policy_features(obs))
        return dist.log_prob(action), dist.entropy(), dist

    def get_value(self, obs: Tree, rhs: Rhs, done: Tensor) -> dict[str, Any]:
        """{"value_net1": V(o) [B, 1], "rhs": next hidden states}."""
        return {"value_net1": self.value_net1(self.value_features(obs)), "rhs": dict(rhs)}
