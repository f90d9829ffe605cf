"""OffPolicyActor: critics, and the policy that the algorithm learns from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl import tree
from pytorchrl.agent.actors.base import Actor, Rhs
from pytorchrl.agent.actors.distributions import BoxScale, Categorical, Distribution
from pytorchrl.agent.actors.distributions.heads import (
    POLICY_GAIN,
    CategoricalHead,
    DeterministicHead,
    SquashedGaussianHead,
    StateGaussianHead,
)
from pytorchrl.agent.actors.noise import make_noise
from pytorchrl.agent.actors.off_policy_networks import Critics, PolicyFeatures, Recipe
from pytorchrl.errors import ConfigError, SpaceError, suggestion
from pytorchrl.keys import ACT, DONE, OBS, OBS2, RHS, RHS2
from pytorchrl.parameters import PositiveFloat, PositiveInt, UnitFloat
from pytorchrl.tree import Tree

# The policy's head by algorithm and action space; None: the greedy policy of the first critic.
POLICIES: dict[str, dict[type[gym.Space[Any]], Any]] = {
    "DDQN": {spaces.Discrete: None},
    "DDPG": {spaces.Box: DeterministicHead},
    "TD3": {spaces.Box: DeterministicHead},
    "SAC": {spaces.Box: SquashedGaussianHead, spaces.Discrete: CategoricalHead},
    "MPO": {spaces.Box: StateGaussianHead, spaces.Discrete: CategoricalHead},
}
# The noise of those whose policy does not explore by itself.
DEFAULT_NOISE = {"DDPG": "Gauss", "TD3": "Gauss"}


class OffPolicyActor(Actor):
    """Critics q1 … qK of actions (or scores of all discrete actions), and a policy.

    Hidden states have the keys "rhs_act", "rhs_q1", …, "rhs_qK". Several steps at once come sequence by sequence, as
    replays return them, with the hidden states before each sequence's first step.

    Parameters
        noise: Gauss, OU or NoNoise on the actions of a deterministic policy; null takes what the algorithm has.
        sequence_overlap: share of each sequence that only brings hidden states up to date.
        obs_feature_extractor: name or class of the network that reads observations; null takes what fits.
        obs_feature_extractor_kwargs: its parameters.
        act_feature_extractor: name or class of the network that reads a critic's actions; null passes them on.
        act_feature_extractor_kwargs: its parameters.
        common_feature_extractor: name or class of the network above those two; null takes two layers of 256.
        common_feature_extractor_kwargs: its parameters.
        num_critics: number of critics.
    """

    def __init__(
        self,
        device: torch.device | str,
        input_space: gym.Space[Any],
        action_space: gym.Space[Any],
        algorithm_name: str,
        noise: str | None = None,
        restart_model: str | None = None,
        sequence_overlap: UnitFloat = 0.5,
        recurrent_net: str | type[nn.Module] | None = None,
        recurrent_net_kwargs: dict[str, Any] | None = None,
        obs_feature_extractor: str | type[nn.Module] | None = None,
        obs_feature_extractor_kwargs: dict[str, Any] | None = None,
        act_feature_extractor: str | type[nn.Module] | None = None,
        act_feature_extractor_kwargs: dict[str, Any] | None = None,
        common_feature_extractor: str | type[nn.Module] | None = None,
        common_feature_extractor_kwargs: dict[str, Any] | None = None,
        num_critics: PositiveInt = 2,
        *,
        normalize_observations: bool = False,
        policy_gain: PositiveFloat = POLICY_GAIN,
        value_gain: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(device, input_space, action_space, algorithm_name, normalize_observations)
        head = _head_of(algorithm_name, action_space)
        self.sequence_overlap = sequence_overlap
        self.num_critics = num_critics
        self.noise = make_noise(noise or DEFAULT_NOISE.get(algorithm_name, "NoNoise"))
        if self.noise is not None and isinstance(action_space, spaces.Discrete):
            raise ConfigError(f"noise '{noise}' cannot be added to discrete actions", "Use NoNoise.")
        recipe = Recipe(
            self.feature_space,
            obs=(obs_feature_extractor, obs_feature_extractor_kwargs),
            act=(act_feature_extractor, act_feature_extractor_kwargs),
            common=(common_feature_extractor, common_feature_extractor_kwargs),
            memory=(recurrent_net, recurrent_net_kwargs),
        )
        self.policy_features: PolicyFeatures | None = None
        self.policy_net: nn.Module | None = None
        if head is not None:
            self.policy_features = PolicyFeatures(recipe)
            self.policy_net = head(self.policy_features.num_features, action_space, policy_gain)
        if isinstance(action_space, spaces.Discrete):
            self.scale, action_size, outputs = None, None, int(action_space.n)
        else:
            self.scale = BoxScale(action_space)
            action_size, outputs = len(self.scale.low), 1
        self.critics = Critics(num_critics, recipe, action_size, outputs, value_gain)
        self.q_keys = [f"q{k}" for k in range(1, num_critics + 1)]
        self._ready(restart_model)

    @property
    def is_recurrent(self) -> bool:
        return len(self.critics.memories) > 0

    def initial_rhs(self, num_envs: int) -> Rhs:
        memories = self.critics.memories
        zeros = memories[0].initial(num_envs) if memories else torch.zeros(num_envs, 1, device=self.device)  # type: ignore[operator]
        return dict.fromkeys(["rhs_act", *(f"rhs_{key}" for key in self.q_keys)], zeros)

    def critic_parameters(self) -> list[Tensor]:
        """What only the critics are made of."""
        return list(self.critics.parameters())

    def policy_parameters(self) -> list[Tensor]:
        """What only the policy is made of."""
        return [
            parameter for part in (self.policy_features, self.policy_net) if part for parameter in part.parameters()
        ]

    @property
    def box_scale(self) -> BoxScale:
        """The map between [−1, 1] and the bounds of a continuous action space."""
        if self.scale is None:
            raise SpaceError(f"{self.algorithm_name} needs continuous actions, got {self.action_space}")
        return self.scale

    def get_policy(self, obs: Tree, rhs: Rhs, done: Tensor) -> tuple[Distribution, Rhs]:
        """(π(·|o), hidden states of which the policy's has moved on).

        Without a policy network it is the one whose logits are the scores of q1, and the critics' states move on.
        """
        if self.policy_features is None or self.policy_net is None:
            scores = self.get_q_scores(obs, rhs, done)
            return Categorical(self.allowed(scores["q1"], obs)), scores["rhs"]
        features, following = self.policy_features(self.normalized(obs), rhs["rhs_act"], done)
        return self.policy_net(*self.head_inputs(features, obs)), {**rhs, "rhs_act": following}

    def get_q_scores(
        self, obs: Tree, rhs: Rhs, done: Tensor, actions: Tensor | None = None, num_critics: int | None = None
    ) -> dict[str, Any]:
        """{"q1": …, …, "rhs": hidden states of which the critics' have moved on}, of the first ``num_critics``.

        Scores are ``[B, 1]`` of given actions (environment units), or ``[B, n]`` of all n discrete actions. Continuous
        actions may be K for each observation, pass by pass, ``[K·B, A]``.
        """
        keys = self.q_keys[:num_critics]
        if self.scale is not None and actions is None:
            raise TypeError("get_q_scores needs the actions to score: the action space is continuous")
        u = None if self.scale is None else self.scale.from_box(actions)  # type: ignore[arg-type]
        scores, following = self.critics(self.normalized(obs), u, [rhs[f"rhs_{key}"] for key in keys], done)
        if self.scale is None and actions is not None:
            scores = scores.gather(-1, actions.expand(len(keys), *actions.shape))
        moved = {f"rhs_{key}": state for key, state in zip(keys, following, strict=True)}
        return {**dict(zip(keys, scores, strict=True)), "rhs": {**rhs, **moved}}

    def act(self, obs: Tree, rhs: Rhs, done: Tensor, deterministic: bool = False) -> tuple[Tensor, Rhs, Distribution]:
        """(action to execute, hidden states of which all have moved on, π(·|o)).

        Without a policy network the action is the greedy one either way: exploring is the algorithm's business.
        """
        dist, following = self.get_policy(obs, rhs, done)
        if deterministic or self.policy_net is None:
            action = dist.executed(dist.mode())
        else:
            action = dist.executed(dist.sample(self.generator))
            if self.scale is not None and self.noise is not None:
                u = self.noise(self.scale.from_box(action), done, self.generator)
                action = self.scale.clip(self.scale.to_box(u))
        if self.is_recurrent and self.policy_net is not None:
            following = self.get_q_scores(obs, following, done, action)["rhs"]
        return action, following, dist

    def get_action(
        self, obs: Tree, rhs: Rhs, done: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, Rhs, Tensor, Distribution]:
        """(action, clipped_action, logp, rhs, entropy, dist); both actions are the executed one."""
        action, rhs, dist = self.act(obs, rhs, done, deterministic)
        return action, action, dist.log_prob(action), rhs, dist.entropy(), dist

    def evaluate_actions(
        self, obs: Tree, rhs: Rhs, done: Tensor, action: Tensor
    ) -> tuple[Tensor, Tensor, Distribution]:
        """(logp [B, 1], entropy [B, 1], dist) of given actions."""
        dist, _ = self.get_policy(obs, rhs, done)
        return dist.log_prob(action), dist.entropy(), dist

    def get_value(self, obs: Tree, rhs: Rhs, done: Tensor) -> dict[str, Any]:
        """{"value_net1": Q1 of the action that the policy thinks best [B, 1], "rhs": next hidden states}."""
        dist, moved = self.get_policy(obs, rhs, done)
        before = {**rhs, "rhs_act": moved["rhs_act"]}
        scores = self.get_q_scores(obs, before, done, dist.executed(dist.mode()))
        return {"value_net1": scores["q1"], "rhs": scores["rhs"]}

    @torch.no_grad()
    def burn_in_recurrent_states(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch without the first int(sequence_overlap·L) of the L steps of each sequence.

        Those only bring the hidden states up to date: RHS over the observations, RHS2 over their successors.
        """
        n, rows = len(tree.first_leaf(batch[RHS])), len(batch[DONE])
        L = rows // n
        dropped = min(int(self.sequence_overlap * L), L - 1)
        if not self.is_recurrent or dropped == 0:
            return dict(batch)
        at = torch.arange(rows, device=batch[DONE].device).view(n, L)
        burned, following, kept = (
            at[:, part].flatten() for part in (slice(dropped), slice(1, dropped + 1), slice(dropped, None))
        )
        done = batch[DONE][burned]
        # The first successor is read with the state that its predecessor left, whoever that was.
        done2 = done.view(n, -1).index_fill(1, at[0, :1], 0.0).view(-1, 1)
        rest = {
            key: tree.index(value, kept) if len(tree.first_leaf(value)) == rows else value
            for key, value in batch.items()
        }
        rest[RHS] = self._advance(tree.index(batch[OBS], burned), batch[RHS], done, batch[ACT][burned])
        if RHS2 in batch:
            rest[RHS2] = self._advance(tree.index(batch[OBS2], burned), batch[RHS2], done2, batch[ACT][following])
        return rest

    def _advance(self, obs: Tree, rhs: Rhs, done: Tensor, action: Tensor) -> Rhs:
        """Hidden states of the policy and of all critics after observations on which ``action`` was taken."""
        if self.policy_net is not None:
            _, rhs = self.get_policy(obs, rhs, done)
        return self.get_q_scores(obs, rhs, done, action)["rhs"]  # type: ignore[no-any-return]

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"noise": {} if self.noise is None else self.noise.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        if self.noise is not None:
            self.noise.set_state(state["noise"])


def _head_of(algorithm_name: str, action_space: gym.Space[Any]) -> Any:
    """The policy head for an algorithm on an action space."""
    if algorithm_name not in POLICIES:
        raise ConfigError(f"OffPolicyActor does not know '{algorithm_name}'", suggestion(algorithm_name, POLICIES))
    heads = POLICIES[algorithm_name]
    if type(action_space) not in heads:
        raise SpaceError(
            f"{algorithm_name} cannot act in action space {action_space}",
            f"Supported: {', '.join(kind.__name__ for kind in heads)}.",
        )
    return heads[type(action_space)]
