"""Storages: where transitions wait, and how batches are drawn from them."""

from pytorchrl.agent.storages.base import Storage
from pytorchrl.agent.storages.on_policy.gae_buffer import GAEBuffer
from pytorchrl.agent.storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer

__all__ = ["GAEBuffer", "Storage", "VanillaOnPolicyBuffer"]
