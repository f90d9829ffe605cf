"""N environments stepped one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from pytorchrl.agent.env.formats import ActionFormat, Array, ObservationFormat
from pytorchrl.errors import EnvError


class Step(NamedTuple):
    """What one step of N environments gave; rows of environments that were not stepped keep their last observation.

    ``observation`` is the one to act on next, after the reset of an ended episode; ``successor`` is the true one, and
    the same array where no episode ended.
    """

    observation: Array
    successor: Array
    reward: Array
    terminated: Array
    truncated: Array


class SerialEnvs:
    """The backend without processes: an ended environment is reset at once, so no ghost rows exist."""

    def __init__(self, makers: Sequence[Callable[[], gym.Env[Any, Any]]], name: str) -> None:
        self.name = name
        self.envs = [self._guard(i, "constructor", None, maker) for i, maker in enumerate(makers)]
        self.observations = ObservationFormat(self.envs[0].observation_space)
        self.actions = ActionFormat(self.envs[0].action_space)
        self._current: Array = self.observations.empty(len(self.envs))

    def reset(self, seeds: Sequence[int | None]) -> Array:
        """Start a new episode everywhere; a seed of None continues an environment's own stream."""
        for i, seed in enumerate(seeds):
            self._reset_one(i, seed)
        return self._current.copy()

    def reset_single(self, i: int) -> Array:
        """Start a new episode in environment ``i``."""
        self._reset_one(i, None)
        row: Array = self._current[i].copy()
        return row

    def step(self, actions: Array, active: Array | None) -> Step:
        """One step of every (active) environment."""
        count = len(self.envs)
        rewards = np.zeros(count, np.float32)
        terminated, truncated = np.zeros(count, bool), np.zeros(count, bool)
        current = self._current = self._current.copy()  # the last one was handed out
        ended = []
        for i, action in enumerate(self.actions.convert(actions)):
            if active is not None and not active[i]:
                continue
            # The guard written out: a call more per step would cost as much as stepping CartPole.
            try:
                observation, rewards[i], terminated[i], truncated[i], _ = self.envs[i].step(action)
                self.observations.write(current, i, observation)
            except Exception as error:
                raise self._env_error(i, "step", action, error) from error
            if terminated[i] or truncated[i]:
                ended.append(i)
        if not ended:
            return Step(current, current, rewards, terminated, truncated)
        successor = current.copy()
        for i in ended:
            self._reset_one(i, None)
        return Step(current, successor, rewards, terminated, truncated)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _reset_one(self, i: int, seed: int | None) -> None:
        # Gymnasium takes 32-bit seeds everywhere; ours have 63 bits.
        seed = None if seed is None else seed % 2**32
        observation, _ = self._guard(i, "reset", None, lambda: self.envs[i].reset(seed=seed))
        self._guard(i, "reset", None, lambda: self.observations.write(self._current, i, observation))

    def _guard(self, i: int, operation: str, action: Any, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            raise self._env_error(i, operation, action, error) from error

    def _env_error(self, i: int, operation: str, action: Any, error: Exception) -> EnvError:
        given = "" if action is None else f" on action {action!r}"
        return EnvError(
            f"{operation}{given} raised {type(error).__name__}: {error}",
            "The environment's own traceback stands above.",
            who=f"environment {i} ({self.name})",
        )
