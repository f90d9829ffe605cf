"""Which backend runs the environments, and how it is made."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import gymnasium as gym

from pytorchrl.agent.env.backend import Backend, usable_cores
from pytorchrl.agent.env.masks import MaskObservation, has_mask, lacks_its_mask
from pytorchrl.agent.env.parallel import AsyncEnvs
from pytorchrl.agent.env.serial import SerialEnvs
from pytorchrl.agent.env.vector import VectorEnvs
from pytorchrl.envs.gymnasium import EnvMaker
from pytorchrl.errors import ConfigError, EnvError, RLError, suggestion

EnvFunction = Callable[..., Any]

BACKENDS = ("sync", "async", "vector", "envpool")
# Seconds that any call into a worker process may take.
DEADLINE = 300.0
# Processes pay off for steps that take longer than this, in milliseconds.
WORTH_A_PROCESS = 1.0
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
    masked: bool,
) -> Backend:
    """``num_envs`` environments on the backend of that name; ``masked``: with the masks of their infos observed."""
    name, offered = name_of(env_fn), places._asdict()
    if backend in ("vector", "envpool"):
        whole = {**offered, "num_envs": num_envs}
        return VectorEnvs(_make_vector(backend, env_fn, env_kwargs, whole), name, num_envs)
    makers = [partial(env_fn, **env_kwargs, **named_by(env_fn, {**offered, "index_env": i})) for i in range(num_envs)]
    if masked:
        makers = [partial(_observe_mask, maker) for maker in makers]
    return SerialEnvs(makers, name) if backend == "sync" else AsyncEnvs(makers, name, workers, deadline)


def _observe_mask(maker: Callable[[], gym.Env[Any, Any]]) -> gym.Env[Any, Any]:
    env = maker()
    return env if has_mask(env.observation_space) else MaskObservation(env)


def needs_its_mask_observed(backend: str, env_fn: EnvFunction, env_kwargs: Mapping[str, Any]) -> bool:
    """Whether an environment of the function says in its info, and there alone, which actions are allowed.

    A trial environment is made and reset. If that fails it will fail again, in an environment that can be named.
    """
    if backend in ("vector", "envpool"):
        return False
    try:
        with closing(_trial_env(env_fn, env_kwargs)) as env:
            return isinstance(env, gym.Env) and lacks_its_mask(env)
    except Exception:  # noqa: BLE001  the environment's fault: it will be named when the vector is made
        return False


def _trial_env(env_fn: EnvFunction, env_kwargs: Mapping[str, Any]) -> Any:
    return env_fn(**env_kwargs, **named_by(env_fn, {**Places()._asdict(), "index_env": 0}))


def _make_vector(backend: str, env_fn: EnvFunction, env_kwargs: Mapping[str, Any], offered: Mapping[str, Any]) -> Any:
    maker, kwargs = env_fn, dict(env_kwargs)
    if isinstance(env_fn, partial) and isinstance(env_fn.func, EnvMaker):
        maker, kwargs = env_fn.func, {**env_fn.keywords, **kwargs}
    if isinstance(maker, EnvMaker):
        make = maker.vector if backend == "vector" else maker.envpool
        kwargs["num_envs"] = offered["num_envs"]
    elif backend == "envpool":
        raise ConfigError("backend 'envpool' needs an environment id", "A function's own vector is backend 'vector'.")
    else:
        make, kwargs = env_fn, {**kwargs, **named_by(env_fn, offered)}
    try:
        return make(**kwargs)
    except RLError:
        raise
    except Exception as error:
        raise EnvError(
            f"constructor raised {type(error).__name__}: {error}", who=f"vector of {name_of(env_fn)}"
        ) from error


def choose(env_fn: EnvFunction, env_kwargs: Mapping[str, Any], num_envs: int) -> tuple[str, str]:
    """(backend, why) for "auto"; sync and async give the same data, so that the choice is one of speed alone."""
    cores = usable_cores()
    if num_envs == 1 or cores == 1 or sys.platform == "win32":
        return "sync", f"{num_envs} environment{'s' * (num_envs > 1)}, {cores} core{'s' * (cores > 1)}"
    try:
        env = _trial_env(env_fn, env_kwargs)
        if isinstance(env, gym.vector.VectorEnv):
            env.close()
            return "vector", "the function makes a vector environment"
        with closing(env):
            cost = _milliseconds_per_step(env)
    except Exception as error:  # noqa: BLE001  the environment's fault: it will be named when the vector is made
        return "sync", f"a trial step raised {type(error).__name__}"
    if cost < WORTH_A_PROCESS:
        return "sync", f"a step takes {cost:.2g} ms; processes pay off above {WORTH_A_PROCESS:g} ms"
    try:
        cloudpickle.dumps(env_fn)
    except Exception as error:  # noqa: BLE001  whatever a class of the user's may raise
        return "sync", f"a step takes {cost:.2g} ms, and the environment cannot be sent to a process: {error}"
    return "async", f"a step takes {cost:.2g} ms, on {cores} cores"


def _milliseconds_per_step(env: gym.Env[Any, Any]) -> float:
    """The mean over some random steps, resets included."""
    env.action_space.seed(0)
    env.reset(seed=0)
    steps, start = 0, time.perf_counter()
    while steps < TRIAL_STEPS and time.perf_counter() - start < TRIAL_SECONDS:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps += 1
        if terminated or truncated:
            env.reset()
    return 1000 * (time.perf_counter() - start) / steps


def named_by(function: EnvFunction, offered: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the offered arguments that the function names itself."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in offered.items() if name in names}


def name_of(env_fn: EnvFunction) -> str:
    """What messages call the environments of a function."""
    if isinstance(env_fn, EnvMaker):
        return env_fn.env_id
    if isinstance(env_fn, partial):
        return name_of(env_fn.func)
    return str(getattr(env_fn, "__name__", type(env_fn).__name__))
