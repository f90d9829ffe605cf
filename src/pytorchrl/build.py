"""From a resolved configuration to the agent's parts, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import torch

from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.envs.gymnasium import env_maker
from pytorchrl.errors import ConfigError, EnvError
from pytorchrl.options import RunConfig
from pytorchrl.registry import load_class
from pytorchrl.scheme.scheme import Scheme

EnvMaker = Callable[..., "gym.Env[Any, Any]"]


def device_of(wish: str) -> tuple[str, str]:
    """(device, why)."""
    if wish == "auto":
        return ("cuda", "the fastest there is") if torch.cuda.is_available() else ("cpu", "no GPU found")
    if wish == "cuda" and not torch.cuda.is_available():
        raise ConfigError("run.device: 'cuda' was asked for, and there is none", "Use auto or cpu.")
    return wish, "as asked"


def build_scheme(config: RunConfig, env_fn: EnvMaker | None, device: str) -> Scheme:
    """The scheme that a configuration describes; ``env_fn`` makes the environments if the id does not."""
    maker = env_fn or env_maker(config.env.id)
    try:
        envs_factory, action_space, observation_space = VecEnv.create_factory(
            maker, config.env.kwargs, config.env.num_envs, backend=config.env.backend
        )
    except EnvError as error:
        raise ConfigError(f"{config.env.id} cannot be made: {error.__cause__}") from error
    algo_factory, algo_name = load_class("algorithm", config.algorithm.name).create_factory(**config.algorithm.config)
    actor_factory = load_class("actor", config.actor.name).create_factory(
        observation_space, action_space, algo_name, **config.actor.config
    )
    storage_factory = load_class("storage", config.storage.name).create_factory(**config.storage.config)
    return Scheme(
        algo_factory,
        actor_factory,
        storage_factory,
        envs_factory,
        local_device=device,
        seed=config.run.seed,
        normalize_rewards=config.env.normalize_rewards,
        precision=config.run.precision,
    )
