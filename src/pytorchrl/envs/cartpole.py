"""Gymnasium's vectorized CartPole, able to reset some of its environments alone."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv


class PartialReset(gym.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Adds ``options={"reset_mask": mask}``, which Gymnasium's other vector environments understand.

    The new episodes are those that CartPole's own reset in the next step would have drawn, without the ghost row.
    """

    env: CartPoleVectorEnv

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")
        env = self.env
        if mask is None:
            return env.reset(seed=seed, options=options)
        state: Any = env.state
        state[:, mask] = env.np_random.uniform(env.low, env.high, (4, int(mask.sum())))
        env.steps[mask] = 0
        env.prev_done[mask] = False
        return state.T.astype(np.float32), {}


def with_partial_reset(vector: gym.vector.VectorEnv[Any, Any, Any]) -> gym.vector.VectorEnv[Any, Any, Any]:
    """The vector, wrapped if it is CartPole."""
    return PartialReset(vector) if isinstance(vector, CartPoleVectorEnv) else vector
