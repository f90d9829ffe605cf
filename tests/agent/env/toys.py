"""Environments for tests: scripted episodes, and every kind of misbehavior."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

# How the episodes of Script end, one after the other: (length, terminated, truncated).
ENDINGS = [(3, True, False), (5, False, True), (1, True, False), (4, True, True), (2, False, True)]


class Script(gym.Env[Any, Any]):
    """Episodes end as ENDINGS says; observations are random, and tell episode, step and last action."""

    def __init__(self, observation: str = "box", index_env: int = 0) -> None:
        self.kind = observation
        self.index_env = index_env
        box = spaces.Box(-np.inf, np.inf, (4,), np.float64)
        self.observation_space: gym.Space[Any] = {
            "box": box,
            "dict": spaces.Dict(state=box, place=spaces.Discrete(3), flags=spaces.MultiBinary(2)),
            "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
        }[observation]
        self.action_space = spaces.Discrete(3, start=1)
        self.episode, self.moves, self.last = -1, 0, 0

    def observe(self) -> Any:
        state = np.array([self.np_random.normal(), self.episode, self.moves, self.last])
        if self.kind == "box":
            return state
        if self.kind == "image":
            return np.full((8, 8, 3), int(abs(state[0]) * 100) % 256, np.uint8)
        return {"state": state, "place": self.moves % 3, "flags": np.array([self.moves % 2, 1], np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.moves, self.last = 0, 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        self.moves += 1
        self.last = int(action)
        length, terminated, truncated = ENDINGS[(self.episode + self.index_env) % len(ENDINGS)]
        ended = self.moves == length
        assert self.moves <= length, "stepped beyond the end"
        return self.observe(), self.moves + self.last / 10, ended and terminated, ended and truncated, {}


class UnpicklableError(Exception):
    """Needs arguments that pickle does not know of."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"deliberate: {reason}")


class Faulty(gym.Env[Any, Any]):
    """Misbehaves in one way, in environment ``who``, in ``where``, at its step ``when``.

    ``what``: raise, unpicklable, exit, kill, segfault, stop, loop, return (see ``value``).
    """

    def __init__(
        self,
        where: str = "",
        what: str = "raise",
        when: int = 0,
        who: int = 1,
        value: Any = None,
        index_env: int = 0,
        length: int = 10,
    ) -> None:
        self.index_env, self.where, self.what, self.when, self.value = index_env, where, what, when, value
        self.affected, self.moves, self.length = index_env == who, -1, length
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.perhaps("constructor")

    def perhaps(self, place: str) -> Any:
        """Misbehave if this is the place and the time; what to return then."""
        if not self.affected or place != self.where or (place == "step" and self.moves != self.when):
            return None
        if self.what == "raise":
            raise ValueError(f"deliberate, in {place}")
        if self.what == "unpicklable":

            class LocalError(UnpicklableError):
                pass

            raise LocalError(reason=place)
        if self.what == "exit":
            os._exit(7)
        if self.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.what == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        while self.what == "loop":
            time.sleep(0.01)
        return self.value

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.moves = -1
        given = self.perhaps("reset")
        return (np.zeros(2, np.float32), {}) if given is None else given

    def step(self, action: Any) -> Any:
        self.moves += 1
        given = self.perhaps("step")
        return (np.zeros(2, np.float32), 1.0, self.moves == self.length - 1, False, {}) if given is None else given

    def close(self) -> None:
        self.perhaps("close")


class Spaces(gym.Env[Any, Any]):
    """Any observation and action space: observations are samples, actions are checked."""

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any] | None = None) -> None:
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)
        self.observation: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.observation = self.observation_space.sample()
        return self.observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.observation = self.observation_space.sample()
        return self.observation, 0.0, False, False, {}


class Counter(gym.Env[Any, Any]):
    """Saves itself: the running sum of what was drawn."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, saves: bool = True) -> None:
        self.total, self.moves = 0.0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.moves = 0
        return np.array([self.total]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.moves += 1
        self.total += self.np_random.normal()
        return np.array([self.total]), self.total, self.moves == 7, False, {}


class SavingCounter(Counter):
    """Counter with the two methods of a snapshot."""

    def get_state(self) -> Any:
        return {"total": self.total, "moves": self.moves}

    def set_state(self, state: Any) -> None:
        self.total, self.moves = state["total"], state["moves"]
