"""Transitions for learning a dynamics model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.functional import one_hot

from pytorchrl import tree
from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.errors import ConfigError, RLError
from pytorchrl.keys import ACT, OBS, OBS2, REW
from pytorchrl.parameters import PositiveInt
from pytorchrl.tree import Tree


class MBReplayBuffer(ReplayBuffer):
    """The newest ``size`` steps of N environments, on the CPU, dealt out as inputs and labels of a dynamics model.

    The actor's ``dynamics_model`` has a ``scaler`` with ``fit(rows)`` and ``transform(rows)``, and a
    ``reward_function``, or None if the model predicts rewards too.
    """

    home: ClassVar[torch.device | None] = torch.device("cpu")

    def __init__(
        self,
        size: PositiveInt,
        device: torch.device | str,
        actor: Actor,
        algorithm: Algorithm | None,
        envs: VecEnv | None,
    ) -> None:
        super().__init__(size, device, actor, algorithm, envs)
        self.algo = algorithm

    def generate_batches(
        self, num_mini_batch: int | None, mini_batch_size: int | None = 256, num_epochs: int = 1
    ) -> Iterator[dict[str, Any]]:
        """Every transition once, shuffled, in batches of ``mini_batch_size``; the other arguments are not used.

        train_input ``[b, obs + act]`` is standardized over all that is stored; train_label ``[b, obs (+ 1)]`` is the
        change of the observation and, without a reward function, the reward.
        """
        if not self.size:
            raise RLError("no transitions to learn from", "Insert at least one before generate_batches().")
        if mini_batch_size is None:
            raise ConfigError("the buffer of a dynamics model needs mini_batch_size")
        model: Any = self.actor.dynamics_model
        rows = self.ring.transitions(self.ring.numbers())
        obs, obs2, action, reward = (tree.first_leaf(rows[key]).flatten(1) for key in (OBS, OBS2, ACT, REW))
        inputs = torch.cat([obs.float(), self._encoded(action)], 1).to(self.device)
        change = obs2.float() - obs.float()
        labels = change if model.reward_function is not None else torch.cat([change, reward], 1)
        model.scaler.fit(inputs)
        order = torch.randperm(len(inputs), generator=self.generator)
        for number, part in enumerate(order.split(mini_batch_size)):  # type: ignore[no-untyped-call]
            yield {
                "train_input": model.scaler.transform(inputs[part.to(self.device)]),
                "train_label": labels[part].to(self.device),
                "batch_number": number,
            }

    def _encoded(self, action: Tensor) -> Tensor:
        """Actions as numbers: one column for each that a discrete space has, seen or not."""
        space: Any = self.actor.action_space
        return one_hot(action[:, 0].long(), int(space.n)).float() if isinstance(space, spaces.Discrete) else action

    def get_data_slice(self, start_pos: int, end_pos: int) -> dict[str, Tree]:
        """Copies of the steps between two positions, counted from the oldest."""
        if not 0 <= start_pos <= end_pos <= self.size:
            raise IndexError(f"steps {start_pos} to {end_pos} of a buffer that holds {self.size}")
        return self._steps(start_pos, end_pos)

    def insert_single_tensor_slice(
        self, tensor_storage: Mapping[str, Tree], tensor_key: str, tensor_values: Any
    ) -> int:
        """Write the steps ``[l, N, …]`` of one key where the next step goes, and move no counter; returns l."""
        values = torch.as_tensor(tensor_values)
        column = tree.first_leaf(tensor_storage[tensor_key])
        column[(self.ring.steps + torch.arange(len(values))) % len(column)] = values.to(column)
        return len(values)
