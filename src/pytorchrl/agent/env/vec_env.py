"""VecEnv: N environments behind one tensor interface, with episode statistics."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.env.serial import SerialEnvs
from pytorchrl.errors import ConfigError
from pytorchrl.keys import OBS2, TERMINAL
from pytorchrl.tree import Tree

EnvMaker = Callable[..., "gym.Env[Any, Any]"]


class Episode(NamedTuple):
    """A finished episode: which environment played it, its return and its length."""

    env: int
    ret: float
    length: int


class VecEnv:
    """N environments stepped together.

    Parameters
        env_fn: makes one environment; receives ``env_kwargs`` and those of index_col_worker, index_grad_worker,
            index_env and mode that it names.
        num_envs: N.
        device: where the tensors go.

    Tensors: observations ``[N, *shape]``; rewards, dones ``[N, 1]`` float32. ``step`` returns the observation to act on
    next, after the reset of an ended episode; ``info[OBS2]`` holds the true successors, ``info[TERMINAL]`` which
    transitions ended the MDP, ``info["episodes"]`` the finished episodes.
    """

    def __init__(
        self,
        env_fn: EnvMaker,
        num_envs: int,
        device: torch.device | str = "cpu",
        env_kwargs: Mapping[str, Any] | None = None,
        index_col_worker: int = 1,
        index_grad_worker: int = 1,
        mode: str = "train",
    ) -> None:
        self.num_envs = num_envs
        self.env_kwargs = dict(env_kwargs or {})
        self.device = torch.device(device)
        places = {"index_col_worker": index_col_worker, "index_grad_worker": index_grad_worker, "mode": mode}
        makers = [
            partial(env_fn, **self.env_kwargs, **_named_by(env_fn, places | {"index_env": i})) for i in range(num_envs)
        ]
        self.backend = SerialEnvs(makers, _name_of(env_fn))
        self.observation_space = self.backend.observations.space
        self.action_space = self.backend.actions.space
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)

    @classmethod
    def create_factory(
        cls, env_fn: EnvMaker, env_kwargs: Mapping[str, Any] | None = None, vec_env_size: int = 1
    ) -> tuple[Callable[..., VecEnv], gym.Space[Any], gym.Space[Any]]:
        """(make_vec_env, action_space, observation_space); make_vec_env(device, index_col_worker=1,
        index_grad_worker=1, mode="train") builds the vector where it is needed."""
        if isinstance(vec_env_size, bool) or vec_env_size < 1:
            raise ConfigError(f"vec_env_size: expected at least 1, got {vec_env_size}")
        probe = cls(env_fn, 1, env_kwargs=env_kwargs)
        spaces = probe.action_space, probe.observation_space
        probe.close()
        return partial(_make_vec_env, cls, env_fn, dict(env_kwargs or {}), vec_env_size), *spaces

    def reset(self, seeds: Sequence[int] | None = None) -> Tree:
        """Start a new episode everywhere, with one seed per environment if given."""
        self._returns[:], self._lengths[:] = 0, 0
        return self._tensor(self.backend.reset(seeds if seeds is not None else [None] * self.num_envs))

    def reset_single_env(self, i: int) -> Tree:
        """Start a new episode in environment ``i`` alone; returns that row."""
        self._returns[i], self._lengths[i] = 0, 0
        return self._tensor(self.backend.reset_single(i))

    def step(self, action: Tensor, active: Tensor | None = None) -> tuple[Tree, Tensor, Tensor, dict[str, Any]]:
        """(obs, reward, done, info) of one step; environments that are not ``active`` ``[N]`` stand still."""
        mask = None if active is None else active.cpu().numpy()
        step = self.backend.step(action.cpu().numpy(), mask)
        self._returns += step.reward
        self._lengths += 1 if mask is None else mask
        done = step.terminated | step.truncated
        observation = self._tensor(step.observation)
        ended = bool(done.any())
        info = {
            OBS2: self._tensor(step.successor) if ended else observation,
            TERMINAL: self._column(step.terminated),
            "episodes": self._finished(done) if ended else [],
        }
        return observation, self._column(step.reward), self._column(done), info

    def get_state(self) -> dict[str, Any] | None:
        """Everything that the environments are; None if they cannot be saved."""
        return None

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Put every environment back where it was saved."""

    def close(self) -> None:
        self.backend.close()

    def _finished(self, done: Any) -> list[Episode]:
        episodes = [Episode(int(i), float(self._returns[i]), int(self._lengths[i])) for i in np.flatnonzero(done)]
        self._returns[done], self._lengths[done] = 0, 0
        return episodes

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _column(self, array: Any) -> Tensor:
        return torch.from_numpy(array.astype(np.float32)[:, None]).to(self.device)


def _make_vec_env(
    cls: type[VecEnv],
    env_fn: EnvMaker,
    env_kwargs: Mapping[str, Any],
    size: int,
    device: torch.device | str,
    index_col_worker: int = 1,
    index_grad_worker: int = 1,
    mode: str = "train",
    num_envs: int | None = None,
) -> VecEnv:
    return cls(env_fn, num_envs or size, device, env_kwargs, index_col_worker, index_grad_worker, mode)


def _named_by(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the offered arguments that the function names itself."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in offered.items() if name in names}


def _name_of(env_fn: EnvMaker) -> str:
    if isinstance(env_fn, partial):
        return str(env_fn.args[0]) if env_fn.args else _name_of(env_fn.func)
    return getattr(env_fn, "__name__", type(env_fn).__name__)
