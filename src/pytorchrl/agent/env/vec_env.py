"""VecEnv: N environments behind one tensor interface, with episode statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.env.choice import (
    DEADLINE,
    EnvFunction,
    Places,
    check_backend,
    choose,
    make_backend,
    name_of,
    needs_its_mask_observed,
)
from pytorchrl.agent.env.formats import Array, Rows
from pytorchrl.agent.env.masks import MaskFormat
from pytorchrl.errors import CheckpointError, ConfigError, EnvError
from pytorchrl.guards import require_finite
from pytorchrl.keys import OBS2, TERMINAL
from pytorchrl.tree import Tree


class Episode(NamedTuple):
    """A finished episode: which environment played it, its return and its length."""

    env: int
    ret: float
    length: int


class VecEnv:
    """N environments stepped together.

    Parameters
        env_fn: makes one environment; receives ``env_kwargs`` and those of index_col_worker, index_grad_worker,
            index_env and mode that it names. For backend "vector" it may make a vector environment of ``num_envs``.
        num_envs: N.
        device: where the tensors go.
        backend: what runs them: sync (this process), async (worker processes), vector (a Gymnasium vector
            environment) or envpool.
        workers: processes of the async backend; by default one per core, at most N.
        deadline: seconds that any call into a worker process may take; 0 waits for ever.
        masked: whether ``info["action_mask"]`` becomes an entry of the observation, unless it is one already;
            ``create_factory`` looks into the info of a trial.

    Tensors: observations ``[N, *shape]``, or dicts of such; rewards, dones ``[N, 1]`` float32. ``step`` returns the
    observation to act on next, after the reset of an ended episode; ``info[OBS2]`` holds the true successors,
    ``info[TERMINAL]`` which transitions ended the MDP, ``info["episodes"]`` the finished episodes.
    """

    def __init__(
        self,
        env_fn: EnvFunction,
        num_envs: int,
        device: torch.device | str = "cpu",
        env_kwargs: Mapping[str, Any] | None = None,
        index_col_worker: int = 1,
        index_grad_worker: int = 1,
        mode: str = "train",
        *,
        backend: str = "sync",
        workers: int | None = None,
        deadline: float = DEADLINE,
        backend_reason: str = "as asked",
        masked: bool = False,
    ) -> None:
        self.name = name_of(env_fn)
        self.num_envs = num_envs
        self.env_kwargs = dict(env_kwargs or {})
        self.device = torch.device(device)
        self.index_col_worker = index_col_worker
        self._on_cpu = self.device.type == "cpu"
        self.backend_name = check_backend(backend)
        self.backend_reason = backend_reason
        places = Places(index_col_worker, index_grad_worker, mode)
        self.backend = make_backend(backend, env_fn, self.env_kwargs, num_envs, places, workers, deadline, masked)
        self.observation_space = self.backend.observations.space
        self.action_space = self.backend.actions.space
        self._masks = MaskFormat(self.observation_space, self.action_space)
        self.steps = 0
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)

    @classmethod
    def create_factory(
        cls,
        env_fn: EnvFunction,
        env_kwargs: Mapping[str, Any] | None = None,
        vec_env_size: int = 1,
        *,
        backend: str = "auto",
        workers: int | None = None,
        deadline: float = DEADLINE,
    ) -> tuple[Callable[..., VecEnv], gym.Space[Any], gym.Space[Any]]:
        """(make_vec_env, action_space, observation_space); make_vec_env(device, index_col_worker=1,
        index_grad_worker=1, mode="train") builds the vector where it is needed.

        Backend "auto" times a few steps of one environment and takes processes if they pay off.
        """
        if isinstance(vec_env_size, bool) or vec_env_size < 1:
            raise ConfigError(f"vec_env_size: expected at least 1, got {vec_env_size}")
        chosen, reason = backend, "as asked"
        if backend == "auto":
            chosen, reason = choose(env_fn, dict(env_kwargs or {}), vec_env_size)
        options: dict[str, Any] = {
            "backend": chosen,
            "backend_reason": reason,
            "workers": workers,
            "deadline": deadline,
            "masked": needs_its_mask_observed(chosen, env_fn, dict(env_kwargs or {})),
        }
        # A function may make vectors of one size only.
        probe = cls(env_fn, vec_env_size if chosen == "vector" else 1, env_kwargs=env_kwargs, **options)
        spaces = probe.action_space, probe.observation_space
        probe.close()
        return partial(_make_vec_env, cls, env_fn, dict(env_kwargs or {}), vec_env_size, options), *spaces

    def reset(self, seeds: Sequence[int] | None = None) -> Tree:
        """Start a new episode everywhere, with one seed per environment if given."""
        if seeds is not None and len(seeds) != self.num_envs:
            raise ConfigError(f"seeds: expected {self.num_envs}, got {len(seeds)}")
        self._returns[:], self._lengths[:] = 0, 0
        rows = self.backend.reset(seeds if seeds is not None else [None] * self.num_envs)
        self._require_finite("observation", rows)
        return self._acted_on(rows)

    def reset_single_env(self, i: int) -> Tree:
        """Start a new episode in environment ``i`` alone; returns that row."""
        self._returns[i], self._lengths[i] = 0, 0
        row = [rows[i] for rows in self.backend.reset_single(i)]
        self._require_finite("observation", [array[None] for array in row])
        return self._tree(row)

    def step(self, action: Tensor, active: Tensor | None = None) -> tuple[Tree, Tensor, Tensor, dict[str, Any]]:
        """(obs, reward, done, info) of one step; environments that are not ``active`` ``[N]`` stand still."""
        mask = None if active is None else active.cpu().numpy()
        actions = action.cpu().numpy()
        self._require_finite("action", [actions])
        step = self.backend.step(actions, mask)
        self.steps += 1
        self._require_finite("reward", [step.reward])
        self._require_finite("observation", step.successor)
        self._returns += step.reward
        self._lengths += 1 if mask is None else mask
        observation = self._acted_on(step.observation)
        reward = self._tensor(step.reward[:, None])
        if step.successor is step.observation:
            nothing = self._tensor(np.zeros((self.num_envs, 1), np.float32))
            return observation, reward, nothing, {OBS2: observation, TERMINAL: nothing, "episodes": []}
        self._require_finite("observation", step.observation)
        info = {
            OBS2: self._tree(step.successor),
            TERMINAL: self._column(step.terminated),
            "episodes": self._finished(step.over, step.scores),
        }
        return observation, reward, self._column(step.terminated | step.truncated), info

    def _require_finite(self, field: str, rows: Rows) -> None:
        """Stop NaN and infinity at the border, on their way in and on their way out."""
        for part in rows:
            require_finite(part, field, self.name, self.steps)

    def snapshot_support(self) -> str | None:
        """None if the environments can be saved in the middle of an episode, else the reason why not."""
        return self.backend.snapshot_support()

    def get_state(self) -> dict[str, Any] | None:
        """Everything that the environments are, open episodes included; None if they cannot be saved."""
        if self.snapshot_support() is not None:
            return None
        counts = {"returns": self._returns.copy(), "lengths": self._lengths.copy(), "steps": self.steps}
        return {"envs": self.backend.get_state(), **counts}

    def set_state(self, state: Mapping[str, Any]) -> Tree:
        """Put every environment back where it was saved; returns the observation to act on."""
        reason = self.snapshot_support()
        if reason is not None or len(state["envs"]) != self.num_envs:
            reason = reason or f"{len(state['envs'])} were saved, and there are {self.num_envs}"
            raise CheckpointError(f"the environments cannot be restored: {reason}")
        self._returns[:], self._lengths[:], self.steps = state["returns"], state["lengths"], state["steps"]
        return self._tree(self.backend.set_state(state["envs"]))

    def close(self) -> None:
        """Close every environment and process; may be called more than once."""
        self.backend.close()

    def _finished(self, over: Array, scores: Mapping[int, tuple[float, int]]) -> list[Episode]:
        episodes = []
        for i in np.flatnonzero(over).tolist():
            ret, length = scores.get(i, (float(self._returns[i]), int(self._lengths[i])))
            episodes.append(Episode(i, ret, length))
            self._returns[i], self._lengths[i] = 0, 0
        return episodes

    def _acted_on(self, rows: Rows) -> Tree:
        """Observations that an action follows: each must allow one."""
        stuck = self._masks.first_without_choice(self.backend.observations.tree(rows))
        if stuck is not None:
            raise EnvError(
                "its action mask allows no action",
                "Let it allow one, or end the episode in the step before.",
                f"environment {stuck} ({self.name})",
                f"step {self.steps}",
            )
        return self._tree(rows)

    def _tree(self, rows: Rows) -> Tree:
        return self.backend.observations.tree([self._tensor(array) for array in rows])

    def _column(self, flags: Array) -> Tensor:
        return self._tensor(flags[:, None].astype(np.float32))

    def _tensor(self, array: Array) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self._on_cpu else tensor.to(self.device)


def _make_vec_env(
    cls: type[VecEnv],
    env_fn: EnvFunction,
    env_kwargs: Mapping[str, Any],
    size: int,
    options: Mapping[str, Any],
    device: torch.device | str,
    index_col_worker: int = 1,
    index_grad_worker: int = 1,
    mode: str = "train",
    num_envs: int | None = None,
) -> VecEnv:
    return cls(env_fn, num_envs or size, device, env_kwargs, index_col_worker, index_grad_worker, mode, **options)
