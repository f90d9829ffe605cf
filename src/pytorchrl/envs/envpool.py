"""EnvPool's threads as a Gymnasium vector environment with autoreset disabled.

A pool would reset an ended environment instead of its next step. Resetting it at once, alone, calls that off, so that
no ghost row exists. A pool's seeds are fixed when it is made: a reset with seeds makes a new one. Where a time limit
and a natural end fall together, EnvPool reports the limit alone; only its Atari games say more.
"""

from __future__ import annotations

import re
import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from pytorchrl.agent.env.backend import usable_cores
from pytorchrl.errors import ConfigError, suggestion

TINY = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")


class Pool(VectorEnv[Any, Any, Any]):
    """``num_envs`` environments of an EnvPool task."""

    def __init__(self, task: str, num_envs: int, **options: Any) -> None:
        import envpool

        if task not in envpool.list_all_envs():
            raise ConfigError(f"EnvPool has no '{task}'", suggestion(task, envpool.list_all_envs()))
        # Handing a step to another thread takes longer than the step itself where there is nothing to simulate.
        tiny = task in gym.registry and str(gym.spec(task).entry_point).startswith(TINY)
        options = {"num_threads": 1 if tiny else min(num_envs, usable_cores()), **options}
        self._make: Any = partial(envpool.make, task, env_type="gymnasium", num_envs=num_envs, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the precision of bounds, which is EnvPool's business
            try:
                spec: Any = envpool.make_spec(task, num_envs=num_envs, **options)
                spaces = spec.gymnasium_observation_space, spec.gymnasium_action_space
            except TypeError as error:
                raise ConfigError(f"EnvPool cannot make '{task}': {error}") from error
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._pool: Any = None
        self._rows: Any = None
        self._lives = np.zeros(num_envs, np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")
        if mask is not None:
            chosen = np.flatnonzero(mask).astype(np.int32)
            rows, info = self._pool.reset(chosen)
            self._rows = _put(self._rows, chosen, rows)
            self._lives[chosen] = info.get("lives", 0)
            return self._rows, {"lives": self._lives.copy()}
        if seed is not None or self._pool is None:
            seeds = np.random.SeedSequence().generate_state(self.num_envs) % 2**31 if seed is None else seed
            self._pool = self._make(seed=[int(number) for number in seeds])
        self._rows, info = self._pool.reset()
        self._lives[:] = info.get("lives", 0)
        return self._rows, {"lives": self._lives.copy()}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._rows, rewards, terminated, truncated, info = self._pool.step(actions)
        self._lives[:] = info.get("lives", 0)
        if "terminated" in info:
            terminated = terminated | info["terminated"].astype(bool)
        return self._rows, rewards, terminated, truncated, {"lives": self._lives.copy()}

    def close(self, **kwargs: Any) -> None:
        self._pool = None


def make(env_id: str, num_envs: int, **kwargs: Any) -> VectorEnv[Any, Any, Any]:
    """A pool of the environment that Gymnasium knows by this id."""
    return Pool(env_id, num_envs, **kwargs)


def make_atari(
    env_id: str,
    num_envs: int,
    *,
    frame_skip: int = 4,
    frame_stack: int = 4,
    screen_size: int = 84,
    noop_max: int = 30,
    life_loss: bool = False,
    clip_reward: bool = True,
    max_num_frames_per_episode: int = 108_000,
    **kwargs: Any,
) -> VectorEnv[Any, Any, Any]:
    """The games of ``atari.make`` in a pool; their random numbers are not the same."""
    from pytorchrl.envs.atari import Games, stickiness

    task = re.sub(r"^ALE/|(NoFrameskip|Deterministic|-ram)?-v\d+$", "", env_id) + "-v5"
    pool = Pool(
        task,
        num_envs,
        **{
            "repeat_action_probability": stickiness(env_id),
            "max_episode_steps": max_num_frames_per_episode // frame_skip,
            **kwargs,
        },
        frame_skip=frame_skip,
        stack_num=frame_stack,
        img_height=screen_size,
        img_width=screen_size,
        noop_max=noop_max,
        use_fire_reset=False,
    )
    return Games(pool, life_loss, clip_reward)


def _put(rows: Any, chosen: Any, new: Any) -> Any:
    """The rows with those of some environments replaced."""
    if isinstance(rows, dict):
        return {key: _put(value, chosen, new[key]) for key, value in rows.items()}
    rows = rows.copy()
    rows[chosen] = new
    return rows
