"""Prioritized replay (PER, arXiv 1511.05952)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.agent.storages.sampling import Prioritized, linear_to_one
from pytorchrl.errors import NonFiniteError
from pytorchrl.keys import INDICES, PER_WEIGHTS
from pytorchrl.parameters import NonNegativeFloat, NonNegativeInt, PositiveInt, UnitFloat
from pytorchrl.tree import Tree


class PERBuffer(ReplayBuffer):
    """Transitions are drawn with P_i ∝ (|δ_i| + ε)^α and weighted with (N P_i)^−β, over its maximum in the buffer.

    δ are the errors of the losses; a new transition gets the largest |δ| so far. Other parts of a replay go with
    it: ``PERBuffer(size, alpha=0.6, beta=0.4, n_step=3, eta=0.996)``.

    Parameters
        epsilon: ε, added to every |δ|.
        alpha: α, from uniform draws (0) to draws in proportion to |δ| + ε (1).
        beta: β, from no correction (0) to the whole correction (1) of what uneven draws do to the expectation.
        default_error: |δ| of transitions that come before the first error; null: 1.
        beta_updates: updates in which β rises to 1, linearly; 0 keeps it.
        n_step: steps per window, as in NStepBuffer.
        eta: emphasis on recent experience, as in EREBuffer.
        cmin: likewise.
        eta_updates: likewise.
    """

    # One float32 for the error, and two nodes of up to two float64 trees.
    overhead = 36

    def __init__(
        self,
        size: PositiveInt,
        device: torch.device | str,
        actor: Actor,
        algorithm: Algorithm | None,
        envs: VecEnv | None,
        epsilon: NonNegativeFloat = 0.0,
        alpha: NonNegativeFloat = 0.0,
        beta: NonNegativeFloat = 1.0,
        default_error: NonNegativeFloat | None = None,
        *,
        beta_updates: NonNegativeInt = 0,
        n_step: PositiveInt = 1,
        eta: UnitFloat = 1.0,
        cmin: PositiveInt = 5000,
        eta_updates: NonNegativeInt = 0,
        sequence_length: PositiveInt = 20,
        memmap: str | None = None,
    ) -> None:
        super().__init__(size, device, actor, algorithm, envs, sequence_length=sequence_length, memmap=memmap)
        self.epsilon = epsilon
        self.alpha = alpha
        self.beta = beta
        self.default_error = default_error
        self.beta_updates = beta_updates
        self.n_step = n_step
        self.eta = eta
        self.cmin = cmin
        self.eta_updates = eta_updates
        self._priorities: Prioritized | None = None

    @property
    def priorities(self) -> Prioritized:
        """The priorities of what the ring holds now."""
        if self._priorities is None:
            self._priorities = self._no_priorities()
        self._priorities.follow(*self.stored_units)
        return self._priorities

    def _no_priorities(self) -> Prioritized:
        slots = self.units.slots(self.max_size, self.ring.num_envs)
        return Prioritized(slots, self.epsilon, self.alpha, self.default_error)

    def _draw(self, count: int, first: int, end: int) -> dict[str, Tree]:
        priorities = self.priorities
        ids = priorities.draw(first, count, self.generator)
        beta = linear_to_one(self.beta, self.updates, self.beta_updates)
        weights = torch.from_numpy(priorities.weights(ids, beta)).float().repeat_interleave(self.units.length)[:, None]
        device = self.ring.device
        return self._assembled(torch.from_numpy(ids).to(device)) | {PER_WEIGHTS: weights.to(device)}

    def after_gradients(self, batch: Mapping[str, Any], info: dict[str, Tensor]) -> dict[str, Tensor]:
        """The batch's errors become its |δ|; that of a sequence is 0.9 · the largest + 0.1 · the mean of its steps."""
        errors = info["errors"].detach().flatten().cpu().float()
        if not torch.isfinite(errors).all():
            raise NonFiniteError(
                f"{int((~torch.isfinite(errors)).sum())} of {len(errors)} errors are not finite: no priority changed",
                "Look for values that explode in rewards and critics, or lower the learning rate.",
                who=type(self).__name__,
                when=f"update {self.updates + 1}",
            )
        if self.units.length > 1:
            steps = errors.abs().view(len(batch[INDICES]), -1)
            errors = 0.9 * steps.amax(1) + 0.1 * steps.mean(1)
        self.priorities.update(batch[INDICES].cpu().numpy(), errors.numpy())
        return super().after_gradients(batch, info)

    def reset(self) -> None:
        super().reset()
        self._priorities = None

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"priorities": self.priorities.get_state() if self.size else {}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        if state["priorities"]:
            self._restore(state["priorities"])

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._priorities = self._no_priorities()
        self._priorities.set_state(state)

    def _set_parameter(self, name: str, value: Any) -> None:
        """A new ``size`` renumbers the slots; a new ``epsilon`` or ``alpha`` changes every priority."""
        if name == "size" and self.size:
            priorities = self.priorities
            super()._set_parameter(name, value)
            self._restore(priorities.get_state(self.stored_units[0]))
            return
        super()._set_parameter(name, value)
        if name in ("epsilon", "alpha") and self.size:
            self.priorities.rescale(self.epsilon, self.alpha)
