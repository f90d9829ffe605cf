"""Any environment of Gymnasium's registry."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym

from pytorchrl.errors import ConfigError, suggestion


def make(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """``gymnasium.make`` without its per-step checks: ours are made once, at the border."""
    return gym.make(env_id, disable_env_checker=True, **kwargs)


def env_maker(env_id: str) -> Callable[..., gym.Env[Any, Any]]:
    """A maker of the environment; ``ConfigError`` names the nearest id if there is none."""
    if ":" not in env_id and env_id not in gym.registry:
        known = _current_ids()
        bare = re.sub(r"-v\d+$", "", env_id)
        same = [candidate for candidate in known if re.sub(r"-v\d+$", "", candidate) == bare]
        hint = f"Did you mean '{same[-1]}'?" if same else suggestion(env_id, known)
        raise ConfigError(f"unknown environment '{env_id}'", hint)
    return partial(make, env_id)


def _current_ids() -> list[str]:
    return [env_id for env_id in gym.registry if not env_id.startswith(("phys2d", "tabular", "GymV"))]
