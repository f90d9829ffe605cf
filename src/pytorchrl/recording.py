"""Demonstrations from a trained policy, or from any function that acts, in the file format of PPO+D."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from pytorchrl import tree
from pytorchrl.agent.env.actions import ActionFormat
from pytorchrl.agent.env.backend import env_error
from pytorchrl.agent.env.choice import Places, name_of, named_by
from pytorchrl.agent.env.formats import ObservationFormat
from pytorchrl.agent.storages.demo_files import write_demo
from pytorchrl.agent.storages.demos import LONGEST_EPISODE
from pytorchrl.agent.storages.frames import frame
from pytorchrl.envs.gymnasium import env_maker
from pytorchrl.errors import ConfigError, RLError
from pytorchrl.guards import require_finite
from pytorchrl.keys import ACT, OBS, REW
from pytorchrl.policy import Policy, load_policy
from pytorchrl.seeding import derived_seed
from pytorchrl.tree import Tree

# From the environment's own observation to its own action.
Act = Callable[[Any], Any]


def record(
    env: str | Callable[..., gym.Env[Any, Any]],
    out: str | Path,
    policy: Policy | str | Path | Act,
    episodes: int = 5,
    *,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Play whole episodes and write each as a demonstration; the files that were written.

    Parameters
        env: a Gymnasium id, an Env class, or a function that makes one.
        out: the folder; demos that are there stay.
        policy: a run's folder, a loaded policy, which acts deterministically, or a function from the environment's own
            observation to its action.
        episodes: how many.
        seed: seed of the episodes.
        env_kwargs: what the environment is made with; by default what the policy's own was made with.
    """
    return [path for path, _ in recordings(env, out, policy, episodes, seed=seed, env_kwargs=env_kwargs)]


def recordings(
    env: str | Callable[..., gym.Env[Any, Any]],
    out: str | Path,
    policy: Policy | str | Path | Act,
    episodes: int,
    *,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """(file, demo) of ``record``, one after the other, as they are written."""
    if isinstance(policy, (str, Path)):
        policy = load_policy(policy)
    kwargs = env_kwargs if env_kwargs is not None else policy.info["env_kwargs"] if isinstance(policy, Policy) else {}
    maker = env_maker(env) if isinstance(env, str) else env
    player = _Player(maker, kwargs)
    try:
        begin = _acting(policy, player.env) if isinstance(policy, Policy) else lambda: policy
        folder = _folder(out)
        first = _first_free_number(folder)
        for i in range(episodes):
            demo = player.episode(begin(), derived_seed(seed, "episodes", i))
            path = folder / f"demo_{first + i:04d}.npz"
            write_demo(path, demo, kwargs.get("frame_skip", 0), kwargs.get("frame_stack", 1))
            yield path, demo
    finally:
        player.env.close()


def _folder(out: str | Path) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{out}: cannot be made a folder of demos ({error})") from error
    return folder


def _first_free_number(folder: Path) -> int:
    taken = [path.stem.removeprefix("demo_") for path in folder.glob("demo_*.npz")]
    return 1 + max((int(number) for number in taken if number.isdecimal()), default=0)


def _acting(policy: Policy, env: gym.Env[Any, Any]) -> Callable[[], Act]:
    """A function that begins an episode of the policy, and returns what acts in it."""
    if env.observation_space != policy.format.source or env.action_space != policy.actor.action_space:
        raise ConfigError(
            f"the policy was trained for {policy.info['env']}, with {policy.format.source} and"
            f" {policy.actor.action_space}; this environment has {env.observation_space} and {env.action_space}"
        )

    def begin() -> Act:
        state = None

        def act(observation: Any) -> Any:
            nonlocal state
            action, state = policy.predict(observation, state)
            return action

        return act

    return begin


class _Player:
    """One environment, and its episodes as demos: frames and actions as a storage has them."""

    def __init__(self, maker: Callable[..., gym.Env[Any, Any]], kwargs: Mapping[str, Any]) -> None:
        self.name = name_of(maker)
        offered = {**Places(mode="test")._asdict(), "index_env": 0}
        try:
            self.env = maker(**kwargs, **named_by(maker, offered))
        except Exception as error:
            raise self._error("constructor", None, error) from error
        if not isinstance(self.env, gym.Env):
            raise ConfigError(f"{self.name} makes a {type(self.env).__name__}, not a gymnasium.Env")
        self.observations = ObservationFormat(self.env.observation_space)
        self.actions = ActionFormat(self.env.action_space)
        self.frame_stack: int = kwargs.get("frame_stack", 1)
        self.steps = 0

    def episode(self, act: Act, seed: int) -> dict[str, Any]:
        """OBS, ACT and REW of one episode, ``[L, …]``."""
        try:
            observation, _ = self.env.reset(seed=seed % 2**32)
        except Exception as error:
            raise self._error("reset", None, error) from error
        frames: list[Tree] = []
        actions: list[Any] = []
        rewards: list[Any] = []
        over = False
        while not over:
            if len(rewards) == LONGEST_EPISODE:
                raise RLError(f"{self.name}: the episode did not end within {LONGEST_EPISODE:,} steps")
            frames.append(self._frame(observation))
            action = self._checked(act(observation))
            try:
                observation, reward, terminated, truncated, _ = self.env.step(action)
            except Exception as error:
                raise self._error("step", action, error) from error
            self.steps += 1
            over = bool(terminated or truncated)
            actions.append(np.asarray(action - self.actions.start, self.actions.dtype).reshape(-1))
            rewards.append(np.array([reward], np.float32))
            require_finite(rewards[-1][None], "reward", self.name, self.steps)
        obs = tree.tree_map(lambda part: part.numpy(), tree.concatenate(frames))  # type: ignore[arg-type,return-value]
        return {OBS: obs, ACT: np.stack(actions), REW: np.stack(rewards)}

    def _frame(self, observation: Any) -> Tree:
        rows = self.observations.empty(1)
        try:
            self.observations.write(rows, 0, observation)
        except ValueError as error:
            raise self._error("step", None, error) from error
        for row in rows:
            require_finite(row, "observation", self.name, self.steps)
        return frame(self.observations.tree([torch.from_numpy(row) for row in rows]), self.frame_stack)

    def _checked(self, action: Any) -> Any:
        """The action in the space's own type; ``ConfigError`` if it is none of the space."""
        space: Any = self.env.action_space
        try:
            own = np.asarray(action).astype(space.dtype, casting="same_kind").reshape(space.shape)
        except (TypeError, ValueError):
            own = None
        if own is None or not space.contains(own):
            raise ConfigError(f"the policy chose {action!r}, which is not in {space}")
        return own[()]

    def _error(self, operation: str, action: Any, error: Exception) -> RLError:
        return env_error(self.name, 0, operation, action, error, self.steps)
