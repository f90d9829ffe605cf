"""N environments stepped one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from pytorchrl.agent.env import snapshots
from pytorchrl.agent.env.actions import ActionFormat
from pytorchrl.agent.env.backend import LIFE_LOST, Step, env_error
from pytorchrl.agent.env.formats import Array, ObservationFormat, Rows
from pytorchrl.errors import ConfigError, EnvError

Maker = Callable[[], "gym.Env[Any, Any]"]

# Observations are looked at against the bounds of their space at every reset and in the first steps.
CHECKED_STEPS = 10


class SerialEnvs:
    """The backend without processes: an ended environment is reset at once, so no ghost rows exist.

    Parameters
        makers: one per environment.
        name: what messages call them.
        first: the index of the first one; the others follow.
        at: where the index of the environment being called is noted, for whoever watches from outside.
    """

    def __init__(self, makers: Sequence[Maker], name: str, first: int = 0, at: Any = None) -> None:
        self.name = name
        self.first = first
        self.at = [first] if at is None else at
        self.envs: list[gym.Env[Any, Any]] = []
        self.steps = 0
        try:
            for i, maker in enumerate(makers):
                self.envs.append(self.guard(i, "constructor", maker))
                self._check_kind(i)
            self.observations = ObservationFormat(self.envs[0].observation_space)
            self.actions = ActionFormat(self.envs[0].action_space)
        except Exception:
            self._close_all()
            raise
        self._current = self.observations.empty(len(self.envs))
        self._to_check = [CHECKED_STEPS] * len(self.envs)

    def reset(self, seeds: Sequence[int | None]) -> Rows:
        self._current = [array.copy() for array in self._current]  # the last ones were handed out
        for i, seed in enumerate(seeds):
            self._reset_one(i, seed)
        return self._current

    def reset_single(self, i: int) -> Rows:
        self._current = [array.copy() for array in self._current]
        self._reset_one(i, None)
        return self._current

    def step(self, actions: Array, active: Array | None) -> Step:
        count = len(self.envs)
        rewards = np.zeros(count, np.float32)
        terminated, truncated = np.zeros(count, bool), np.zeros(count, bool)
        current = self._current = [array.copy() for array in self._current]
        ended: list[int] = []
        lives: list[int] = []
        scores: dict[int, tuple[float, int]] = {}
        self.steps += 1
        at, write = self.at, self.observations.write
        for i, action in enumerate(self.actions.convert(actions)):
            if active is not None and not active[i]:
                continue
            at[0] = self.first + i
            # The guard written out: it is the hot path.
            try:
                observation, reward, ends, cut, info = self.envs[i].step(action)
                rewards[i] = float(reward)
                write(current, i, observation)
                if self._to_check[i]:
                    self._look(i, observation)
                if ends or cut:
                    (terminated if ends else truncated)[i] = True
                    ended.append(i)
                    if info.get(LIFE_LOST, False):
                        lives.append(i)
                    elif "episode" in info:
                        scores[i] = float(info["episode"]["r"]), int(info["episode"]["l"])
            except Exception as error:
                raise self._error(i, "step", action, error) from error
        if not ended:
            return Step(current, current, rewards, terminated, truncated, terminated, {})
        successor = [array.copy() for array in current]
        for i in ended:
            self._reset_one(i, None)
        over = terminated | truncated
        over[lives] = False
        return Step(current, successor, rewards, terminated, truncated, over, scores)

    def snapshot_support(self) -> str | None:
        return snapshots.snapshot_support(self.envs[0])

    def get_state(self) -> list[Any]:
        return [
            {
                "env": self.guard(i, "get_state", partial(snapshots.get_state, env)),
                "current": [array[i].copy() for array in self._current],
            }
            for i, env in enumerate(self.envs)
        ]

    def set_state(self, states: Sequence[Any]) -> Rows:
        self._current = [array.copy() for array in self._current]
        for i, (env, state) in enumerate(zip(self.envs, states, strict=True)):
            self.guard(i, "set_state", partial(snapshots.set_state, env, state["env"]))
            for array, row in zip(self._current, state["current"], strict=True):
                array[i] = row
        return self._current

    def close(self) -> None:
        failed = self._close_all()
        if failed is not None:
            raise failed

    def _close_all(self) -> EnvError | None:
        """Close every environment; what the first one raised."""
        failed: EnvError | None = None
        for i, env in enumerate(self.envs):
            try:
                self.guard(i, "close", env.close)
            except EnvError as error:
                failed = failed or error
        self.envs = []
        return failed

    def _reset_one(self, i: int, seed: int | None) -> None:
        # Gymnasium takes 32-bit seeds everywhere; ours have 63 bits.
        seed = None if seed is None else seed % 2**32

        def reset() -> None:
            observation, _ = self.envs[i].reset(seed=seed)
            self.observations.write(self._current, i, observation)
            self.observations.check(observation)

        self.guard(i, "reset", reset)

    def _look(self, i: int, observation: Any) -> None:
        self.observations.check(observation)
        self._to_check[i] -= 1

    def _check_kind(self, i: int) -> None:
        env: Any = self.envs[i]
        first = self.envs[0]
        if not isinstance(env, gym.Env):
            kind = "a vector environment" if isinstance(env, gym.vector.VectorEnv) else f"a {type(env).__name__}"
            raise ConfigError(
                f"{self.name} makes {kind}, not a gymnasium.Env",
                "For a vector environment use backend='vector'." if kind.startswith("a vector") else "",
            )
        if env.observation_space != first.observation_space or env.action_space != first.action_space:
            raise ConfigError(
                f"environment {self.first + i} ({self.name}) has other spaces than environment {self.first}:"
                f" {env.observation_space}, {env.action_space}"
            )

    def guard(self, i: int, operation: str, call: Callable[[], Any]) -> Any:
        """What a call into environment ``i`` returns; what it raises becomes an ``EnvError`` that names it."""
        self.at[0] = self.first + i
        try:
            return call()
        except Exception as error:
            raise self._error(i, operation, None, error) from error

    def _error(self, i: int, operation: str, action: Any, error: Exception) -> EnvError:
        return env_error(self.name, self.first + i, operation, action, error, self.steps)
