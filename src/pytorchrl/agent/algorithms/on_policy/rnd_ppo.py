"""PPO that explores by random network distillation (arXiv 1810.12894)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.on_policy_actor import OnPolicyActor
from pytorchrl.agent.algorithms.base import Batch, Info
from pytorchrl.agent.algorithms.on_policy.distillation import Distillation
from pytorchrl.agent.algorithms.on_policy.ppo import PPO
from pytorchrl.agent.algorithms.policy_loss_addons.base import AddOns
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.errors import ConfigError
from pytorchrl.keys import ADV, IADV, IRET, IREW, IVAL, MASK, OBS2, VAL
from pytorchrl.parameters import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat
from pytorchrl.tree import Tree


class RND_PPO(PPO):  # noqa: N801  its name in configurations
    """PPO on the sum of two advantages: of the environment's rewards, and of rewards for what is new.

    A transition's intrinsic reward is the error of a predictor of a fixed random network's features of the true
    successor. Intrinsic returns have a value head and a discount of their own, and do not end with episodes.

    Parameters
        gamma_intrinsic: discount factor of intrinsic rewards.
        ext_adv_coeff: weight of the advantages of the environment's rewards.
        int_adv_coeff: weight of the intrinsic advantages.
        predictor_proportion: share of the rows that the predictor learns from; all of them from 1 on.
        pre_normalization_steps: times pre_normalization_length, the random vector steps before the run, which belong to
            none of its episodes, that give observations their first mean and deviation.
        pre_normalization_length: see pre_normalization_steps.
        intrinsic_rewards_network: name or class of the feature extractor of target and predictor; null takes what fits.
        intrinsic_rewards_target_network_kwargs: its parameters in the target.
        intrinsic_rewards_predictor_network_kwargs: its parameters in the predictor.
    """

    predicts: ClassVar = (VAL, IVAL)
    fixed_parameters: ClassVar = (
        *PPO.fixed_parameters,
        "pre_normalization_steps",
        "pre_normalization_length",
        "intrinsic_rewards_network",
        "intrinsic_rewards_target_network_kwargs",
        "intrinsic_rewards_predictor_network_kwargs",
    )

    def __init__(
        self,
        device: torch.device | str,
        envs: VecEnv | None,
        actor: OnPolicyActor,
        lr: NonNegativeFloat = 1e-4,
        eps: PositiveFloat = 1e-8,
        gamma: UnitFloat = 0.99,
        num_epochs: PositiveInt = 4,
        clip_param: NonNegativeFloat = 0.2,
        num_mini_batch: PositiveInt = 1,
        test_every: NonNegativeInt = 1000,
        max_grad_norm: PositiveFloat = 0.5,
        entropy_coef: NonNegativeFloat = 0.01,
        value_loss_coef: NonNegativeFloat = 0.5,
        num_test_episodes: NonNegativeInt = 5,
        use_clipped_value_loss: bool = True,
        policy_loss_addons: AddOns = [],  # noqa: B006  the documented default; copied at once
        gamma_intrinsic: UnitFloat = 0.99,
        ext_adv_coeff: NonNegativeFloat = 2.0,
        int_adv_coeff: NonNegativeFloat = 1.0,
        predictor_proportion: NonNegativeFloat = 2.0,
        pre_normalization_steps: NonNegativeInt = 50,
        pre_normalization_length: NonNegativeInt = 128,
        intrinsic_rewards_network: str | type[nn.Module] | None = None,
        intrinsic_rewards_target_network_kwargs: dict[str, Any] | None = None,
        intrinsic_rewards_predictor_network_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if actor.ivalue_net1 is None:
            raise ConfigError(
                "RND_PPO needs an actor with an intrinsic value", "Make it with algorithm_name 'RND_PPO'."
            )
        super().__init__(
            device,
            envs,
            actor,
            lr=lr,
            eps=eps,
            gamma=gamma,
            num_epochs=num_epochs,
            clip_param=clip_param,
            num_mini_batch=num_mini_batch,
            test_every=test_every,
            max_grad_norm=max_grad_norm,
            entropy_coef=entropy_coef,
            value_loss_coef=value_loss_coef,
            num_test_episodes=num_test_episodes,
            use_clipped_value_loss=use_clipped_value_loss,
            policy_loss_addons=policy_loss_addons,
        )
        self.gamma_intrinsic = gamma_intrinsic
        self.ext_adv_coeff, self.int_adv_coeff = ext_adv_coeff, int_adv_coeff
        self.predictor_proportion = predictor_proportion
        self.pre_normalization_steps, self.pre_normalization_length = pre_normalization_steps, pre_normalization_length
        self.distillation = Distillation(
            actor.input_space,
            1 if envs is None else envs.env_kwargs.get("frame_stack", 1),
            intrinsic_rewards_network,
            intrinsic_rewards_target_network_kwargs,
            intrinsic_rewards_predictor_network_kwargs,
        ).to(self.device)
        self.optimizers.append(self.adam(self.distillation.predictor.parameters()))

    @property
    def trainable_parameters(self) -> list[Tensor]:
        """The networks, those of the add-ons, the predictor."""
        return [*super().trainable_parameters, *self.distillation.predictor.parameters()]

    @property
    def random_steps_wanted(self) -> int:
        """Vector steps that fill the moments of observations, once per run: they are part of the state."""
        return 0 if self.distillation.has_observed else self.pre_normalization_steps * self.pre_normalization_length

    def observe(self, obs: Tree) -> None:
        """Merge observations into the moments that whiten them."""
        self.distillation.observe(obs)

    def intrinsic_rewards(self, successors: Tree) -> Tensor:
        """i_t = mean (f̂(ô_{t+1}) − f(ô_{t+1}))² over the features, ``[B, 1]``; then they join the moments (alg. 1)."""
        rewards = self.distillation.surprise(successors)
        self.observe(successors)
        return rewards

    def advantages(self, batch: Batch) -> Tensor:
        """A = ext_adv_coeff · A_E + int_adv_coeff · A_I (§2.3)."""
        return self.ext_adv_coeff * batch[ADV] + self.int_adv_coeff * batch[IADV]  # type: ignore[no-any-return]

    def critic_losses(self, values: Mapping[str, Tensor], batch: Batch) -> Info:
        """Of V_E and of V_I."""
        intrinsic = self.critic_loss(values["ivalue_net1"], batch[IVAL], batch[IRET])
        return {**super().critic_losses(values, batch), "ivalue_loss": intrinsic}

    def distillation_loss(self, batch: Batch) -> Tensor:
        """mean ‖f̂(ô) − f(ô)‖² over a random share of the rows, and where MASK is 1 if there is one (§2.2)."""
        errors = self.distillation(batch[OBS2])
        chance = torch.rand(errors.shape, generator=self.generator).to(errors.device)
        kept = (chance < self.predictor_proportion) * batch.get(MASK, 1.0)
        return (errors * kept).sum() / kept.sum().clamp(min=1.0)  # type: ignore[no-any-return]

    def compute_loss(self, batch: Batch) -> tuple[Tensor, Info]:
        """PPO's loss of both critics and the mixed advantage, and the predictor's."""
        loss, info = super().compute_loss(batch)
        rnd_loss = self.distillation_loss(batch)
        rewards = batch[IREW]
        more = {
            "rnd_loss": rnd_loss.detach(),
            "mean_intrinsic_rewards": rewards.mean(),
            "min_intrinsic_rewards": rewards.min(),
            "max_intrinsic_rewards": rewards.max(),
        }
        loss = loss + rnd_loss
        return loss, info | {"loss": loss.detach(), **more}

    def get_state(self) -> dict[str, Any]:
        networks = {name: value.clone() for name, value in self.distillation.state_dict().items()}
        return super().get_state() | {"distillation": networks}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.distillation.load_state_dict(state["distillation"])
