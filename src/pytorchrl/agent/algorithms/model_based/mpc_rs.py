"""Model-predictive control by random shooting (arXiv 1708.02596)."""

from __future__ import annotations

import torch

from pytorchrl.agent.actors.model_based_planner_actor import ModelBasedPlannerActor
from pytorchrl.agent.algorithms.model_based.base import ModelPredictiveControl
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.parameters import NonNegativeInt, PositiveFloat, PositiveInt


class MPC_RS(ModelPredictiveControl):  # noqa: N801  its published name
    """The first action of the best of ``n_planner`` random sequences, or of the sequence chosen one step before."""

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
        )
