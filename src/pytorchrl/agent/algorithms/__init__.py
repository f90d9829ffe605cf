"""Algorithms: how to act, what to minimize, how to step."""

from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.algorithms.model_based.mpc_cem import MPC_CEM
from pytorchrl.agent.algorithms.model_based.mpc_pddm import MPC_PDDM
from pytorchrl.agent.algorithms.model_based.mpc_rs import MPC_RS
from pytorchrl.agent.algorithms.off_policy.ddpg import DDPG
from pytorchrl.agent.algorithms.off_policy.ddqn import DDQN
from pytorchrl.agent.algorithms.off_policy.mpo import MPO
from pytorchrl.agent.algorithms.off_policy.sac import SAC
from pytorchrl.agent.algorithms.off_policy.td3 import TD3
from pytorchrl.agent.algorithms.on_policy.a2c import A2C
from pytorchrl.agent.algorithms.on_policy.ppo import PPO
from pytorchrl.agent.algorithms.on_policy.ppod import PPOD
from pytorchrl.agent.algorithms.on_policy.rnd_ppo import RND_PPO

__all__ = [
    "A2C",
    "DDPG",
    "DDQN",
    "MPC_CEM",
    "MPC_PDDM",
    "MPC_RS",
    "MPO",
    "PPO",
    "PPOD",
    "RND_PPO",
    "SAC",
    "TD3",
    "Algorithm",
]
