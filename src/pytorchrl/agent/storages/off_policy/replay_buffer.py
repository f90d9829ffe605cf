"""Uniform replay; the base of all replay storages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.base import Sample, Storage
from pytorchrl.agent.storages.mapping import Allocator
from pytorchrl.agent.storages.ring import SCALARS, Ring
from pytorchrl.agent.storages.sampling import Units, linear_to_one, newest, uniform
from pytorchrl.errors import ConfigError, RLError
from pytorchrl.keys import ACT, DONE, DONE2, INDICES, N_STEP, OBS, OBS2, REW, RHS, RHS2, TERMINAL
from pytorchrl.memory import bytes_of, in_units
from pytorchrl.parameters import PositiveInt
from pytorchrl.tree import Tree

# The share of the memory from which on a replay is said to come close to it.
CLOSE = 0.8


class ReplayBuffer(Storage):
    """The newest ``size`` steps of N environments, drawn uniformly with replacement.

    A replay is a ring, a window of it to draw from, a way to draw and a horizon. Every replay storage has all four, so
    what one of them is named after can be combined with what another one is: ``PERBuffer(…, n_step=3, eta=0.996)``.

    Parameters
        size: steps per environment.
        sequence_length: steps per sequence for actors with memory; how far sequences overlap, the actor says.
        memmap: a folder for the data, which are then mapped into memory instead of lying in it.
    """

    fixed_parameters: ClassVar[tuple[str, ...]] = ("sequence_length", "memmap")
    storage_tensors: ClassVar[tuple[str, ...]] = (OBS, RHS, DONE, ACT, REW, OBS2, RHS2, DONE2)

    # What a plain replay is; storages that are named after one of these have it as a parameter.
    n_step = 1
    eta = 1.0
    cmin = 1
    eta_updates = 0
    # Bytes per transition beside its data.
    overhead = 0
    # Where the data lie, if not where the actor does.
    home: ClassVar[torch.device | None] = None

    def __init__(
        self,
        size: PositiveInt,
        device: torch.device | str,
        actor: Actor,
        algorithm: Algorithm | None,
        envs: VecEnv | None,
        *,
        sequence_length: PositiveInt = 20,
        memmap: str | None = None,
    ) -> None:
        super().__init__(size, device, actor, algorithm, envs)
        self.sequence_length = sequence_length
        self.memmap = memmap
        self.updates = 0
        memory: Any = actor if actor is not None and actor.is_recurrent else None
        self.units = Units() if memory is None else Units(sequence_length, memory.sequence_overlap)
        self.ring = Ring(size, self.frame_stack, memory is not None, Allocator(self.home or self.device, memmap))
        self._refuse_if_too_large(size)

    def memory_needed(self, size: int | None = None) -> int:
        """Bytes that a full replay takes, 0 if there are no environments to tell. Frames of a stack are stored once."""
        if self.envs is None:
            return 0
        row = bytes_of(self.envs.observation_space) // self.frame_stack
        row += bytes_of(self.envs.action_space) + len(SCALARS) * 4 + self.overhead
        if self.ring.recurrent:
            row += sum(leaf.numel() * leaf.element_size() for leaf in tree.leaves(self.actor.initial_rhs(1)))
        return ((self.max_size if size is None else size) + self.frame_stack) * self.envs.num_envs * row

    def memory_stated(self) -> list[str]:
        """What a full replay takes, of how much there is."""
        if self.envs is None:
            return []
        needed, there_is = self.memory_needed(), self.ring.memory.available_bytes()
        close = "; that is close" if needed > CLOSE * there_is else ""
        transitions = self.max_size * self.envs.num_envs
        return [
            f"{type(self).__name__} takes {in_units(needed)} for {transitions:,} transitions when it is full, of the"
            f" {in_units(there_is)} of {self.ring.memory.place}{close}."
        ]

    def _refuse_if_too_large(self, size: int) -> None:
        self.ring.memory.refuse_if_too_large(self.memory_needed(size), f"{type(self).__name__} of size {size}")

    # Writing

    def init_tensors(self, sample: Sample) -> None:
        """Lazy allocation from a first transition."""
        self.ring.allocate({TERMINAL: sample[DONE2], **sample})
        self._count()

    def insert_transition(self, sample: Sample) -> None:
        """Store one step of every environment. Without NextTerminal, every end of an episode is one of the MDP."""
        self.ring.insert(sample if TERMINAL in sample else {TERMINAL: sample[DONE2], **sample})
        self._count()

    def insert_data_slice(self, new_data: Mapping[str, Any]) -> None:
        """Append the steps of another storage's ``get_all_buffer_data``; of more than fit, the newest."""
        if not new_data:
            return
        constants = () if self.ring.recurrent else (RHS, RHS2)
        lengths = {key: len(tree.first_leaf(value)) for key, value in new_data.items() if key not in constants}
        length = lengths[REW]
        if set(lengths.values()) != {length}:
            raise ConfigError(f"a slice whose tensors differ in length: {lengths}")
        for t in range(max(length - self.max_size, 0), length):
            self.insert_transition({k: tree.index(v, 0 if k in constants else t) for k, v in new_data.items()})

    def reset(self) -> None:
        """Nothing stored is visible any more."""
        super().reset()
        self.ring.clear()

    def _count(self) -> None:
        self.data = self.ring.data
        self.size, self.step = self.ring.length, self.ring.steps % self.max_size

    # Drawing

    def before_gradients(self) -> None:
        """Nothing: what batches need is put together when they are drawn."""

    def generate_batches(
        self, num_mini_batch: int | None, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[dict[str, Tree]]:
        """``num_mini_batch · num_epochs`` batches of ``mini_batch_size`` transitions each, drawn with replacement.

        For actors with memory they are whole sequences, one after the other, as many as go into a batch.
        """
        if num_mini_batch is None or mini_batch_size is None:
            raise ConfigError("a replay needs num_mini_batch and mini_batch_size")
        count, K = max(mini_batch_size // self.units.length, 1), num_mini_batch * num_epochs
        for k in range(1, K + 1):
            oldest, end = self.stored_units
            if oldest == end:
                raise RLError(
                    f"no transitions to learn from: {self.size} steps are stored",
                    f"Insert at least {self.units.length} before generate_batches().",
                )
            window = max(self._window(k, K) // self.units.period, 1)
            batch = self._draw(count, max(end - window, oldest), end)
            if self.ring.device == self.device:
                yield batch
            else:
                yield {key: tree.to(value, self.device) for key, value in batch.items()}

    @property
    def stored_units(self) -> tuple[int, int]:
        """Numbers of the oldest transition or sequence, and after the newest."""
        return self.units.stored(self.ring.steps, self.ring.length, self.ring.num_envs)

    def _window(self, k: int, K: int) -> int:
        """How many of the newest transitions batch k of K is drawn from."""
        eta = linear_to_one(self.eta, self.updates, self.eta_updates)
        return newest(self.ring.end - self.ring.oldest, k, K, eta, self.cmin)

    def _draw(self, count: int, first: int, end: int) -> dict[str, Tree]:
        """A batch of the units ``first`` … ``end`` − 1."""
        return self._assembled(uniform(first, end, count, self.generator).to(self.ring.device))

    def _assembled(self, units: Tensor) -> dict[str, Tree]:
        """The transitions of ``units``, or the windows that begin with them."""
        ring, length = self.ring, self.units.length
        ids = self.units.transitions(units, ring.num_envs)
        if self.n_step == 1:
            batch = ring.transitions(ids, None, length)
            return {**batch, N_STEP: torch.ones(len(ids), 1, device=ids.device), INDICES: units}
        rewards, counted = ring.windows(ids, self.n_step)
        powers = self.algorithm.gamma ** torch.arange(self.n_step, device=ids.device)  # type: ignore[union-attr]
        sums = torch.where(counted, rewards * powers, 0.0).sum(1, keepdim=True)
        m = counted.sum(1)
        batch = ring.transitions(ids, ids + (m - 1) * ring.num_envs, length)
        return batch | {REW: sums, N_STEP: m[:, None].float(), INDICES: units}

    def after_gradients(self, batch: Mapping[str, Any], info: dict[str, Tensor]) -> dict[str, Tensor]:
        """Count the update; schedules go by it."""
        self.updates += 1
        return info

    # The whole

    def get_all_buffer_data(self, data_to_cpu: bool = False) -> dict[str, Tree]:
        """Copies of everything that is valid as ``[L, N, …]``, in time order, every stack and successor written out."""
        device = torch.device("cpu") if data_to_cpu else self.device
        return {key: tree.to(value, device) for key, value in self._steps(0, self.size).items()}

    def _steps(self, first: int, end: int) -> dict[str, Tree]:
        """Copies of the steps from position ``first`` on, counted from the oldest, as ``[end − first, N, …]``."""
        if self.ring.length == 0:
            return {}
        N = self.ring.num_envs
        numbers = self.ring.oldest + torch.arange(first * N, end * N, device=self.ring.device)
        rows = self.ring.transitions(numbers)
        shapes = {key: (1, 1) if key in self.ring.constants else (end - first, N) for key in rows}
        return {key: tree.tree_map(partial(_unflatten, shapes[key]), value) for key, value in rows.items()}

    def get_state(self) -> dict[str, Any]:
        """Everything that the storage is. There are no open n-step windows in it: they are made when they are drawn."""
        return {
            "ring": self.ring.get_state() if self.ring.columns else {},
            "max_size": self.max_size,
            "updates": self.updates,
            "generator": self.generator.get_state(),
        }

    def get_checkpoint(self) -> dict[str, Any]:
        with self.ring.in_shards():
            return self.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.max_size = self.ring.size = state["max_size"]
        self.reset()
        if state["ring"]:
            self.ring.set_state(state["ring"])
        self._count()
        self.updates = state["updates"]
        self.generator.set_state(state["generator"])

    def _set_parameter(self, name: str, value: Any) -> None:
        """``size`` keeps the newest steps that still fit."""
        if name != "size":
            super()._set_parameter(name, value)
            return
        self._refuse_if_too_large(value)
        self.max_size = value
        self.ring.resize(value)
        self._count()


def _unflatten(steps: tuple[int, int], rows: Tensor) -> Tensor:
    return rows.view(*steps, *rows.shape[1:])
