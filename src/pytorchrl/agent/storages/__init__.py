"""Storages: where transitions wait, and how batches are drawn from them."""

from pytorchrl.agent.storages.base import Storage
from pytorchrl.agent.storages.model_based.mb_buffer import MBReplayBuffer
from pytorchrl.agent.storages.off_policy.ere_buffer import EREBuffer
from pytorchrl.agent.storages.off_policy.her_buffer import HERBuffer
from pytorchrl.agent.storages.off_policy.nstep_buffer import NStepBuffer
from pytorchrl.agent.storages.off_policy.per_buffer import PERBuffer
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.agent.storages.on_policy.gae_buffer import GAEBuffer
from pytorchrl.agent.storages.on_policy.ppod_buffer import PPODBuffer
from pytorchrl.agent.storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from pytorchrl.agent.storages.on_policy.vtrace_buffer import VTraceBuffer

__all__ = [
    "EREBuffer",
    "GAEBuffer",
    "HERBuffer",
    "MBReplayBuffer",
    "NStepBuffer",
    "PERBuffer",
    "PPODBuffer",
    "ReplayBuffer",
    "Storage",
    "VTraceBuffer",
    "VanillaOnPolicyBuffer",
]
