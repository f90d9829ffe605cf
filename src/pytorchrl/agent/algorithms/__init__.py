"""Algorithms: how to act, what to minimize, how to step."""

from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.algorithms.off_policy.ddpg import DDPG
from pytorchrl.agent.algorithms.off_policy.ddqn import DDQN
from pytorchrl.agent.algorithms.off_policy.mpo import MPO
from pytorchrl.agent.algorithms.off_policy.sac import SAC
from pytorchrl.agent.algorithms.off_policy.td3 import TD3
from pytorchrl.agent.algorithms.on_policy.a2c import A2C
from pytorchrl.agent.algorithms.on_policy.ppo import PPO
from pytorchrl.agent.algorithms.on_policy.ppod import PPOD

__all__ = ["A2C", "DDPG", "DDQN", "MPO", "PPO", "PPOD", "SAC", "TD3", "Algorithm"]
