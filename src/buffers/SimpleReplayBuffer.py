"""Default Replay Buffer."""

from pytorchrl.buffers.simple_replay_buffer import SimpleReplayBuffer

__all__ = ["SimpleReplayBuffer"]
