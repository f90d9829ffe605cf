"""Buffer for PPO."""

from pytorchrl.buffers.ppo_buffer import PPOBuffer, discount_cumsum

__all__ = ["PPOBuffer", "discount_cumsum"]
