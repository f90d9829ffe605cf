"""Environments in which every observation says where it comes from, demonstrations likewise, and a scheme over them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import PPO
from pytorchrl.agent.env import VecEnv
from pytorchrl.agent.storages import PPODBuffer
from pytorchrl.keys import ACT, DONE, DONE2, LOGP, OBS, OBS2, REW, RHS, RHS2, VAL
from pytorchrl.scheme import Scheme

LENGTH = 3


class Numbered(gym.Env[Any, Any]):
    """Episodes of three steps, the last of which earns ``pay``; an observation is (episodes so far, steps so far)."""

    action_space = spaces.Discrete(5)

    def __init__(self, pay: float = 0.0, as_dict: bool = False, truncated: bool = False) -> None:
        self.pay, self.as_dict, self.truncated = pay, as_dict, truncated
        box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = spaces.Dict({"a": box, "b": box}) if as_dict else box
        self.episode = 0

    def observation(self) -> Any:
        numbers = np.array([self.episode, self.time], np.float32)
        return {"a": numbers, "b": -numbers} if self.as_dict else numbers

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode, self.time = self.episode + 1, 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        over = self.time == LENGTH
        return self.observation(), self.pay * over, over and not self.truncated, over and self.truncated, {}


def save(folder: Path, name: str = "demo", **changed: Any) -> Path:
    """A demo of four steps with the observations (−1, t), actions 1, 2, 3, 4 and a reward of 1 at the end."""
    arrays = {
        "Observation": np.stack([np.full(4, -1.0), np.arange(4.0)], axis=1),
        "Action": np.arange(1, 5)[:, None],
        "Reward": np.array([0, 0, 0, 1], np.float16)[:, None],
        "FrameSkip": np.array(0),
        "somebody's own": np.array(["a word"]),
        **changed,
    }
    folder.mkdir(exist_ok=True)
    np.savez(folder / f"{name}.npz", **{key: value for key, value in arrays.items() if value is not None})
    return folder / f"{name}.npz"


def buffer(size: int = 8, envs: Any = None, **chosen: Any) -> Any:
    """A storage by itself."""
    actor = SimpleNamespace(is_recurrent=False, get_value=lambda obs, rhs, done: {"value_net1": torch.zeros(1, 1)})
    return PPODBuffer.create_factory(size=size, **chosen)("cpu", actor, SimpleNamespace(gamma=0.9), envs)


def step(obs: Any, reward: float = 0.0, value: float = 0.0, end: bool = False, start: bool = False) -> dict[str, Any]:
    """One transition of a single environment."""
    column = lambda number: torch.tensor([[float(number)]])  # noqa: E731
    obs = torch.as_tensor(obs, dtype=torch.float32)[None]
    rhs = {"policy": torch.zeros(1, 1)}
    sample = {OBS: obs, RHS: rhs, DONE: column(start), ACT: torch.tensor([[3]]), REW: column(reward), OBS2: obs}
    return sample | {RHS2: rhs, DONE2: column(end), VAL: column(value), LOGP: column(-1)}


def live(storage: Any, rewards: list[float], values: list[float] | None = None) -> None:
    """A real episode."""
    values = values or [0.0] * len(rewards)
    for t, (reward, value) in enumerate(zip(rewards, values, strict=True)):
        storage.insert_transition(step([0, t], reward, value, t + 1 == len(rewards), t == 0))


def scheme(
    num_envs: int = 2,
    size: int = 16,
    env: dict[str, Any] | None = None,
    backend: str = "sync",
    recurrent: bool = False,
    seed: int = 1,
    normalize_rewards: bool = False,
    **chosen: Any,
) -> Scheme:
    """PPO over ``Numbered`` environments and a PPODBuffer."""
    workers = 1 if backend == "async" else None
    envs_factory, action_space, observation_space = VecEnv.create_factory(
        Numbered, env or {}, num_envs, backend=backend, workers=workers
    )
    algo_factory, name = PPO.create_factory(num_epochs=1)
    actor_factory = OnPolicyActor.create_factory(
        observation_space,
        action_space,
        name,
        recurrent_net="GRU" if recurrent else None,
        recurrent_net_kwargs={"output_size": 4} if recurrent else None,
        feature_extractor_kwargs=None if (env or {}).get("as_dict") else {"hidden_sizes": [8]},
    )
    storage_factory = PPODBuffer.create_factory(size=size, **chosen)
    return Scheme(
        algo_factory, actor_factory, storage_factory, envs_factory, seed=seed, normalize_rewards=normalize_rewards
    )
