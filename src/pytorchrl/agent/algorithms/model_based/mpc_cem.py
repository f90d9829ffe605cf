"""Model-predictive control by the cross-entropy method: PETS (arXiv 1805.12114)."""

from __future__ import annotations

import torch

from pytorchrl.agent.actors.model_based_planner_actor import ModelBasedPlannerActor
from pytorchrl.agent.algorithms.model_based.base import ModelPredictiveControl
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.errors import ConfigError
from pytorchrl.parameters import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat


class MPC_CEM(ModelPredictiveControl):  # noqa: N801  its published name
    """The first action of the mean of Gaussians over sequences, fitted again and again to the best of their samples.

    Parameters
        lb: least action, in [-1, 1] units.
        ub: largest action, likewise.
        k_best: sequences that the Gaussians are fitted to.
        iter_update_steps: fits per step.
        epsilon: variance below which a fit ends.
        update_alpha: how much of mean and variance stays at each fit.
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
        lb: float = -1.0,
        ub: float = 1.0,
        k_best: PositiveInt = 5,
        iter_update_steps: PositiveInt = 3,
        epsilon: NonNegativeFloat = 0.001,
        update_alpha: UnitFloat = 0.0,
    ) -> None:
        if lb >= ub:
            raise ConfigError(f"lb is {lb} and ub is {ub}: no action lies between them")
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
            lb=lb,
            ub=ub,
            k_best=k_best,
            iter_update_steps=iter_update_steps,
            epsilon=epsilon,
            update_alpha=update_alpha,
        )
