"""Actor: the networks of an agent, stateless between calls."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from pytorchrl.component import Component
from pytorchrl.seeding import own_generator
from pytorchrl.tree import Tree


class Actor(nn.Module, Component):
    """Base of all actors: networks over one observation and one action space.

    Nothing is cached between calls, and hidden states are returned as new dicts. ``generator`` is the actor's own
    stream of random numbers for sampling actions.

    Parameters
        input_space: the observation space, as ``VecEnv.create_factory`` returns it.
        action_space: the action space, likewise.
        algorithm_name: the algorithm that the actor will serve.
    """

    factory_arguments = ("device",)
    supplied_parameters = ("input_space", "action_space", "algorithm_name")

    def __init__(
        self,
        device: torch.device | str,
        input_space: gym.Space[Any],
        action_space: gym.Space[Any],
        algorithm_name: str,
    ) -> None:
        super().__init__()
        self.device = torch.device(device)
        self.input_space = input_space
        self.action_space = action_space
        self.algorithm_name = algorithm_name
        self.generator = own_generator()

    @property
    def is_recurrent(self) -> bool:
        """Whether hidden states carry information from step to step."""
        return False

    def initial_rhs(self, num_envs: int) -> dict[str, Tensor]:
        """Hidden states at the start of an episode; feed-forward networks have a column of zeros."""
        return {"policy": torch.zeros(num_envs, 1, device=self.device)}

    def get_value(self, obs: Tree, rhs: dict[str, Tensor], done: Tensor) -> dict[str, Any]:
        """``{"value_net1": [B, 1], …, "rhs": …}`` of an actor that has value networks."""
        raise TypeError(f"{type(self).__name__} has no value networks")
