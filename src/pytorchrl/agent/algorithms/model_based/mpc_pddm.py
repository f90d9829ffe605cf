"""Model-predictive control by filtered, reward-weighted refinement: PDDM (arXiv 1909.11652)."""

from __future__ import annotations

import torch

from pytorchrl.agent.actors.model_based_planner_actor import ModelBasedPlannerActor
from pytorchrl.agent.algorithms.model_based.base import ModelPredictiveControl
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.parameters import NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat


class MPC_PDDM(ModelPredictiveControl):  # noqa: N801  its published name
    """The first action of the last plan, refined: smooth noise on it, averaged with weights exp(gamma·return).

    Parameters
        gamma: how much a better return weighs more; it is no discount.
        beta: share of a new action in the mixture with the one before it.
    """

    def __init__(
        self,
        device: torch.device | str,
        envs: VecEnv | None,
        actor: ModelBasedPlannerActor,
        lr: PositiveFloat = 1e-3,
        start_steps: NonNegativeInt = 200,
        update_every: PositiveInt = 200,
        mb_epochs: PositiveInt = 20,
        action_noise: bool = False,
        mini_batch_size: PositiveInt = 256,
        max_grad_norm: PositiveFloat = 0.5,
        test_every: NonNegativeInt = 10,
        num_test_episodes: NonNegativeInt = 3,
        gamma: PositiveFloat = 1.0,
        beta: UnitFloat = 0.5,
    ) -> None:
        super().__init__(
            device,
            envs,
            actor,
            lr=lr,
            start_steps=start_steps,
            update_every=update_every,
            mb_epochs=mb_epochs,
            action_noise=action_noise,
            mini_batch_size=mini_batch_size,
            max_grad_norm=max_grad_norm,
            test_every=test_every,
            num_test_episodes=num_test_episodes,
            gamma=gamma,
            beta=beta,
        )
