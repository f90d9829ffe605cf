"""Rolling out vectors and single environments with the same table of actions, to compare what they store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from pytorchrl.agent.env.formats import ObservationFormat
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.keys import OBS2, TERMINAL
from pytorchrl.tree import index, leaves

Transition = dict[str, Any]


def roll(envs: VecEnv, actions: np.ndarray, seeds: Sequence[int] | None) -> tuple[list[list[Transition]], list[Any]]:
    """The transitions of every environment, and the episodes; ``actions[env, own step]`` counts from 0."""
    stored: list[list[Transition]] = [[] for _ in range(envs.num_envs)]
    obs = envs.reset(seeds)
    episodes = []
    for t in range(actions.shape[1]):
        action = torch.from_numpy(actions[:, t].reshape(envs.num_envs, -1))
        following, reward, done, info = envs.step(action)
        for i in range(envs.num_envs):
            stored[i].append(
                {
                    "obs": arrays(index(obs, i)),
                    "reward": reward[i].item(),
                    "obs2": arrays(index(info[OBS2], i)),
                    "done": bool(done[i]),
                    "terminal": bool(info[TERMINAL][i]),
                    "next": arrays(index(following, i)),
                }
            )
        episodes += info["episodes"]
        obs = following
    return stored, episodes


def roll_by_hand(env: gym.Env[Any, Any], actions: np.ndarray, seed: int, start: int = 0) -> list[Transition]:
    """The transitions of one environment, stepped and reset in the plainest way."""
    form = ObservationFormat(env.observation_space)

    def ours(observation: Any) -> list[np.ndarray]:
        rows = form.empty(1)
        form.write(rows, 0, observation)
        return [array[0] for array in rows]

    observation, _ = env.reset(seed=seed)
    stored = []
    for action in actions:
        obs = ours(observation)
        observation, reward, terminated, truncated, _ = env.step(action + start)
        obs2 = ours(observation)
        if terminated or truncated:
            observation, _ = env.reset()
        stored.append(
            {
                "obs": obs,
                "reward": float(np.float32(reward)),
                "obs2": obs2,
                "done": bool(terminated or truncated),
                "terminal": bool(terminated),
                "next": ours(observation),
            }
        )
    return stored


def roll_over_ghosts(
    vector: Any, actions: np.ndarray, reset: Callable[[], Any], ours: Callable[[Any], np.ndarray]
) -> list[list[Transition]]:
    """The transitions of a NEXT_STEP vector, with its ghost rows left out: the hand loop for foreign vectors."""
    count = len(actions)
    stored: list[list[Transition]] = [[] for _ in range(count)]
    obs = ours(reset())
    own, ghost = np.zeros(count, int), np.zeros(count, bool)
    while own.min() < actions.shape[1]:
        chosen = actions[np.arange(count), np.minimum(own, actions.shape[1] - 1)]
        observation, reward, terminated, truncated, _ = vector.step(chosen)
        observation = ours(observation)
        for i in range(count):
            if ghost[i]:
                if stored[i]:
                    stored[i][-1]["next"] = [observation[i]]
            elif own[i] < actions.shape[1]:
                stored[i].append(
                    {
                        "obs": [obs[i]],
                        "reward": float(np.float32(reward[i])),
                        "obs2": [observation[i]],
                        "done": bool(terminated[i] or truncated[i]),
                        "terminal": bool(terminated[i]),
                        "next": [observation[i]],
                    }
                )
                own[i] += 1
        ghost = (terminated | truncated) & ~ghost
        obs = observation.copy()
    return stored


def arrays(tree: Any) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in leaves(tree)]


def same(first: Sequence[Transition], second: Sequence[Transition], skip: Sequence[str] = ()) -> None:
    """Assert that two sequences of transitions are bitwise equal."""
    assert len(first) == len(second)
    for t, (one, other) in enumerate(zip(first, second, strict=True)):
        for name, value in one.items():
            if name in skip:
                continue
            if isinstance(value, list):
                for a, b in zip(value, other[name], strict=True):
                    assert a.dtype == b.dtype, (t, name)
                    np.testing.assert_array_equal(a, b, err_msg=f"step {t}: {name}")
            else:
                assert value == other[name], (t, name, value, other[name])
