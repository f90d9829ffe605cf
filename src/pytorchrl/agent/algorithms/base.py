"""Algorithm: acting, losses, gradients and steps, without knowledge of storages or of where it runs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.policy_loss_addons.base import AddOns, set_up
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.component import Component, Factory
from pytorchrl.errors import NonFiniteError
from pytorchrl.keys import OBS
from pytorchrl.seeding import own_generator
from pytorchrl.tree import Tree, first_leaf

Batch = Mapping[str, Any]
Info = dict[str, Tensor]


class Algorithm(Component):
    """Base of all algorithms.

    A subclass sets ``optimizers`` and implements ``acting_step`` and ``compute_gradients``. Gradients are a flat list,
    in the order of ``trainable_parameters``.

    Parameters
        gamma: discount factor.
        test_every: updates between evaluations; 0 for none.
        num_test_episodes: episodes per evaluation.
        max_grad_norm: largest norm of the gradient of each optimizer's parameters.
        policy_loss_addons: terms that join the policy loss.
    """

    factory_arguments = ("device", "actor", "envs")
    fixed_parameters: ClassVar[tuple[str, ...]] = ("policy_loss_addons",)

    def __init__(
        self,
        device: torch.device | str,
        envs: VecEnv | None,
        actor: Actor,
        *,
        gamma: float,
        test_every: int,
        num_test_episodes: int,
        max_grad_norm: float,
        policy_loss_addons: AddOns = (),
        num_epochs: int = 1,
        num_mini_batch: int = 1,
        mini_batch_size: int | None = None,
        start_steps: int = 0,
        update_every: int | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.envs = envs
        self.actor = actor
        self.max_grad_norm = max_grad_norm
        self.iter = 0
        self.optimizers: list[Optimizer] = []
        self.unclipped: list[Optimizer] = []  # of parameters that are not networks
        self.generator = own_generator()
        self._gamma = gamma
        self._test_every = test_every
        self._num_test_episodes = num_test_episodes
        self._num_epochs = num_epochs
        self._num_mini_batch = num_mini_batch
        self._mini_batch_size = mini_batch_size
        self._start_steps = start_steps
        self._update_every = update_every
        self.policy_loss_addons = set_up(policy_loss_addons, actor, self.device)

    @classmethod
    def _factory(cls, **chosen: Any) -> tuple[Factory, str]:
        """(function that creates the algorithm, its name)."""
        return Factory(cls, cls.complete(chosen)), cls.__name__

    @property
    def gamma(self) -> float:
        """Discount factor."""
        return self._gamma

    @property
    def start_steps(self) -> int:
        """Vector steps with random actions before learning starts."""
        return self._start_steps

    @property
    def num_epochs(self) -> int:
        """How often the storage's data are used before collection goes on."""
        return self._num_epochs

    @property
    def update_every(self) -> int | None:
        """Vector steps between updates; None: a full storage."""
        return self._update_every

    @property
    def num_mini_batch(self) -> int:
        """Mini-batches per epoch."""
        return self._num_mini_batch

    @property
    def mini_batch_size(self) -> int | None:
        """Samples per mini-batch, where the algorithm fixes them."""
        return self._mini_batch_size

    @property
    def test_every(self) -> int:
        """Updates between evaluations."""
        return self._test_every

    @property
    def num_test_episodes(self) -> int:
        """Episodes per evaluation."""
        return self._num_test_episodes

    @property
    def random_steps_wanted(self) -> int:
        """Vector steps with random actions that ``observe`` wants to see before the run begins."""
        return 0

    def observe(self, obs: Tree) -> None:
        """Learn from observations ``[B, …]`` alone; most algorithms do not."""

    @abstractmethod
    def acting_step(
        self, obs: Tree, rhs: dict[str, Tensor], done: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """(action, clipped_action, rhs, other) without autograd; ``other`` joins the stored transition."""

    @abstractmethod
    def compute_gradients(self, batch: Batch, grads_to_cpu: bool = True) -> tuple[list[Tensor | None], Info]:
        """(flat list of gradients, info); no parameter changes."""

    def is_done_with_data(self, info: Info) -> bool:
        """Whether to leave out the gradients that ``info`` came with, and all others of the present data."""
        return False

    def rows_in(self, batch: Batch) -> int:
        """How many samples a batch has."""
        return len(first_leaf(batch[OBS]))

    @property
    def addon_parameters(self) -> list[Tensor]:
        """What the add-ons learn themselves."""
        return [parameter for addon in self.policy_loss_addons for parameter in addon.parameters()]

    @property
    def trainable_parameters(self) -> list[Tensor]:
        """What gradients are computed for: the networks as the actor lists them, then those of the add-ons."""
        return [*self.actor.parameters(), *self.addon_parameters]

    def with_addons(self, loss: Tensor, batch: Batch, dist: Any, info: Info) -> Tensor:
        """The policy loss and every add-on's term; the one place where they join."""
        for addon in self.policy_loss_addons:
            term, more = addon.compute_loss_term(batch, dist, info)
            loss = loss + term
            info.update(more)
        return loss

    def gradients_of(self, loss: Tensor, grads_to_cpu: bool) -> list[Tensor | None]:
        """Back-propagate; the live ``.grad`` tensors, or copies on the CPU that outlive the next call."""
        self._refuse_non_finite("loss", loss)
        parameters = self.trainable_parameters
        for parameter in parameters:
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = [parameter.grad for parameter in parameters]
        return [None if g is None else g.to("cpu", copy=True) for g in gradients] if grads_to_cpu else gradients

    def apply_gradients(self, gradients: Sequence[Tensor | None] | None = None) -> None:
        """One optimizer step with the given gradients, or with those that ``compute_gradients`` left behind.

        Each optimizer's gradient is clipped to ``max_grad_norm``; given gradients stay as they are.
        """
        if gradients is not None:
            for parameter, gradient in zip(self.trainable_parameters, gradients, strict=True):
                if gradient is not parameter.grad:
                    parameter.grad = None if gradient is None else gradient.to(parameter.device, copy=True)
        self.step_optimizers()
        self.iter += 1

    def step_optimizers(self) -> None:
        """Clip the gradients and step with them."""
        optimizers = (*self.optimizers, *self.unclipped)
        for optimizer in optimizers:  # all of them are looked at before the first one steps
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            limit = math.inf if optimizer in self.unclipped else self.max_grad_norm
            self._refuse_non_finite("gradient norm", clip_grad_norm_(parameters, limit))
        for optimizer in optimizers:
            optimizer.step()

    def _refuse_non_finite(self, what: str, value: Tensor) -> None:
        if not math.isfinite(value.item()):
            raise NonFiniteError(
                f"the {what} is {value.item()}: the weights were not touched",
                "Lower the learning rate, or look for values that explode in observations and rewards.",
                who=type(self).__name__,
                when=f"update {self.iter + 1}",
            )

    def set_weights(self, actor_weights: Mapping[str, Tensor]) -> None:
        """Load the actor's weights, nothing more."""
        self.actor.load_state_dict(actor_weights)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: Any) -> None:
        """Change a documented parameter, at once; an unknown name raises and names the nearest."""
        self.update_parameter(parameter_name, new_parameter_value)

    def _set_parameter(self, name: str, value: Any) -> None:
        published = isinstance(getattr(type(self), name, None), property)
        super()._set_parameter(f"_{name}" if published else name, value)

    def get_state(self) -> dict[str, Any]:
        """Everything but the actor's weights that the next update depends on."""
        optimizers = [deepcopy(optimizer.state_dict()) for optimizer in (*self.optimizers, *self.unclipped)]
        return {
            "iter": self.iter,
            "optimizers": optimizers,
            "addons": [addon.get_state() for addon in self.policy_loss_addons],
            "generator": self.generator.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.iter = state["iter"]
        self.generator.set_state(state["generator"])
        for optimizer, saved in zip((*self.optimizers, *self.unclipped), state["optimizers"], strict=True):
            optimizer.load_state_dict(deepcopy(saved))  # it would share the tensors
        for addon, saved in zip(self.policy_loss_addons, state["addons"], strict=True):
            addon.set_state(saved)
