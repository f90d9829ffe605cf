"""Double deep Q-learning (arXiv 1509.06461), over the DQN of Nature 518."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.algorithms.base import Batch, Info
from pytorchrl.agent.algorithms.off_policy.base import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.policy_loss_addons.base import AddOns
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.functional.draws import uniform_like
from pytorchrl.keys import DONE, OBS, PER_WEIGHTS, RHS
from pytorchrl.parameters import NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat
from pytorchrl.tree import Tree


class DDQN(OffPolicyAlgorithm):
    """Q-learning in which the online network selects the next action and the target network scores it.

    Parameters
        lr: learning rate of Adam.
        initial_epsilon: share of random actions at the start.
        epsilon_decay: factor on epsilon at each update.
        final_epsilon: where the decay ends.
    """

    num_critics: ClassVar = 1
    factory_defaults: ClassVar = {"num_updates": 50}
    factory_order = (
        "lr",
        "gamma",
        "polyak",
        "num_updates",
        "update_every",
        "test_every",
        "start_steps",
        "max_grad_norm",
        "mini_batch_size",
        "num_test_episodes",
        "epsilon_decay",
        "initial_epsilon",
        "target_update_interval",
        "policy_loss_addons",
    )

    def __init__(
        self,
        device: torch.device | str,
        envs: VecEnv | None,
        actor: OffPolicyActor,
        lr: PositiveFloat = 1e-4,
        gamma: UnitFloat = 0.99,
        polyak: UnitFloat = 0.995,
        num_updates: PositiveInt = 1,
        update_every: PositiveInt = 50,
        test_every: NonNegativeInt = 5000,
        max_grad_norm: PositiveFloat = 0.5,
        start_steps: NonNegativeInt = 20000,
        mini_batch_size: PositiveInt = 64,
        num_test_episodes: NonNegativeInt = 5,
        initial_epsilon: UnitFloat = 1.0,
        epsilon_decay: UnitFloat = 0.999,
        target_update_interval: PositiveFloat = 1,
        policy_loss_addons: AddOns = [],  # noqa: B006  the page's default; copied at once
        *,
        final_epsilon: UnitFloat = 0.05,
    ) -> None:
        super().__init__(
            device,
            envs,
            actor,
            gamma=gamma,
            polyak=polyak,
            num_updates=num_updates,
            update_every=update_every,
            test_every=test_every,
            max_grad_norm=max_grad_norm,
            start_steps=start_steps,
            mini_batch_size=mini_batch_size,
            num_test_episodes=num_test_episodes,
            target_update_interval=target_update_interval,
            policy_loss_addons=policy_loss_addons,
        )
        self.lr = lr
        self.epsilon = self.initial_epsilon = initial_epsilon
        self.epsilon_decay = epsilon_decay
        self.final_epsilon = final_epsilon
        self.optimizers = [self.adam(self.trainable_parameters, lr)]

    @torch.no_grad()
    def acting_step(
        self, obs: Tree, rhs: dict[str, Tensor], done: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """The greedy action, or with probability ε, drawn for each environment, a random one."""
        action, rhs, _ = self.actor.act(obs, rhs, done, deterministic)
        if not deterministic:
            explores = uniform_like(action.float(), self.actor.generator) < self.epsilon
            action = torch.where(explores, self.actor.random_action(len(action), obs), action)
        return action, action, rhs, {}

    @torch.no_grad()
    def bootstrap(self, batch: Batch) -> Tensor:
        """Q̄(s', argmax_a Q(s', a)) over allowed a (eq. 4)."""
        successors = self.successors(batch)
        scores = self.actor.get_q_scores(*successors, num_critics=1)["q1"]
        best = self.actor.allowed(scores, successors[0]).argmax(-1, keepdim=True)
        return self.target.get_q_scores(*successors, best, num_critics=1)["q1"]  # type: ignore[no-any-return]

    def compute_loss(self, batch: Batch, n_step: Any = 1, per_weights: Any = 1) -> tuple[Tensor, Tensor]:
        """(mean w·(Q(s, a) − y)², |Q(s, a) − y|)."""
        loss, _, _, errors = self.critic_losses(batch, n_step, per_weights)
        return loss, errors

    def compute_gradients(self, batch: Batch, grads_to_cpu: bool = True) -> tuple[list[Tensor | None], Info]:
        batch, n_step, weights = self.replayed(batch)
        loss, errors = self.compute_loss(batch, n_step, weights)
        info = {"loss_q": loss.detach(), "epsilon": torch.tensor(self.epsilon)}
        if self.policy_loss_addons:
            dist, _ = self.actor.get_policy(batch[OBS], batch[RHS], batch[DONE])
            loss = self.with_addons(loss, batch, dist, info)
        if PER_WEIGHTS in batch:
            info["errors"] = errors
        return self.gradients_of(loss, grads_to_cpu), info

    def apply_gradients(self, gradients: Sequence[Tensor | None] | None = None) -> None:
        """One step, and one step of ε's decay."""
        super().apply_gradients(gradients)
        self.epsilon = max(self.epsilon * self.epsilon_decay, min(self.final_epsilon, self.epsilon))

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:  # the page's name of it
        """Load the actor's weights; the targets' schedule counts it like an update."""
        super().set_weights(weights)

    def _set_parameter(self, name: str, value: Any) -> None:
        super()._set_parameter(name, value)
        if name == "lr":
            self.optimizers[0].param_groups[0]["lr"] = value
        if name == "initial_epsilon":
            self.epsilon = value

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"epsilon": self.epsilon}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.epsilon = state["epsilon"]
