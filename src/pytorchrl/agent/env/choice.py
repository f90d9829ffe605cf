"""Which backend runs the environments, and how it is made."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym

from pytorchrl.agent.env.backend import Backend
from pytorchrl.agent.env.serial import SerialEnvs
from pytorchrl.errors import ConfigError, suggestion

EnvFunction = Callable[..., Any]

BACKENDS = ("sync", "async", "vector", "envpool")
# Seconds that any call into a worker process may take.
DEADLINE = 300.0
# Processes pay off for steps that take longer than this, in seconds.
WORTH_A_PROCESS = 1e-3
TRIAL_STEPS, TRIAL_SECONDS = 50, 0.5


class Places(NamedTuple):
    """Where a vector runs: offered to environment functions that name any of it."""

    index_col_worker: int = 1
    index_grad_worker: int = 1
    mode: str = "train"


def check_backend(name: str) -> str:
    """The name, if there is such a backend."""
    if name not in BACKENDS:
        raise ConfigError(f"unknown backend '{name}'", suggestion(name, BACKENDS))
    return name


def make_backend(
    backend: str,
    env_fn: EnvFunction,
    env_kwargs: Mapping[str, Any],
    num_envs: int,
    places: Places,
    workers: int | None,
    deadline: float,
) -> Backend:
    """``num_envs`` environments on the backend of that name."""
    name, offered = name_of(env_fn), places._asdict()
    makers = [partial(env_fn, **env_kwargs, **named_by(env_fn, offered | {"index_env": i})) for i in range(num_envs)]
    return SerialEnvs(makers, name)


def choose(env_fn: EnvFunction, env_kwargs: Mapping[str, Any], num_envs: int) -> tuple[str, str]:
    """(backend, why) for "auto"; sync and async give the same data, so that the choice is one of speed alone."""
    return "sync", ""


def named_by(function: EnvFunction, offered: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the offered arguments that the function names itself."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in offered.items() if name in names}


def name_of(env_fn: EnvFunction) -> str:
    """What messages call the environments of a function."""
    if isinstance(env_fn, partial):
        return str(env_fn.args[0]) if env_fn.args else name_of(env_fn.func)
    return getattr(env_fn, "__name__", type(env_fn).__name__)
