"""Action masks: which actions an environment allows now, as the entry "action_mask" of its observation.

A mask has one number per discrete action, or per choice of all parts of a MultiDiscrete one behind the other; 0 rules
it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from pytorchrl.agent.env.formats import Array
from pytorchrl.errors import SpaceError
from pytorchrl.keys import ACTION_MASK


def choices_of(action_space: gym.Space[Any]) -> list[int]:
    """How many choices each part of a discrete action has."""
    if isinstance(action_space, spaces.Discrete):
        return [int(action_space.n)]
    if isinstance(action_space, spaces.MultiDiscrete):
        return [int(n) for n in action_space.nvec.reshape(-1)]
    raise SpaceError(f"no action masks for action space {action_space}", "Supported: Discrete, MultiDiscrete.")


def has_mask(observation_space: gym.Space[Any]) -> bool:
    """Whether observations say which actions are allowed."""
    return isinstance(observation_space, spaces.Dict) and ACTION_MASK in observation_space.spaces


def lacks_its_mask(env: gym.Env[Any, Any]) -> bool:
    """Whether the info of a reset has a mask that the observation has not."""
    _, info = env.reset()
    return ACTION_MASK in info and not has_mask(env.observation_space)


class MaskObservation(gym.Wrapper[Any, Any, Any, Any]):
    """``info["action_mask"]`` as an entry of the observation.

    Observations become a Dict: their own entries and the mask, or "observation" and the mask.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.count = sum(choices_of(env.action_space))
        entries = self._entries(env.observation_space)
        self.observation_space = spaces.Dict({**entries, ACTION_MASK: spaces.MultiBinary(self.count)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if (terminated or truncated) and ACTION_MASK not in info:  # no action follows
            info = {**info, ACTION_MASK: np.ones(self.count)}
        return self._with_mask(observation, info), reward, terminated, truncated, info

    def get_state(self) -> dict[str, Any]:
        """Nothing: the mask is part of the observation."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """There is nothing to set."""

    def _with_mask(self, observation: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        if ACTION_MASK not in info:
            raise ValueError(f"the info has no '{ACTION_MASK}', which it had at another reset")
        # One array, or one for each part of a MultiDiscrete action.
        mask = np.concatenate([np.ravel(part) for part in info[ACTION_MASK]])
        return {**self._entries(observation), ACTION_MASK: (mask != 0).astype(np.int8)}

    def _entries(self, value: Any) -> dict[str, Any]:
        """An observation, or the space of observations, by name."""
        inner = self.env.observation_space
        if isinstance(inner, spaces.Dict):
            return {key: value[key] for key in inner.spaces}
        if isinstance(inner, spaces.Tuple):
            return {str(i): part for i, part in enumerate(value)}
        return {"observation": value}


class MaskFormat:
    """The masks in rows of observations, if there are any; ``SpaceError`` if they do not fit the action space."""

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.present = has_mask(observation_space)
        if not self.present:
            return
        sizes, shape = choices_of(action_space), observation_space[ACTION_MASK].shape  # type: ignore[index]
        if shape != (sum(sizes),):
            raise SpaceError(
                f"the observation's '{ACTION_MASK}' has shape {shape}, and action space {action_space} has"
                f" {sum(sizes)} choices"
            )
        self._starts = np.cumsum([0, *sizes[:-1]])

    def first_without_choice(self, observations: Any) -> int | None:
        """The first row whose mask rules out every choice of some part of the action."""
        if not self.present:
            return None
        mask: Array = observations[ACTION_MASK]
        free = np.logical_or.reduceat(mask != 0, self._starts, axis=1).all(axis=1)
        return None if free.all() else int(np.flatnonzero(~free)[0])
