"""One rollout with discounted returns; the base of the on-policy storages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.base import Sample, Storage
from pytorchrl.errors import ConfigError, RLError
from pytorchrl.functional.returns import discounted_returns, normalize
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
from pytorchrl.memory import refuse_if_too_large
from pytorchrl.parameters import PositiveInt
from pytorchrl.tree import Tree

# Row t of these is "now" and row t+1 "next".
_NOW_AND_NEXT = ((OBS, OBS2), (RHS, RHS2), (DONE, DONE2))
# What one transition brings beside them.
_TRANSITION = (ACT, REW, TERMINAL, VAL, LOGP, IVAL)
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
        if envs is not None:
            row = math.prod(envs.observation_space.shape) * envs.observation_space.dtype.itemsize
            refuse_if_too_large(size * envs.num_envs * row, f"{type(self).__name__} of size {size}")

    def init_tensors(self, sample: Sample) -> None:
        """Lazy allocation from a first transition, working keys included."""
        rows = self.max_size + 1
        self.data = {}
        for now, _ in _NOW_AND_NEXT:
            # The hidden states of a feed-forward actor are zeros: one row stands for all.
            length = 1 if now == RHS and not self.actor.is_recurrent else rows
            self.data[now] = tree.allocate(sample[now], length, device=self.device)
        for key in _TRANSITION:
            if key in sample:
                self.data[key] = tree.allocate(sample[key], rows, device=self.device)
        derived = {RET: REW, ADV: REW} | ({IREW: REW, IRET: REW, IADV: REW} if IVAL in sample else {})
        for key, like in derived.items():
            self.data[key] = tree.allocate(sample[like], rows, device=self.device)
        self.get_num_channels_obs(sample)

    def get_num_channels_obs(self, sample: Sample) -> None:
        """Channels of a single frame: the first feature axis over the frame stack; 1 for vectors and dicts."""
        obs = sample[OBS]
        stacked = obs.shape[1] if isinstance(obs, Tensor) and obs.dim() > 2 else self.frame_stack
        self.num_channels_obs = stacked // self.frame_stack

    def insert_transition(self, sample: Sample) -> None:
        """Write the transition to row ``step``, and what followed it to the next row.

        The next insert puts there what was acted on, another observation if the episode ended; the true successors of
        truncated transitions are kept aside.
        """
        if not self.data:
            self.init_tensors(sample)
        if self.step == 0:
            self.reset()
        t = self.step
        for now, following in _NOW_AND_NEXT:
            if now == RHS and not self.actor.is_recurrent:
                continue
            tree.copy_into(self.data[now], t, sample[now])
            tree.copy_into(self.data[now], t + 1, sample[following])
        for key in _TRANSITION:
            if key in self.data:
                tree.copy_into(self.data[key], t, sample[key])
        truncated = (sample[DONE2] > sample[TERMINAL]).flatten()
        if truncated.any():
            rows = truncated.nonzero().flatten()
            places = torch.stack([torch.full_like(rows, t), rows], dim=1)
            self._aside.append((places, tree.index(sample[OBS2], rows), tree.index(sample[RHS2], rows)))
        self.step = (self.step + 1) % self.max_size
        self.size += 1

    def reset(self) -> None:
        super().reset()
        self._aside = []

    def before_gradients(self) -> None:
        """Bootstrap values, returns and advantages of the rows that were inserted."""
        if self.size == 0:
            raise RLError("no transitions to learn from", "Insert at least one before before_gradients().")
        L = self.size
        values: Tensor = self.data[VAL]  # type: ignore[assignment]
        values[L] = self._value(*(tree.index(self.data[key], self._row(key, L)) for key in (OBS, RHS, DONE)))
        self.compute_returns(
            self._rewards_with_truncation_values()[:L],
            self.data[RET][: L + 1],  # type: ignore[index]
            values[: L + 1],
            self.data[DONE][: L + 1],  # type: ignore[index]
            self.algorithm.gamma,  # type: ignore[union-attr]
        )
        advantages = self.compute_advantages(self.data[RET][: L + 1], values[: L + 1])  # type: ignore[index]
        self.data[ADV][:L] = advantages

    def _row(self, key: str, t: int) -> int:
        return 0 if key == RHS and not self.actor.is_recurrent else t

    @torch.no_grad()
    def _value(self, obs: Tree, rhs: Tree, done: Tree) -> Tensor:
        return self.actor.get_value(obs, rhs, done)["value_net1"]  # type: ignore[no-any-return,arg-type]

    def _rewards_with_truncation_values(self) -> Tensor:
        """r̃_t = r_t + γ·V(true successor) where an episode was cut off, else r_t: the one-mask form of a truncation."""
        rewards: Tensor = self.data[REW].clone()  # type: ignore[union-attr]
        if self._aside:
            places, obs, rhs = self._truncated()
            time, env = places.unbind(1)  # type: ignore[union-attr]
            value = self._value(obs, rhs, torch.zeros(len(time), 1, device=self.device))
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

    def generate_batches(
        self,
        num_mini_batch: int | None,
        mini_batch_size: int | None,
        num_epochs: int = 1,
        shuffle: bool = True,
    ) -> Iterator[dict[str, Tree]]:
        """Every row once per epoch, in ``num_mini_batch`` parts whose sizes differ by at most one.

        Rows are flattened time-major, i = t·N + n. ``mini_batch_size`` counts only if ``num_mini_batch`` is None.
        """
        L = self.size
        flat = {key: value if self._row(key, 1) == 0 else tree.flatten_time(value, L) for key, value in self._columns()}
        rows = L * tree.first_leaf(self.data[REW]).shape[1]
        if num_mini_batch is None:
            if mini_batch_size is None:
                raise ConfigError("generate_batches needs num_mini_batch or mini_batch_size")
            num_mini_batch = math.ceil(rows / mini_batch_size)
        for _ in range(num_epochs):
            order = torch.randperm(rows, generator=self.generator) if shuffle else torch.arange(rows)
            for part in order.to(self.device).tensor_split(min(num_mini_batch, rows)):
                yield {
                    key: tree.tree_map(lambda column: column.index_select(0, part), column)  # noqa: B023
                    if key != RHS
                    else tree.index(column, 0)
                    for key, column in flat.items()
                }

    def _columns(self) -> Iterator[tuple[str, Tree]]:
        """The allocated tensors of the documented keys, and who ended the MDP."""
        for key in (*self.storage_tensors, TERMINAL):
            if key in self.data:
                yield key, self.data[key]

    def after_gradients(self, batch: Mapping[str, Any], info: dict[str, Tensor]) -> dict[str, Tensor]:
        """The next insert opens a new rollout."""
        self.step = 0
        return info

    def get_all_buffer_data(self, data_to_cpu: bool = False) -> dict[str, Tree]:
        """The L inserted steps, and row L of what has a "next" row; also the truncated successors."""
        following = {now for now, _ in _NOW_AND_NEXT}
        data: dict[str, Any] = {}
        for key, value in self.data.items():
            length = self.size + 1 if key in following or key in (VAL, RET, IVAL, IRET) else self.size
            data[key] = tree.index(value, slice(0, length))
        if self._aside:
            data |= zip(_ASIDE, self._truncated(), strict=True)
        return {key: tree.to(value, "cpu") for key, value in data.items()} if data_to_cpu else data

    def insert_data_slice(self, new_data: Mapping[str, Any]) -> None:
        """Replace everything by the rollout of another storage of the same kind."""
        self.size = len(tree.first_leaf(new_data[REW]))
        self.step = self.size % self.max_size
        self.data = {}
        for key, value in new_data.items():
            if key in _ASIDE:
                continue
            example = tree.index(value, 0)
            length = 1 if self._row(key, 1) == 0 else max(self.max_size, self.size) + 1
            self.data[key] = tree.allocate(example, length, device=self.device)
            tree.copy_into(self.data[key], slice(0, len(tree.first_leaf(value))), tree.to(value, self.device))
        aside = tuple(tree.to(new_data[key], self.device) for key in _ASIDE if key in new_data)
        self._aside = [aside] if aside else []  # type: ignore[list-item]

    def get_state(self) -> dict[str, Any]:
        aside = dict(zip(_ASIDE, self._truncated(), strict=True)) if self._aside else {}
        return super().get_state() | {"aside": aside}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._aside = [tuple(state["aside"][key] for key in _ASIDE)] if state["aside"] else []

    def _set_parameter(self, name: str, value: Any) -> None:
        """``size`` keeps the newest rows that still fit."""
        if name != "size":
            super()._set_parameter(name, value)
            return
        if not self.data:
            self.max_size = value
            return
        dropped = max(self.size - value, 0)
        kept = self.get_all_buffer_data()
        for key, tensor in kept.items():
            if key not in _ASIDE and self._row(key, 1) != 0:
                kept[key] = tree.index(tensor, slice(dropped, None))
        if self._aside:
            places: Tensor = kept[_ASIDE[0]]  # type: ignore[assignment]
            still = places[:, 0] >= dropped
            kept |= {key: tree.index(kept[key], still) for key in _ASIDE}
            kept[_ASIDE[0]] = places[still] - torch.tensor([dropped, 0], device=places.device)
        self.max_size = value
        self.insert_data_slice(kept)
