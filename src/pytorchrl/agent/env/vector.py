"""N environments inside one of Gymnasium's vector environments, whatever its autoreset mode.

SAME_STEP hands over successor and next first observation together. In NEXT_STEP and DISABLED an ended environment is
reset at once with ``reset(options={"reset_mask": ended})``, which also calls off the reset that NEXT_STEP would make
in the next step: there is no ghost row to hide. A vector that cannot reset some of its environments alone is refused
the first time that it matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from pytorchrl.agent.env.actions import ActionFormat
from pytorchrl.agent.env.backend import LIFE_LOST, Step
from pytorchrl.agent.env.formats import Array, ObservationFormat, Rows
from pytorchrl.agent.env.masks import has_mask
from pytorchrl.errors import ConfigError, EnvError
from pytorchrl.keys import ACTION_MASK


class VectorEnvs:
    """The backend over a ``gymnasium.vector.VectorEnv``.

    An inactive environment plays on unseen, since a vector steps all of its environments; it has to be reset before it
    is active again.
    """

    def __init__(self, vector: Any, name: str, num_envs: int) -> None:
        self.name = name
        if not isinstance(vector, VectorEnv):
            raise ConfigError(f"{name} makes a {type(vector).__name__}, not a gymnasium.vector.VectorEnv")
        if vector.num_envs != num_envs:
            raise ConfigError(f"{name} makes {vector.num_envs} environments, and {num_envs} were asked for")
        self.vector: VectorEnv[Any, Any, Any] = vector
        self.mode = AutoresetMode(vector.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self.observations = ObservationFormat(vector.single_observation_space)
        self.actions = ActionFormat(vector.single_action_space)
        self._count = num_envs
        self._current = self.observations.empty(num_envs)
        # Environments that play on unseen, and whether there are any.
        self._unseen, self._hiding = np.zeros(num_envs, bool), False
        self._checked = False
        self._steps = 0

    def reset(self, seeds: Sequence[int | None]) -> Rows:
        self._unseen[:] = self._hiding = False
        try:
            observations, info = self._reset_all(seeds)
            self._current = self.observations.batch(observations)
        except Exception as error:
            raise self._error("reset", error) from error
        if ACTION_MASK in info and not has_mask(self.observations.space):
            raise ConfigError(
                f"{self.name} gives its action masks in the info of a vector environment, where they are not read",
                "Use --backend sync or async, or make them an entry of a Dict observation.",
            )
        return self._current

    def reset_single(self, i: int) -> Rows:
        mask = np.zeros(self._count, bool)
        mask[i] = True
        self._unseen[i] = False
        self._current = [array.copy() for array in self._current]
        self._reset_some(mask)
        return self._current

    def step(self, actions: Array, active: Array | None) -> Step:
        if self._hiding:
            self._refuse_return(active)
        self._steps += 1
        before = self._current
        try:
            observations, rewards, terminated, truncated, info = self.vector.step(self.actions.batch(actions))
            self._current = self.observations.batch(observations)
            rewards = np.array(rewards, np.float32)
            terminated = np.array(terminated, bool)
            truncated = np.array(truncated, bool)
        except Exception as error:
            raise self._error("step", error) from error
        ended = terminated | truncated
        if not ended.any():
            step = Step(self._current, self._current, rewards, terminated, truncated, ended, {})
        else:
            step = self._end(rewards, terminated, truncated & ~terminated, info)
        return step if active is None else self._hide(step, ~active, before)

    def snapshot_support(self) -> str | None:
        return "a vector environment cannot be saved"

    def get_state(self) -> list[Any]:
        raise NotImplementedError(self.snapshot_support())

    def set_state(self, states: Sequence[Any]) -> Rows:
        raise NotImplementedError(self.snapshot_support())

    def close(self) -> None:
        try:
            self.vector.close()
        except Exception as error:
            raise self._error("close", error) from error

    def _end(self, rewards: Array, terminated: Array, truncated: Array, info: dict[str, Any]) -> Step:
        """Successors and next observations of a step in which something ended."""
        over = (terminated | truncated) & ~np.asarray(info.get(LIFE_LOST, False))
        final = info.get("final_info", info) if self.mode is AutoresetMode.SAME_STEP else info
        successor = self._current
        if self.mode is AutoresetMode.SAME_STEP:
            if over.any():
                successor = [array.copy() for array in self._current]
                self._write_final(successor, over, info)
        else:
            self._current = [array.copy() for array in self._current]
            if over.any():
                self._reset_some(over)
        if successor is self._current:  # lives were lost, and nothing was reset
            successor = list(self._current)
        return Step(self._current, successor, rewards, terminated, truncated, over, _scores(final, over))

    def _write_final(self, successor: Rows, ended: Array, info: dict[str, Any]) -> None:
        try:
            final = info["final_obs"]
            if isinstance(final, np.ndarray) and final.dtype == object:
                for i in np.flatnonzero(ended).tolist():
                    self.observations.write(successor, i, final[i])
                return
            for array, rows in zip(successor, self.observations.batch(final), strict=True):
                array[ended] = rows[ended]
        except Exception as error:
            raise self._error("step", error) from error

    def _reset_some(self, mask: Array) -> None:
        """New episodes where the mask says so, written into the current rows."""
        try:
            observations, _ = self.vector.reset(options={"reset_mask": mask.copy()})
            rows = self.observations.batch(observations)
        except Exception as error:
            raise self._error("reset of ended environments", error) from error
        if not self._checked and not mask.all():
            self._check_others(rows, ~mask)
        for array, new in zip(self._current, rows, strict=True):
            array[mask] = new[mask]

    def _check_others(self, rows: Rows, others: Array) -> None:
        for array, new in zip(self._current, rows, strict=True):
            if not np.array_equal(array[others], new[others], equal_nan=array.dtype.kind == "f"):
                raise ConfigError(
                    f"{type(self.vector.unwrapped).__name__} resets all environments where only some have ended",
                    "Make it with autoreset_mode=SAME_STEP, or use --backend sync or async.",
                )
        self._checked = True

    def _reset_all(self, seeds: Sequence[int | None]) -> Any:
        # One seed each where the vector takes them; otherwise the first one for all, as Gymnasium prescribes.
        seed: Any = seeds[0]
        inner = self.vector.unwrapped
        if seed is not None:
            numbers = [None if number is None else number % 2**31 for number in seeds]
            if isinstance(inner, (SyncVectorEnv, AsyncVectorEnv)):
                seed = [number and number % 2**32 for number in seeds]
            elif type(inner).__module__ in ("ale_py.vector_env", "pytorchrl.envs.envpool"):
                seed = np.array(numbers)
            else:
                seed = numbers[0]
        return self.vector.reset(seed=seed)

    def _refuse_return(self, active: Array | None) -> None:
        resumed = self._unseen if active is None else self._unseen & active
        for i in np.flatnonzero(resumed).tolist():
            raise EnvError(
                "it played on while it was not active",
                "Call reset_single_env first, or use --backend sync or async.",
                f"environment {i} ({self.name})",
            )

    def _hide(self, step: Step, hidden: Array, before: Rows) -> Step:
        """The step without the environments that play on unseen."""
        self._unseen |= hidden
        self._hiding = True
        self._current = [array.copy() for array in step.observation]
        successor = [array.copy() for array in step.successor]
        for array, after, old in zip(self._current, successor, before, strict=True):
            array[hidden] = after[hidden] = old[hidden]
        scores = {i: score for i, score in step.scores.items() if not hidden[i]}
        shown = [np.where(hidden, np.zeros_like(values), values) for values in step[2:6]]
        reward, terminated, truncated, over = shown
        return Step(self._current, successor, reward, terminated, truncated, over, scores)

    def _error(self, operation: str, error: Exception) -> EnvError:
        return EnvError(
            f"{operation} raised {type(error).__name__}: {error}",
            "The environment's own traceback stands above.",
            f"vector of {self._count} environments ({self.name})",
            f"step {self._steps}",
        )


def _scores(info: dict[str, Any], over: Array) -> dict[int, tuple[float, int]]:
    """What Gymnasium's RecordEpisodeStatistics noted about finished episodes, if it is there."""
    episode = info.get("episode")
    if episode is None:
        return {}
    known = over & np.asarray(info.get("_episode", True))
    return {i: (float(episode["r"][i]), int(episode["l"][i])) for i in np.flatnonzero(known).tolist()}
