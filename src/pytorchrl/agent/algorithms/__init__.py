"""Algorithms: how to act, what to minimize, how to step."""

from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.algorithms.on_policy.ppo import PPO

__all__ = ["PPO", "Algorithm"]
