"""Actor: the networks of an agent, stateless between calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn
from typing_extensions import Self

from pytorchrl.agent.actors.distributions.discrete import RULED_OUT, Categorical
from pytorchrl.agent.actors.normalization import make_normalizer
from pytorchrl.agent.actors.restart import start_from
from pytorchrl.agent.env.masks import choices_of, has_mask
from pytorchrl.component import Component
from pytorchrl.errors import SpaceError
from pytorchrl.keys import ACTION_MASK
from pytorchrl.seeding import own_generator
from pytorchrl.tree import Tree

Rhs = dict[str, Tensor]
# The entry of a masked observation that networks read as if it stood alone.
ALONE = "observation"


class Actor(nn.Module, Component):
    """Base of all actors: networks over one observation and one action space.

    Nothing is cached between calls, and hidden states are returned as new dicts. ``generator`` is the actor's own
    stream of random numbers for sampling actions. The entry "action_mask" of a Dict observation rules actions out; the
    networks read ``feature_space``, which is the rest.

    Parameters
        input_space: the observation space, as ``VecEnv.create_factory`` returns it.
        action_space: the action space, likewise.
        algorithm_name: the algorithm that the actor will serve.
        restart_model: folder or safetensors file of a policy whose weights to start from.
        recurrent_net: name or class of the memory network; null for none.
        recurrent_net_kwargs: its parameters.
        normalize_observations: whether float vectors are brought to mean 0 and variance 1 by running moments.
        policy_gain: scale of the orthogonal initialization of the policy's last layer.
        value_gain: likewise, of the last layer of values or scores.
    """

    factory_arguments = ("device",)
    supplied_parameters = ("input_space", "action_space", "algorithm_name")

    def __init__(
        self,
        device: torch.device | str,
        input_space: gym.Space[Any],
        action_space: gym.Space[Any],
        algorithm_name: str,
        normalize_observations: bool = False,
    ) -> None:
        super().__init__()
        self.device = torch.device(device)
        self.input_space = input_space
        self.action_space = action_space
        self.algorithm_name = algorithm_name
        self.generator = own_generator()
        self.is_masked = has_mask(input_space)
        self.feature_space = without_mask(input_space)
        self.normalizer = make_normalizer(self.feature_space) if normalize_observations else None

    def _ready(self, restart_model: str | None) -> None:
        """The end of every constructor: all networks are there."""
        if restart_model is not None:
            start_from(self, restart_model)
        self.to(self.device)

    @property
    def is_recurrent(self) -> bool:
        """Whether hidden states carry information from step to step."""
        return False

    def initial_rhs(self, num_envs: int) -> Rhs:
        """Hidden states at the start of an episode; feed-forward networks have a column of zeros."""
        return {"policy": torch.zeros(num_envs, 1, device=self.device)}

    def readable(self, obs: Tree) -> Tree:
        """Observations without the action mask: rows of ``feature_space``."""
        if not self.is_masked:
            return obs
        rest: dict[str, Tensor] = {key: value for key, value in obs.items() if key != ACTION_MASK}  # type: ignore[union-attr]
        return rest if isinstance(self.feature_space, spaces.Dict) else rest[ALONE]

    def normalized(self, obs: Tree) -> Tree:
        """Observations as the networks read them."""
        obs = self.readable(obs)
        return obs if self.normalizer is None else self.normalizer(obs)

    def head_inputs(self, features: Tensor, obs: Tree) -> tuple[Tensor, ...]:
        """What the head of a policy reads: features, and the action mask if there is one."""
        return (features, mask_in(obs)) if self.is_masked else (features,)

    def allowed(self, scores: Tensor, obs: Tree) -> Tensor:
        """Scores of all discrete actions ``[…, n]``, those of actions that the mask rules out put below all others."""
        return scores.masked_fill(mask_in(obs) == 0, RULED_OUT) if self.is_masked else scores

    def update_normalizer(self, obs: Tree) -> None:
        """Learn the moments of observations ``[…, *shape]``; nothing to do if they are not normalized.

        To be called after learning, with what was learned from: moments that move in between would turn old
        log-probabilities into those of another policy.
        """
        if self.normalizer is not None:
            self.normalizer.update(self.readable(obs))  # type: ignore[operator]

    def random_action(self, num_envs: int, obs: Tree | None = None) -> Tensor:
        """Uniformly random actions ``[N, …]``, as an algorithm stores them; only those that masks in ``obs`` allow."""
        space = self.action_space
        if self.is_masked and obs is not None:
            masks = torch.split(mask_in(obs).cpu(), choices_of(space), dim=1)
            parts = [Categorical(torch.zeros(mask.shape).masked_fill(mask == 0, RULED_OUT)) for mask in masks]
            return torch.cat([part.sample(self.generator) for part in parts], dim=1).to(self.device)
        if isinstance(space, spaces.Discrete):
            return torch.randint(int(space.n), (num_envs, 1), generator=self.generator).to(self.device)
        if isinstance(space, spaces.MultiDiscrete):
            draws = [torch.randint(size, (num_envs, 1), generator=self.generator) for size in choices_of(space)]
            return torch.cat(draws, dim=1).to(self.device)
        if isinstance(space, spaces.MultiBinary):
            return torch.randint(2, (num_envs, math.prod(space.shape)), generator=self.generator).to(self.device)
        if not isinstance(space, spaces.Box):
            raise SpaceError(
                f"no random actions for action space {space}", "Supported: Discrete, MultiDiscrete, MultiBinary, Box."
            )
        low, high = (torch.as_tensor(bound, dtype=torch.float32).reshape(-1) for bound in (space.low, space.high))
        share = torch.rand(num_envs, len(low), generator=self.generator)
        return torch.lerp(low.expand_as(share), high.expand_as(share), share).to(self.device)

    def detached_copy(self) -> Self:
        """A copy whose weights are not trained: a target."""
        return deepcopy(self).requires_grad_(False)

    def get_action(
        self, obs: Tree, rhs: Rhs, done: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, Rhs, Tensor, Any]:
        """(action, clipped_action, logp, rhs, entropy, dist); the clipped action is the one to execute."""
        raise TypeError(f"{type(self).__name__} has no policy")

    def get_policy(self, obs: Tree, rhs: Rhs, done: Tensor) -> tuple[Any, Rhs]:
        """(π(·|o), next hidden states)."""
        raise TypeError(f"{type(self).__name__} has no policy")

    def get_value(self, obs: Tree, rhs: Rhs, done: Tensor) -> dict[str, Any]:
        """``{"value_net1": [B, 1], …, "rhs": …}`` of an actor that has value networks."""
        raise TypeError(f"{type(self).__name__} has no value networks")

    def get_state(self) -> dict[str, Any]:
        """What acting depends on beside the weights: random streams, and noise that remembers."""
        return {"generator": self.generator.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.generator.set_state(state["generator"])


def mask_in(obs: Tree) -> Tensor:
    """The action mask in masked observations, ``[B, choices]``."""
    return obs[ACTION_MASK]  # type: ignore[index]


def without_mask(space: gym.Space[Any]) -> gym.Space[Any]:
    """What networks read of observations: "observation" alone if there is nothing else beside the mask."""
    if not has_mask(space):
        return space
    rest = {key: entry for key, entry in space.spaces.items() if key != ACTION_MASK}  # type: ignore[attr-defined]
    return rest[ALONE] if set(rest) == {ALONE} else spaces.Dict(rest)
