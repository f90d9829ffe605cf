"""Atari 2600 games as DQN saw them (Mnih et al. 2015), with the protocol of Machado et al. (2018) where they differ.

Frame skip 4 with max-pooling of the last two frames, gray 84 x 84 images, 4 of them stacked, up to 30 no-ops at the
start, rewards clipped to their sign; sticky actions as the id says (probability 0.25 for ``ALE/…-v5``). Episodes are
scored by the game: with unclipped rewards, to game over.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import ale_py
import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, StickyAction

from pytorchrl.agent.env.backend import LIFE_LOST

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner


def make(
    env_id: str,
    *,
    frame_skip: int = 4,
    frame_stack: int = 4,
    screen_size: int = 84,
    noop_max: int = 30,
    life_loss: bool = False,
    clip_reward: bool = True,
    repeat_action_probability: float | None = None,
    **kwargs: Any,
) -> gym.Env[Any, Any]:
    """One preprocessed game, observations ``[frame_stack, screen_size, screen_size]`` uint8.

    Parameters
        frame_skip: frames that an action is held; a step is one action.
        frame_stack: images that make an observation.
        screen_size: their width and height.
        noop_max: the most frames without action at the start of a game.
        life_loss: whether the loss of a life is terminal to the learner; the game goes on.
        clip_reward: whether the learner is given the sign of the reward.
        repeat_action_probability: how often a frame repeats the action of the frame before; None: as the id says.
        kwargs: what the game is made with, such as full_action_space.
    """
    env = gym.make(env_id, disable_env_checker=True, **{**kwargs, "frameskip": 1, "repeat_action_probability": 0.0})
    # Not the emulator's own sticky actions: the action that they repeat is in no saved state of it.
    sticky = stickiness(env_id) if repeat_action_probability is None else repeat_action_probability
    if sticky > 0:
        env = StickyAction(env, sticky)
    env = AtariPreprocessing(env, noop_max=noop_max, frame_skip=frame_skip, screen_size=screen_size)
    return FrameStackObservation(Game(env, life_loss, clip_reward), frame_stack, padding_type="reset")


def stickiness(env_id: str) -> float:
    """The probability of a sticky action that belongs to an id."""
    return float(gym.spec(env_id).kwargs.get("repeat_action_probability", 0.25))


class Game(gym.Wrapper[Any, Any, Any, Any]):
    """What the learner is told of a game: clipped rewards and lost lives; the score counts to game over."""

    def __init__(self, env: gym.Env[Any, Any], life_loss: bool, clip_reward: bool) -> None:
        super().__init__(env)
        self.life_loss = life_loss
        self.clip_reward = clip_reward
        self.score, self.length, self.lives = 0.0, 0, 0
        self.going_on: Any = None  # where the game stands after a life was lost

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, raw, terminated, truncated, info = self.env.step(action)
        reward = float(raw)
        self.score += reward
        self.length += 1
        lost = info["lives"] < self.lives
        self.lives = info["lives"]
        if terminated or truncated:
            info["episode"] = {"r": self.score, "l": self.length}
        elif lost and self.life_loss:
            terminated, info[LIFE_LOST], self.going_on = True, True, observation
        return observation, float(np.sign(reward)) if self.clip_reward else reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.going_on is not None and seed is None:
            observation, self.going_on = self.going_on, None
            return observation, {}
        self.going_on = None
        observation, info = self.env.reset(seed=seed, options=options)
        self.score, self.length, self.lives = 0.0, 0, self.env.unwrapped.ale.lives()  # type: ignore[attr-defined]
        return observation, info

    def get_state(self) -> dict[str, Any]:
        """This wrapper's own part of a snapshot."""
        return {"score": self.score, "length": self.length, "lives": self.lives, "going_on": self.going_on}

    def set_state(self, state: dict[str, Any]) -> None:
        self.score, self.length, self.lives = state["score"], state["length"], state["lives"]
        self.going_on = state["going_on"]


def make_vector(
    env_id: str,
    num_envs: int,
    *,
    frame_skip: int = 4,
    frame_stack: int = 4,
    screen_size: int = 84,
    noop_max: int = 30,
    life_loss: bool = False,
    clip_reward: bool = True,
    **kwargs: Any,
) -> gym.vector.VectorEnv[Any, Any, Any]:
    """The same games on ale-py's own threads; their random numbers are not those of ``make``."""
    from ale_py.vector_env import AtariVectorEnv

    options: dict[str, Any] = {**gym.spec(env_id).kwargs, **kwargs}
    options.pop("frameskip", None)
    options.pop("obs_type", None)
    game = options.pop("game")
    vector = AtariVectorEnv(
        game,
        num_envs,
        autoreset_mode=AutoresetMode.SAME_STEP,
        frameskip=frame_skip,
        stack_num=frame_stack,
        img_height=screen_size,
        img_width=screen_size,
        noop_max=noop_max,
        reward_clipping=False,
        use_fire_reset=False,
        **options,
    )
    return Games(vector, life_loss, clip_reward)


class Games(gym.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """``Game`` for a vector of them."""

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any], life_loss: bool, clip_reward: bool) -> None:
        super().__init__(env)
        self.life_loss = life_loss
        self.clip_reward = clip_reward
        self.scores, self.lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
        self.lives = np.zeros(env.num_envs, np.int64)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        self.scores += rewards
        self.lengths += 1
        over = terminated | truncated
        lost = (info["lives"] < self.lives) & ~over
        self.lives = info["lives"].astype(np.int64)
        if over.any():
            info["episode"] = {"r": self.scores.copy(), "l": self.lengths.copy()}
            self.scores[over], self.lengths[over] = 0, 0
        if self.life_loss:
            terminated, info[LIFE_LOST] = terminated | lost, lost
        return observations, np.sign(rewards) if self.clip_reward else rewards, terminated, truncated, info

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        observations, info = self.env.reset(seed=seed, options=options)
        self.scores[mask], self.lengths[mask] = 0, 0
        self.lives = info["lives"].astype(np.int64)
        return observations, info
