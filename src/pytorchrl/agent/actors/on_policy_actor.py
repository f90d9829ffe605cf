"""OnPolicyActor: a stochastic policy and a state-value function."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.base import Actor, Rhs
from pytorchrl.agent.actors.distributions import Distribution, stochastic_head
from pytorchrl.agent.actors.distributions.heads import POLICY_GAIN
from pytorchrl.agent.actors.feature_extractors import make_extractor
from pytorchrl.agent.actors.initialization import orthogonal
from pytorchrl.agent.actors.memory_networks import Memory, make_memory
from pytorchrl.agent.actors.parallel import make_extractors
from pytorchrl.keys import IVAL, VAL
from pytorchrl.parameters import PositiveFloat
from pytorchrl.tree import Tree

# What each head of values predicts.
VALUE_HEADS = {VAL: "value_net1", IVAL: "ivalue_net1"}


class OnPolicyActor(Actor):
    """Policy π(a|o) and value V(o), on shared networks or on networks of their own below the heads.

    Hidden states have the keys "policy" and "value_net1"; they are one and the same where the networks are shared.
    Several steps at once come time-major, ``[L·n, …]``, with the hidden states ``[n, …]`` before the first step.

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
        restart_model: str | None = None,
        recurrent_net: str | type[nn.Module] | None = None,
        recurrent_net_kwargs: dict[str, Any] | None = None,
        feature_extractor_network: str | type[nn.Module] | None = None,
        feature_extractor_kwargs: dict[str, Any] | None = None,
        shared_policy_value_network: bool = True,
        *,
        normalize_observations: bool = False,
        policy_gain: PositiveFloat = POLICY_GAIN,
        value_gain: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(device, input_space, action_space, algorithm_name, normalize_observations)
        self.shared = shared_policy_value_network
        extractor = (self.feature_space, feature_extractor_network, feature_extractor_kwargs)
        self.features = make_extractor(*extractor) if self.shared else make_extractors(2, *extractor)
        size: int = self.features.num_features  # type: ignore[assignment]
        self.policy_memory: Memory | None = None
        self.value_memory: Memory | None = None
        if recurrent_net is not None:
            self.policy_memory = make_memory(size, recurrent_net, recurrent_net_kwargs)
            self.value_memory = None if self.shared else make_memory(size, recurrent_net, recurrent_net_kwargs)
            size = self.policy_memory.num_features
        self.policy_net = stochastic_head(size, action_space, policy_gain)
        self.value_net1 = orthogonal(nn.Linear(size, 1), value_gain)
        self.ivalue_net1 = orthogonal(nn.Linear(size, 1), value_gain) if algorithm_name == "RND_PPO" else None
        self._ready(restart_model)

    @property
    def is_recurrent(self) -> bool:
        return self.policy_memory is not None

    def policy_parameters(self) -> list[Tensor]:
        """What the policy alone reads through, and what it shares with the values."""
        values = {
            id(parameter)
            for net in (self.value_net1, self.ivalue_net1, self.value_memory)
            if net
            for parameter in net.parameters()
        }
        return [parameter for parameter in self.parameters() if id(parameter) not in values]

    def initial_rhs(self, num_envs: int) -> Rhs:
        memory = self.policy_memory
        zeros = torch.zeros(num_envs, 1, device=self.device) if memory is None else memory.initial(num_envs)
        return {"policy": zeros, "value_net1": zeros}

    def _features(self, obs: Tree, rhs: Rhs, done: Tensor) -> tuple[Tensor, Tensor, Rhs]:
        """(what the policy's head reads, what the values' heads read, next hidden states)."""
        obs = self.normalized(obs)
        policy, value = [self.features(obs)] * 2 if self.shared else self.features(obs)
        if self.policy_memory is None:
            return policy, value, dict(rhs)
        policy, policy_rhs = self.policy_memory(policy, rhs["policy"], done)
        if self.value_memory is None:
            return policy, policy, {"policy": policy_rhs, "value_net1": policy_rhs}
        value, value_rhs = self.value_memory(value, rhs["value_net1"], done)
        return policy, value, {"policy": policy_rhs, "value_net1": value_rhs}

    def _values(self, features: Tensor) -> dict[str, Tensor]:
        values = {"value_net1": self.value_net1(features)}
        if self.ivalue_net1 is not None:
            values["ivalue_net1"] = self.ivalue_net1(features)
        return values

    def forward(self, obs: Tree, rhs: Rhs, done: Tensor) -> tuple[Distribution, dict[str, Tensor], Rhs]:
        """(π(·|o), {"value_net1": V(o) [B, 1]}, next hidden states): everything that the networks say about ``obs``."""
        policy, value, rhs = self._features(obs, rhs, done)
        return self.policy_net(*self.head_inputs(policy, obs)), self._values(value), rhs

    def get_policy(self, obs: Tree, rhs: Rhs, done: Tensor) -> tuple[Distribution, Rhs]:
        """(π(·|o), next hidden states)."""
        policy, _, rhs = self._features(obs, rhs, done)
        return self.policy_net(policy), rhs

    def get_action(
        self, obs: Tree, rhs: Rhs, done: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, Rhs, Tensor, Distribution]:
        """(action, clipped_action, logp, rhs, entropy, dist); the clipped action is the one to execute."""
        policy, _, rhs = self._features(obs, rhs, done)
        dist: Distribution = self.policy_net(*self.head_inputs(policy, obs))
        action = dist.mode() if deterministic else dist.sample(self.generator)
        return action, dist.executed(action), dist.log_prob(action), rhs, dist.entropy(), dist

    def evaluate_actions(
        self, obs: Tree, rhs: Rhs, done: Tensor, action: Tensor
    ) -> tuple[Tensor, Tensor, Distribution]:
        """(logp [B, 1], entropy [B, 1], dist) of given actions."""
        policy, _, _ = self._features(obs, rhs, done)
        dist: Distribution = self.policy_net(*self.head_inputs(policy, obs))
        return dist.log_prob(action), dist.entropy(), dist

    def get_value(self, obs: Tree, rhs: Rhs, done: Tensor) -> dict[str, Any]:
        """{"value_net1": V(o) [B, 1], "rhs": next hidden states}; with RND also "ivalue_net1"."""
        _, value, rhs = self._features(obs, rhs, done)
        return {**self._values(value), "rhs": rhs}
