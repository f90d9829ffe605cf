"""Stand-alone buffers for hand-written loops: no actor, algorithm or scheme around them."""

from pytorchrl.buffers.ppo_buffer import PPOBuffer, discount_cumsum
from pytorchrl.buffers.simple_replay_buffer import SimpleReplayBuffer

__all__ = ["PPOBuffer", "SimpleReplayBuffer", "discount_cumsum"]
