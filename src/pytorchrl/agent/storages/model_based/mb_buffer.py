"""Transitions for learning a dynamics model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.functional import one_hot

from pytorchrl import tree
from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.actors.world_model import WorldModel
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.base import Sample
from pytorchrl.agent.storages.model_based.forecasts import Forecasts
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.agent.storages.sampling import fate
from pytorchrl.errors import ConfigError, RLError
from pytorchrl.keys import ACT, ENDS, INPUT, LABEL, OBS, OBS2, PREDICTED, REW, TERMINAL, WEIGHTS
from pytorchrl.parameters import PositiveInt, UnitFloat
from pytorchrl.tree import Tree


class MBReplayBuffer(ReplayBuffer):
    """The newest ``size`` steps of N environments, on the CPU, dealt out as inputs and labels of a dynamics model.

    The actor's ``dynamics_model`` has a ``scaler`` with ``fit(rows)`` and ``transform(rows)``, and a
    ``reward_function``, or None if the model predicts rewards too. A WorldModel has more: its members learn from a
    bootstrap each, and those predict that do best on what is held out.

    Parameters
        validation_share: share of the transitions that is never learned from, but tells how good a model is.
    """

    home: ClassVar[torch.device | None] = torch.device("cpu")

    def __init__(
        self,
        size: PositiveInt,
        device: torch.device | str,
        actor: Actor,
        algorithm: Algorithm | None,
        envs: VecEnv | None,
        *,
        validation_share: UnitFloat = 0.0,
    ) -> None:
        super().__init__(size, device, actor, algorithm, envs)
        self.algo = algorithm
        self.validation_share = validation_share
        self.forecasts = Forecasts(size)
        # Which transitions are held out, and how often each member learns from one, hangs on this number for life.
        self.lot = int(torch.randint(2**31, (), generator=self.generator))
        self.figures: dict[str, Tensor] = {}

    def insert_transition(self, sample: Sample) -> None:
        """Store one step of every environment, and what plans promised."""
        super().insert_transition(sample)
        if PREDICTED in sample:
            self.forecasts.add(self.ring.steps - 1, sample[PREDICTED])

    def generate_batches(
        self, num_mini_batch: int | None, mini_batch_size: int | None = 256, num_epochs: int = 1
    ) -> Iterator[dict[str, Any]]:
        """Every transition once, shuffled, in batches of ``mini_batch_size``; the other arguments are not used.

        An algorithm with ``mb_epochs`` gets as many such passes. train_input ``[b, obs + act]`` is standardized over
        all that is stored; train_label ``[b, obs (+ 1)]`` is the change of the observation and, without a reward
        function, the reward; train_terminal ``[b, 1]``; train_weights ``[E, b]`` if the model is an ensemble of E.
        """
        if not self.size:
            raise RLError("no transitions to learn from", "Insert at least one before generate_batches().")
        if mini_batch_size is None:
            raise ConfigError("the buffer of a dynamics model needs mini_batch_size")
        model: Any = self.actor.dynamics_model
        numbers = self.ring.numbers()
        inputs, labels, terminal = self._rows(numbers, model)
        held_out = fate(numbers, self.lot) < self.validation_share
        learned = (~held_out).nonzero().flatten()
        if not len(learned):
            learned, held_out = torch.arange(len(numbers)), torch.zeros_like(held_out)
        model.scaler.fit(inputs)
        weights = None
        if isinstance(model, WorldModel):
            model.label_scaler.fit(labels)
            if model.num_members > 1:
                weights = self._bootstrap(numbers, model.num_members)
            self.figures = self.forecasts.settle(self.ring, self.actor.horizon)  # type: ignore[arg-type]
        x = model.scaler.transform(inputs)
        number = 0
        for _ in range(self.passes):
            self._validate(model, x[held_out], labels[held_out])
            order = learned[torch.randperm(len(learned), generator=self.generator)]
            for part in order.split(mini_batch_size):  # type: ignore[no-untyped-call]
                batch = {INPUT: x[part], LABEL: labels[part], ENDS: terminal[part], "batch_number": number}
                yield batch if weights is None else {**batch, WEIGHTS: weights[:, part]}
                number += 1
        self._validate(model, x[held_out], labels[held_out])

    @property
    def passes(self) -> int:
        """How often everything is gone through."""
        return 1 if self.algorithm is None else int(getattr(self.algorithm, "mb_epochs", 1))

    def _rows(self, numbers: Tensor, model: Any) -> tuple[Tensor, Tensor, Tensor]:
        """(inputs, labels, ends) of transitions."""
        rows = self.ring.transitions(numbers)
        obs, obs2, action, reward, terminal = (
            tree.first_leaf(rows[key]).flatten(1) for key in (OBS, OBS2, ACT, REW, TERMINAL)
        )
        inputs = torch.cat([obs.float(), self._encoded(action)], 1)
        change = obs2.float() - obs.float()
        labels = change if model.reward_function is not None else torch.cat([change, reward], 1)
        return inputs.to(self.device), labels.to(self.device), terminal.to(self.device)

    def _bootstrap(self, numbers: Tensor, members: int) -> Tensor:
        """How often each member learns from each transition: Poisson(1) as in online bagging, ``[E, rows]``."""
        fates = torch.stack([fate(numbers, self.lot + 1 + member) for member in range(members)])
        edges = torch.tensor([1 / math.factorial(k) for k in range(8)], dtype=torch.float64).cumsum(0) / math.e
        return torch.bucketize(fates, edges, right=True).float().to(self.device)

    @torch.no_grad()
    def _validate(self, model: Any, x: Tensor, labels: Tensor) -> None:
        """Choose who predicts, and remember how well."""
        if isinstance(model, WorldModel) and len(x):
            errors = model.errors(x, labels)
            model.select_elites(errors)
            self.figures["validation_error"] = errors[model.elites].mean()

    def after_gradients(self, batch: Mapping[str, Any], info: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add the error on held-out transitions, and what was predicted and realized of returns."""
        info = super().after_gradients(batch, info)
        info.update(self.figures)
        return info

    def reset(self) -> None:
        super().reset()
        self.forecasts.kept.clear()

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"lot": self.lot, "forecasts": self.forecasts.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.lot = state["lot"]
        self.forecasts.set_state(state["forecasts"])

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
