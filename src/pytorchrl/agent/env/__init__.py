"""Vectors of environments."""

from pytorchrl.agent.env.vec_env import VecEnv

__all__ = ["VecEnv"]
