"""Storage: the contract between whoever collects transitions and whoever learns from them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.component import Component
from pytorchrl.seeding import own_generator
from pytorchrl.tree import Tree

Sample = Mapping[str, Any]


class Storage(Component):
    """Base of all storages: insert transitions, prepare, draw batches, look at what the gradients said.

    ``data`` holds one tree of tensors per key, allocated at the first insert. ``size`` counts the valid steps and
    ``step`` is where the next one goes. ``generator`` is the storage's own stream of random numbers.
    """

    factory_arguments = ("device", "actor", "algorithm", "envs")
    storage_tensors: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        size: int,
        device: torch.device | str,
        actor: Actor,
        algorithm: Algorithm | None,
        envs: VecEnv | None,
    ) -> None:
        self.max_size = size
        self.device = torch.device(device)
        self.actor = actor
        self.algorithm = algorithm
        self.envs = envs
        env_kwargs = {} if envs is None else envs.env_kwargs
        self.frame_stack: int = env_kwargs.get("frame_stack", 1)
        self.frame_skip: int = env_kwargs.get("frame_skip", 0)
        self.generator = own_generator()
        self.data: dict[str, Tree] = {}
        self.size = 0
        self.step = 0

    @abstractmethod
    def init_tensors(self, sample: Sample) -> None:
        """Allocate ``data`` from a first transition."""

    @abstractmethod
    def insert_transition(self, sample: Sample) -> None:
        """Store one vector step."""

    @abstractmethod
    def before_gradients(self) -> None:
        """Derive what batches need from what was inserted."""

    @abstractmethod
    def generate_batches(
        self, num_mini_batch: int | None, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[dict[str, Tree]]:
        """Batches, one after the other."""

    @abstractmethod
    def after_gradients(self, batch: Mapping[str, Any], info: dict[str, Tensor]) -> dict[str, Tensor]:
        """Look at the info of one batch's gradients; returns it, with what the storage adds."""

    @abstractmethod
    def get_all_buffer_data(self, data_to_cpu: bool = False) -> dict[str, Tree]:
        """Everything that is valid, working keys too, in time order."""

    @abstractmethod
    def insert_data_slice(self, new_data: Mapping[str, Any]) -> None:
        """Take over what another storage's ``get_all_buffer_data`` returned."""

    def reset(self) -> None:
        """Counters to zero; nothing stored is visible any more."""
        self.size = self.step = 0

    def next_inputs(self, obs: Tree, rhs: dict[str, Tensor], done: Tensor) -> tuple[Tree, dict[str, Tensor], Tensor]:
        """What the collector acts on next; a storage that steers collection puts its own inputs here."""
        return obs, rhs, done

    @property
    def replaying(self) -> Tensor | None:
        """Environments ``[N]`` that stand still while the storage puts steps of its own in their place; None: none."""
        return None

    def episodes_cut(self) -> None:
        """Every environment begins a new episode, and what the last one was is not to be finished."""

    def check_collection(self, envs: VecEnv, scales_rewards: bool) -> None:
        """``ConfigError`` if the storage cannot be filled from these environments, or with rewards that are scaled."""

    def memory_stated(self) -> list[str]:
        """A line about the memory that the storage will take, if it is worth one."""
        return []

    def update_storage_parameter(self, parameter_name: str, new_parameter_value: Any) -> None:
        """Change a documented parameter, at once; an unknown name raises and names the nearest."""
        self.update_parameter(parameter_name, new_parameter_value)

    def get_state(self) -> dict[str, Any]:
        """Everything that the storage is, for a checkpoint."""
        return {
            "data": {key: tree.copy(value, "cpu") for key, value in self.data.items()},
            "max_size": self.max_size,
            "size": self.size,
            "step": self.step,
            "generator": self.generator.get_state(),
        }

    def get_checkpoint(self) -> dict[str, Any]:
        """``get_state`` for who writes it at once: what never changes again may come as shards instead of copies."""
        return self.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.data = {key: tree.copy(value, self.device) for key, value in state["data"].items()}
        self.max_size, self.size, self.step = state["max_size"], state["size"], state["step"]
        self.generator.set_state(state["generator"])
