"""What off-policy algorithms share: targets, replay weights, and gradients that stop where they are not used."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Adam

from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.algorithms.base import Algorithm, Batch
from pytorchrl.agent.algorithms.policy_loss_addons.base import AddOns
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.errors import ConfigError
from pytorchrl.keys import ACT, DONE, N_STEP, OBS, OBS2, PER_WEIGHTS, REW, RHS, RHS2, TERMINAL
from pytorchrl.tree import Tree


class OffPolicyAlgorithm(Algorithm):
    """Learns critics, and a policy from them, on mini-batches of a replay.

    ``target`` is a slowly moving copy of the actor: θ̄ ← polyak·θ̄ + (1 − polyak)·θ every ``target_update_interval``
    updates.

    Parameters
        polyak: how much of the targets stays at each of their updates.
        num_updates: updates between two collections.
        update_every: vector steps between two update stages.
        start_steps: vector steps with uniformly random actions before learning starts.
        mini_batch_size: transitions per update.
        target_update_interval: updates between two moves of the targets (and of a delayed policy).
    """

    # How many of the actor's critics are learned.
    num_critics: ClassVar[int] = 2

    actor: OffPolicyActor

    def __init__(
        self,
        device: torch.device | str,
        envs: VecEnv | None,
        actor: OffPolicyActor,
        *,
        gamma: float,
        polyak: float,
        num_updates: int,
        update_every: int,
        test_every: int,
        max_grad_norm: float,
        start_steps: int,
        mini_batch_size: int,
        num_test_episodes: int,
        target_update_interval: float,
        policy_loss_addons: AddOns,
    ) -> None:
        super().__init__(
            device,
            envs,
            actor,
            gamma=gamma,
            test_every=test_every,
            num_test_episodes=num_test_episodes,
            max_grad_norm=max_grad_norm,
            policy_loss_addons=policy_loss_addons,
            num_mini_batch=num_updates,
            mini_batch_size=mini_batch_size,
            start_steps=start_steps,
            update_every=update_every,
        )
        self.polyak = polyak
        self.target_update_interval = whole(target_update_interval)
        self.target = actor.detached_copy()
        self.critic: list[Tensor] = []
        self.policy: list[Tensor] = []

    def adam(self, parameters: Iterable[Tensor], lr: float) -> Adam:
        """The optimizer of one part."""
        return Adam(list(parameters), lr=lr, fused=True)

    def optimize_apart(self, lr_q: float, lr_pi: float) -> None:
        """Critics and policy, each with an optimizer of its own."""
        self.critic = self.actor.critic_parameters()
        self.policy = [*self.actor.policy_parameters(), *self.addon_parameters]
        self.optimizers = [self.adam(self.critic, lr_q), self.adam(self.policy, lr_pi)]

    def need_critics(self, count: int) -> None:
        """Refuse an actor with fewer critics."""
        if self.actor.num_critics < count:
            raise ConfigError(
                f"{type(self).__name__} needs {count} critics, and the actor has {self.actor.num_critics}",
                f"Set actor.num_critics={count}.",
            )

    @torch.no_grad()
    def acting_step(
        self, obs: Tree, rhs: dict[str, Tensor], done: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """(action, the same action, rhs, {}): what is executed is what is stored."""
        action, rhs, _ = self.actor.act(obs, rhs, done, deterministic)
        return action, action, rhs, {}

    def target_of(self, batch: Batch, bootstrap: Tensor, n_step: Any) -> Tensor:
        """y = r⁽ᵐ⁾ + γᵐ·(1 − e)·bootstrap, with m rewards in the sum."""
        return batch[REW] + self.gamma**n_step * torch.where(batch[TERMINAL] != 0, 0.0, bootstrap)  # type: ignore[no-any-return]

    @abstractmethod
    def bootstrap(self, batch: Batch) -> Tensor:
        """What the targets say that the successors are worth, ``[B, 1]``."""

    def critic_losses(self, batch: Batch, n_step: Any, weights: Any) -> tuple[Tensor, ...]:
        """(L_1, L_2, ½L_1 + ½L_2, mean_i |Q_i(s, a) − y|), L_i = mean w·(Q_i(s, a) − y)²; L_2 = 0 of one critic."""
        with torch.no_grad():
            y = self.target_of(batch, self.bootstrap(batch), n_step)
        inputs = batch[OBS], batch[RHS], batch[DONE]
        scores = self.actor.get_q_scores(*inputs, batch[ACT], num_critics=self.num_critics)
        deltas = [scores[key] - y for key in ("q1", "q2") if key in scores]
        losses = [(weights * delta.square()).mean() for delta in deltas]
        second = losses[1] if len(losses) > 1 else torch.zeros_like(losses[0])
        errors = torch.stack([delta.detach().abs() for delta in deltas]).mean(0)
        return losses[0], second, 0.5 * losses[0] + 0.5 * second, errors

    def successors(self, batch: Batch) -> tuple[Tree, dict[str, Tensor], Tensor]:
        """(observations, hidden states, dones) that bootstrap values are read from.

        A true successor never opens an episode; behind an end within a sequence, memories begin anew.
        """
        done = batch[DONE]
        if not self.actor.is_recurrent:
            return batch[OBS2], batch[RHS2], torch.zeros_like(done)
        n = len(next(iter(batch[RHS2].values())))
        first = torch.zeros(1, dtype=torch.long, device=done.device)
        return batch[OBS2], batch[RHS2], done.view(n, -1).index_fill(1, first, 0.0).view(-1, 1)

    def replayed(self, batch: Batch) -> tuple[Batch, Any, Any]:
        """(batch without burn-in steps, m of its n-step sums, its importance weights)."""
        ready = self.actor.burn_in_recurrent_states(batch)
        return ready, ready.get(N_STEP, 1), ready.get(PER_WEIGHTS, 1)

    def gradients_by(
        self, losses: Sequence[tuple[Tensor, Sequence[Tensor]]], grads_to_cpu: bool
    ) -> list[Tensor | None]:
        """Each loss' gradient in its own parameters alone; None for parameters that no loss names or depends on."""
        for loss, _ in losses:
            self._refuse_non_finite("loss", loss)
        for parameter in self.trainable_parameters:
            parameter.grad = None
        for loss, parameters in losses:
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
            for parameter, gradient in zip(parameters, found, strict=True):
                # Fused Adam takes wrong steps, in silence, where gradient and parameter differ in memory order.
                parameter.grad = None if gradient is None else gradient.contiguous()
        gradients = [parameter.grad for parameter in self.trainable_parameters]
        return [None if g is None else g.to("cpu", copy=True) for g in gradients] if grads_to_cpu else gradients

    def apply_gradients(self, gradients: Sequence[Tensor | None] | None = None) -> None:
        super().apply_gradients(gradients)
        if gradients is None:
            self.further_steps()
        self.move_targets()

    def further_steps(self) -> None:
        """What an update in one process does beyond the step with its gradients, before the targets move."""

    def set_weights(self, actor_weights: Mapping[str, Tensor]) -> None:
        """Load the actor's weights; the targets' schedule counts it like an update."""
        super().set_weights(actor_weights)
        self.iter += 1
        self.move_targets()

    @property
    def target_step(self) -> float:
        """How far the targets move towards the networks: 1 − polyak."""
        return 1.0 - self.polyak

    @torch.no_grad()
    def move_targets(self) -> None:
        """θ̄ ← polyak·θ̄ + (1 − polyak)·θ if an interval has passed; buffers are copied."""
        if self.iter % self.target_update_interval:
            return
        slow: list[Tensor] = list(self.target.parameters())
        fast: list[Tensor] = list(self.actor.parameters())
        torch._foreach_lerp_(slow, fast, self.target_step)
        for old, new in zip(self.target.buffers(), self.actor.buffers(), strict=True):
            old.copy_(new)

    def _set_parameter(self, name: str, value: Any) -> None:
        if name == "num_updates":
            self._num_mini_batch = value
        elif name == "target_update_interval":
            self.target_update_interval = whole(value)
        else:
            super()._set_parameter(name, value)
        if name in ("lr_q", "lr_pi"):
            self.optimizers[("lr_q", "lr_pi").index(name)].param_groups[0]["lr"] = value

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {
            "target": {name: value.clone() for name, value in self.target.state_dict().items()}
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.target.load_state_dict(state["target"])


def whole(count: float) -> int:
    """A count that may be given as a float, such as 1.0."""
    if count != int(count):
        raise ConfigError(f"target_update_interval: expected a whole number of updates, got {count}")
    return int(count)


def smallest(scores: Mapping[str, Tensor]) -> Tensor:
    """min_i Q_i over one or two critics."""
    return torch.minimum(scores["q1"], scores["q2"]) if "q2" in scores else scores["q1"]
