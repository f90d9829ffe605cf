"""MiniGrid: what the agent sees, and where it faces."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import FilterObservation


def make(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """The environment without its mission, which is text; make it yourself to wrap it otherwise."""
    return FilterObservation(gym.make(env_id, disable_env_checker=True, **kwargs), ["direction", "image"])
