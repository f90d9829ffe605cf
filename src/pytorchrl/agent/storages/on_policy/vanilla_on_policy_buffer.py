"""One rollout with discounted returns; the base of the on-policy storages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.actors.on_policy_actor import VALUE_HEADS
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.base import Sample, Storage
from pytorchrl.agent.storages.frames import newest_frame
from pytorchrl.errors import ConfigError, RLError
from pytorchrl.functional.returns import discounted_returns, normalize
from pytorchrl.functional.stats import ForwardDiscountedSum, RunningMeanStd
from pytorchrl.keys import (
    ACT,
    ADV,
    DONE,
    DONE2,
    IADV,
    IRET,
    IREW,
    IVAL,
    LOGP,
    OBS,
    OBS2,
    RET,
    REW,
    RHS,
    RHS2,
    TERMINAL,
    VAL,
)
from pytorchrl.memory import bytes_of, refuse_if_too_large
from pytorchrl.parameters import PositiveInt
from pytorchrl.tree import Tree

# Row t of these is "now" and row t+1 "next".
_NOW_AND_NEXT = ((OBS, OBS2), (RHS, RHS2), (DONE, DONE2))
# What one transition brings beside them.
_TRANSITION = (ACT, REW, TERMINAL, VAL, LOGP, IVAL)
# Row L of these says what comes after the L steps.
_WITH_BOOTSTRAP = (OBS, RHS, DONE, VAL, RET, IVAL, IRET)
# Successors of truncated transitions, kept aside until they are valued: their (row, environment), observation, state.
_ASIDE = ("TruncatedRows", "TruncatedSuccessors", "TruncatedStates")


class VanillaOnPolicyBuffer(Storage):
    """A rollout of up to ``size`` steps of N environments.

    Time tensors have ``size + 1`` rows: of observations, dones and hidden states, row t+1 is what followed row t; of
    values and returns, row L (= ``size`` filled) is the bootstrap. Rewards stay as they were given.

    Parameters
        size: steps per rollout and environment.
    """

    storage_tensors: ClassVar[tuple[str, ...]] = (
        OBS,
        RHS,
        DONE,
        ACT,
        REW,
        IREW,
        RET,
        IRET,
        VAL,
        IVAL,
        LOGP,
        ADV,
        IADV,
    )

    def __init__(
        self,
        size: PositiveInt,
        device: torch.device | str,
        actor: Actor,
        algorithm: Algorithm | None,
        envs: VecEnv | None,
    ) -> None:
        super().__init__(size, device, actor, algorithm, envs)
        self._aside: list[tuple[Tree, Tree, Tree]] = []
        self.num_channels_obs = 1
        self.int_reward_sums = ForwardDiscountedSum(gamma=0.0)  # with the algorithm's own discount where it is used
        self.int_reward_moments = RunningMeanStd()
        self._refuse_if_too_large(size)

    def _refuse_if_too_large(self, size: int, with_successors: bool = False) -> None:
        """Say whether a rollout can fit before anything is allocated."""
        if self.envs is not None:
            # Beside observation and action a row holds at most one float32 per documented key, and NextTerminal.
            row = bytes_of(self.envs.observation_space) + bytes_of(self.envs.action_space)
            row += 4 * (len(self.storage_tensors) + 1)
            if with_successors:
                row += bytes_of(self.envs.observation_space) // self.frame_stack
            refuse_if_too_large((size + 1) * self.envs.num_envs * row, f"{type(self).__name__} of size {size}")

    def init_tensors(self, sample: Sample) -> None:
        """Lazy allocation from a first transition, working keys included."""
        self._refuse_if_too_large(self.max_size, with_successors=IVAL in sample)
        rows = self.max_size + 1
        like = {now: now for now, _ in _NOW_AND_NEXT} | {key: key for key in _TRANSITION if key in sample}
        like |= {RET: REW, ADV: REW} | ({IREW: REW, IRET: REW, IADV: REW} if IVAL in sample else {})
        self.data = {
            key: tree.allocate(sample[example], 1 if self._is_constant(key) else rows, device=self.device)
            for key, example in like.items()
        }
        if IVAL in sample:
            self.data[OBS2] = tree.allocate(newest_frame(sample[OBS2], self.frame_stack), rows, device=self.device)
        self.get_num_channels_obs(sample)

    def _is_constant(self, key: str) -> bool:
        """Hidden states of a feed-forward actor are zeros: one row stands for all."""
        return key == RHS and not self.actor.is_recurrent

    def get_num_channels_obs(self, sample: Sample) -> None:
        """Channels of a single frame: the first feature axis over the frame stack; 1 for scalars and dicts."""
        obs = sample[OBS]
        has_features = isinstance(obs, Tensor) and obs.dim() > 1
        self.num_channels_obs = obs.shape[1] // self.frame_stack if has_features else 1

    def insert_transition(self, sample: Sample) -> None:
        """Write the transition to row ``step``, and what followed it to the next row.

        The next insert puts there what was acted on, another observation if the episode ended; the true successors of
        truncated transitions are kept aside. Without NextTerminal, every end of an episode is one of the MDP.
        """
        sample = {TERMINAL: sample[DONE2], **sample}
        if not self.data:
            self.init_tensors(sample)
        if self.step == 0:
            self.reset()
        t = self.step
        for now, following in _NOW_AND_NEXT:
            if not self._is_constant(now):
                tree.copy_into(self.data[now], t, sample[now])
                tree.copy_into(self.data[now], t + 1, sample[following])
        for key in _TRANSITION:
            if key in self.data:
                tree.copy_into(self.data[key], t, sample[key])
        if OBS2 in self.data:
            tree.copy_into(self.data[OBS2], t, newest_frame(sample[OBS2], self.frame_stack))
        truncated = (sample[DONE2] > sample[TERMINAL]).flatten()
        if truncated.any():
            rows = truncated.nonzero().flatten()
            aside = (
                torch.stack([torch.full_like(rows, t), rows], dim=1),
                tree.index(sample[OBS2], rows),
                tree.index(sample[RHS2], rows),
            )
            self._aside.append(tuple(tree.to(part, self.device) for part in aside))  # type: ignore[arg-type]
        self.step = (self.step + 1) % self.max_size
        self.size += 1

    def reset(self) -> None:
        super().reset()
        self._aside = []

    def before_gradients(self) -> None:
        """Bootstrap values, returns and advantages of the rows that were inserted, intrinsic ones too."""
        if self.size == 0:
            raise RLError("no transitions to learn from", "Insert at least one before before_gradients().")
        self.compute_targets()
        if IVAL in self.data and getattr(self.algorithm, "gamma_intrinsic", None) is not None:
            self.compute_intrinsic_targets()

    def compute_targets(self) -> None:
        """VAL[L] (and IVAL[L]), RET and ADV."""
        L = self.size
        self._bootstrap(tree.index(self.data[RHS], 0 if self._is_constant(RHS) else L))
        returns, values, dones = (tree.first_leaf(self.data[key])[: L + 1] for key in (RET, VAL, DONE))
        rewards = self._with_truncation_values(tree.first_leaf(self.data[REW])[:L])
        self.compute_returns(rewards, returns, values, dones, self.algorithm.gamma)  # type: ignore[union-attr]
        tree.copy_into(self.data[ADV], slice(0, L), self.compute_advantages(returns, values))

    @torch.no_grad()
    def _bootstrap(self, rhs: Tree) -> None:
        """Row L of the values: what the networks say about what came last, with the hidden state before it."""
        obs, done = (tree.index(self.data[key], self.size) for key in (OBS, DONE))
        values = self.actor.get_value(obs, rhs, done)  # type: ignore[arg-type]
        for key, head in VALUE_HEADS.items():
            if key in self.data and head in values:
                tree.copy_into(self.data[key], self.size, values[head])

    @torch.no_grad()
    def _value(self, obs: Tree, rhs: Tree, done: Tree) -> Tensor:
        return self.actor.get_value(obs, rhs, done)["value_net1"]  # type: ignore[no-any-return,arg-type]

    def _with_truncation_values(self, rewards: Tensor) -> Tensor:
        """r̃_t = r_t + γ·V(true successor) where an episode was cut off, else r_t: the one-mask form of a truncation."""
        if not self._aside:
            return rewards
        places, obs, rhs = self._truncated()
        time, env = places.unbind(1)  # type: ignore[union-attr]
        value = self._value(obs, rhs, torch.zeros(len(time), 1, device=self.device))
        rewards = rewards.clone()
        rewards[time, env] += self.algorithm.gamma * value  # type: ignore[union-attr]
        return rewards

    def _truncated(self) -> tuple[Tree, Tree, Tree]:
        """(row, environment) ``[K, 2]``, observations and hidden states of all that was kept aside."""
        if len(self._aside) > 1:
            self._aside = [tuple(tree.concatenate(parts) for parts in zip(*self._aside, strict=True))]  # type: ignore[list-item]
        return self._aside[0]

    def compute_returns(self, rewards: Tensor, returns: Tensor, values: Tensor, dones: Tensor, gamma: float) -> None:
        """R_t = r_t + γ(1 − done_{t+1})·R_{t+1}, R_L = V_L, written into ``returns``.

        Shapes: rewards ``[L, N, 1]``; returns, values, dones ``[L+1, N, 1]``, dones[t] = 1 where row t opens one.
        """
        returns[:-1] = discounted_returns(rewards, values[1:], dones[1:], dones[1:], gamma)
        returns[-1] = values[-1]

    def compute_advantages(self, returns: Tensor, values: Tensor) -> Tensor:
        """R − V of all but the last row, normalized over the rollout, ``[L, N, 1]``."""
        return normalize((returns - values)[:-1])

    def compute_intrinsic_targets(self) -> None:
        """IREW of the true successors, in one batch; IRET and IADV from them.

        Curiosity does not end with an episode: the returns run on over all boundaries (arXiv 1810.12894, §2.3).
        """
        L, algorithm = self.size, self.algorithm
        rewards, returns, values = (tree.first_leaf(self.data[key])[: L + 1] for key in (IREW, IRET, IVAL))
        successors = tree.flatten_time(self.data[OBS2], L)
        rewards[:L] = algorithm.intrinsic_rewards(successors).view_as(rewards[:L])  # type: ignore[union-attr]
        self.normalize_int_rewards()
        no_ends = torch.zeros_like(values)
        self.compute_returns(rewards[:L], returns, values, no_ends, algorithm.gamma_intrinsic)  # type: ignore[union-attr]
        tree.copy_into(self.data[IADV], slice(0, L), self.compute_advantages(returns, values))
        self._keep_proportion()

    def _keep_proportion(self) -> None:
        """Shrink ADV where what it was made of varies less than what IADV was made of.

        Both were normalized. Before the first reward ADV is nothing but the error of a value of about 0: blown up to
        the size of curiosity it would drown it.
        """
        L = self.size
        pairs = ((RET, VAL), (IRET, IVAL))
        both = [tree.first_leaf(self.data[one])[:L] - tree.first_leaf(self.data[other])[:L] for one, other in pairs]
        external, intrinsic = (errors.std(correction=0) for errors in both)
        advantages = tree.first_leaf(self.data[ADV])
        advantages[:L] *= (external / intrinsic.clamp(min=1e-8)).clamp(max=1.0)

    def normalize_int_rewards(self) -> None:
        """Divide intrinsic rewards by the running standard deviation of their discounted sums (arXiv 1810.12894).

        The sums run forward in time and on from rollout to rollout; ends of episodes mean nothing to them.
        """
        rewards = tree.first_leaf(self.data[IREW])[: self.size]
        self.int_reward_sums.gamma = self.algorithm.gamma_intrinsic  # type: ignore[union-attr]
        self.int_reward_moments.update(self.int_reward_sums.update(rewards).flatten())
        rewards /= self.int_reward_moments.std.to(rewards)

    def generate_batches(
        self,
        num_mini_batch: int | None,
        mini_batch_size: int | None,
        num_epochs: int = 1,
        shuffle: bool = True,
    ) -> Iterator[dict[str, Tree]]:
        """Every row once per epoch, in ``num_mini_batch`` parts whose sizes differ by at most one.

        Rows are flattened time-major, i = t·N + n. Recurrent actors get whole sequences, time-major too, with the
        hidden states of their first steps. ``mini_batch_size`` counts only if ``num_mini_batch`` is None.
        """
        L, N = self.size, tree.first_leaf(self.data[REW]).shape[1]
        if num_mini_batch is None:
            if mini_batch_size is None:
                raise ConfigError("generate_batches needs num_mini_batch or mini_batch_size")
            num_mini_batch = math.ceil(L * N / mini_batch_size)
        keys = [key for key in (*self.storage_tensors, TERMINAL, OBS2) if key in self.data and key != RHS]
        flat = {key: tree.flatten_time(self.data[key], L) for key in keys}
        states = tree.index(self.data[RHS], 0)
        recurrent = self.actor.is_recurrent
        if recurrent and num_mini_batch > N:
            raise ConfigError(
                f"{num_mini_batch} mini-batches of whole sequences need as many environments, and there are {N}",
                "Lower num_mini_batch, or use more environments.",
            )
        # What is dealt out: whole environments, each with its L rows, or the rows one by one.
        units, offsets = (N, torch.arange(0, L * N, N)) if recurrent else (L * N, torch.tensor([0]))
        for _ in range(num_epochs):
            order = torch.randperm(units, generator=self.generator) if shuffle else torch.arange(units)
            for part in order.tensor_split(min(num_mini_batch, units)):
                rows = (offsets[:, None] + part).flatten().to(self.device)
                batch = {key: tree.index(column, rows) for key, column in flat.items()}
                yield batch | {RHS: tree.index(states, part.to(self.device)) if recurrent else states}

    def after_gradients(self, batch: Mapping[str, Any], info: dict[str, Tensor]) -> dict[str, Tensor]:
        """The next insert opens a new rollout."""
        self.step = 0
        return info

    def get_all_buffer_data(self, data_to_cpu: bool = False) -> dict[str, Tree]:
        """Copies of the L inserted steps, with row L of what has a "next" row; also the truncated successors."""
        return self._steps_from(0, torch.device("cpu") if data_to_cpu else self.device)

    def _steps_from(self, first: int, device: torch.device) -> dict[str, Tree]:
        data: dict[str, Tree] = {}
        for key, value in self.data.items():
            steps = slice(first, self.size + (key in _WITH_BOOTSTRAP))
            data[key] = tree.index(value, slice(None) if self._is_constant(key) else steps)
        if self._aside:
            places, obs, rhs = self._truncated()
            kept = places[:, 0] >= first  # type: ignore[index]
            moved = places - torch.tensor([first, 0], device=self.device)  # type: ignore[operator]
            data |= {key: tree.index(part, kept) for key, part in zip(_ASIDE, (moved, obs, rhs), strict=True)}
        return {key: tree.copy(value, device) for key, value in data.items()}

    def insert_data_slice(self, new_data: Mapping[str, Any]) -> None:
        """Replace everything by the rollout of another storage of the same kind."""
        self.reset()
        self.data = {}
        if not new_data:
            return
        self.size = len(tree.first_leaf(new_data[REW]))
        self.step = self.size if self.size < self.max_size else 0
        for key, value in new_data.items():
            if key not in _ASIDE:
                length = 1 if self._is_constant(key) else max(self.max_size, self.size) + 1
                self.data[key] = tree.allocate(tree.index(value, 0), length, device=self.device)
                tree.copy_into(self.data[key], slice(0, len(tree.first_leaf(value))), value)
        if _ASIDE[0] in new_data:
            self._aside = [tuple(tree.copy(new_data[key], self.device) for key in _ASIDE)]  # type: ignore[list-item]
        self.get_num_channels_obs({OBS: tree.index(self.data[OBS], 0)})

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {
            "aside": dict(zip(_ASIDE, self._truncated(), strict=True)) if self._aside else {},
            "int_reward_sums": self.int_reward_sums.get_state(),
            "int_reward_moments": self.int_reward_moments.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        aside = state["aside"]
        self._aside = [tuple(tree.copy(aside[key], self.device) for key in _ASIDE)] if aside else []  # type: ignore[list-item]
        self.int_reward_sums.set_state(state["int_reward_sums"])
        self.int_reward_moments.set_state(state["int_reward_moments"])

    def _set_parameter(self, name: str, value: Any) -> None:
        """``size`` keeps the newest rows that still fit."""
        if name != "size":
            super()._set_parameter(name, value)
            return
        self._refuse_if_too_large(value)
        self.max_size = value
        if self.data:
            full = self.step == 0  # or learned from: either way the next insert opens a new rollout
            self.insert_data_slice(self._steps_from(max(self.size - value, 0), self.device))
            self.step = 0 if full else self.step
