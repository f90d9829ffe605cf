"""What model-based algorithms share: they learn a world model, and act by planning with it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam

from pytorchrl.agent.actors.model_based_planner_actor import ModelBasedPlannerActor
from pytorchrl.agent.algorithms.base import Algorithm, Batch, Info
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.keys import ENDS, INPUT, LABEL, PREDICTED, WEIGHTS
from pytorchrl.tree import Tree


class ModelPredictiveControl(Algorithm):
    """Plans anew at every step with the actor's world model, and learns the model from what happened.

    Parameters
        lr: learning rate of Adam.
        start_steps: vector steps with uniformly random actions before the model is first fitted.
        update_every: vector steps between two fits of the model.
        mb_epochs: passes over all transitions in a fit.
        action_noise: whether a little noise is added to planned actions, but when they are to be deterministic.
        mini_batch_size: transitions per gradient step.
    """

    actor: ModelBasedPlannerActor

    def __init__(
        self,
        device: torch.device | str,
        envs: VecEnv | None,
        actor: ModelBasedPlannerActor,
        *,
        lr: float,
        start_steps: int,
        update_every: int,
        mb_epochs: int,
        action_noise: bool,
        mini_batch_size: int,
        max_grad_norm: float,
        test_every: int,
        num_test_episodes: int,
        gamma: float = 1.0,
        **planner: float,
    ) -> None:
        super().__init__(
            device,
            envs,
            actor,
            gamma=gamma,
            test_every=test_every,
            num_test_episodes=num_test_episodes,
            max_grad_norm=max_grad_norm,
            num_epochs=mb_epochs,
            mini_batch_size=mini_batch_size,
            start_steps=start_steps,
            update_every=update_every,
        )
        self.lr = lr
        self.mb_epochs = mb_epochs
        self.optimizers = [Adam(self.trainable_parameters, lr=lr, fused=True)]
        for name, value in {"action_noise": action_noise, "gamma": gamma, **planner}.items():
            self._set_parameter(name, value)

    def acting_step(
        self, obs: Tree, rhs: dict[str, Tensor], done: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """(action, the same action, the plan, what the model says that it earns over the horizon)."""
        action, rhs, value = self.actor.plan(obs, rhs, done, deterministic)
        return action, action, rhs, {} if value is None else {PREDICTED: value}

    def rows_in(self, batch: Batch) -> int:
        return len(batch[INPUT])

    def compute_loss(self, batch: Batch) -> Tensor:
        """The world model's loss on standardized inputs and raw labels."""
        return self.actor.dynamics_model.loss(batch[INPUT], batch[LABEL], batch.get(ENDS), batch.get(WEIGHTS))

    def compute_gradients(self, batch: Batch, grads_to_cpu: bool = True) -> tuple[list[Tensor | None], Info]:
        loss = self.compute_loss(batch)
        return self.gradients_of(loss, grads_to_cpu), {"loss": loss.detach()}

    def _set_parameter(self, name: str, value: Any) -> None:
        super()._set_parameter(name, value)
        if name == "lr":
            self.optimizers[0].param_groups[0]["lr"] = value
        if name == "mb_epochs":
            self._num_epochs = value
        if name in self.actor.planner.settings:
            self.actor.planner.settings[name] = value
