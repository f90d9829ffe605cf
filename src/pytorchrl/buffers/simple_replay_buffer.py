"""A first-in, first-out replay for hand-written off-policy loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from pytorchrl.buffers.rows import allocate, field, gather, new_generator, row
from pytorchrl.component import Component
from pytorchrl.parameters import PositiveInt


class SimpleReplayBuffer(Component):
    """A simple FIFO experience replay buffer for SAC agents.

    A ring of ``max_size`` transitions in numpy arrays, of which ``size`` are filled; the next one goes to row ``ptr``:
    ``obs_buf`` and ``obs2_buf`` `[max_size, obs_dim]`, ``act_buf`` `[max_size, act_dim]`, ``rew_buf`` and ``done_buf``
    `[max_size]`, float32. ``rng`` draws the batches; ``np.random.seed`` before construction, or a generator of your
    own in its place, makes them repeatable.

    Parameters
        obs_dim: numbers in an observation.
        act_dim: numbers in an action.
        size: transitions that the buffer holds; then the oldest makes room.
        batch_size: transitions in a batch.
    """

    fixed_parameters = ("obs_dim", "act_dim", "size")

    def __init__(self, obs_dim: PositiveInt, act_dim: PositiveInt, size: PositiveInt, batch_size: PositiveInt) -> None:
        SimpleReplayBuffer.complete({"obs_dim": obs_dim, "act_dim": act_dim, "size": size, "batch_size": batch_size})
        self.obs_dim, self.act_dim, self.max_size, self.batch_size = obs_dim, act_dim, size, batch_size
        self.obs_buf, self.obs2_buf, self.act_buf, self.rew_buf, self.done_buf = allocate(
            size, (obs_dim,), (obs_dim,), (act_dim,), (), ()
        )
        self.ptr, self.size = 0, 0
        self.rng = new_generator()

    def store(self, buffer_dict: Mapping[str, Any]) -> None:
        """Store one transition; one that is refused leaves the buffer as it was.

        Parameters
            buffer_dict: ``obs`` and ``next_obs`` `(obs_dim,)`, ``act`` `(act_dim,)` or an object with such an
                ``.action``, ``rew`` and ``done``: arrays, tensors on any device or numbers, also with a leading axis
                of one. Other keys are ignored.
        """
        act = field(buffer_dict, "act")
        obs = row("obs", field(buffer_dict, "obs"), self.obs_dim)
        action = row("act", getattr(act, "action", act), self.act_dim)
        rew = row("rew", field(buffer_dict, "rew"))
        obs2 = row("next_obs", field(buffer_dict, "next_obs"), self.obs_dim)
        done = row("done", field(buffer_dict, "done"))

        here = self.ptr
        self.obs_buf[here], self.act_buf[here], self.obs2_buf[here] = obs, action, obs2
        self.rew_buf[here], self.done_buf[here] = rew[0], done[0]
        self.ptr = (here + 1) % self.max_size
        self.size = min(self.size + 1, self.max_size)

    def finish_path(self, action_obj: Any = None) -> None:
        """Nothing: off-policy learning needs no end of a path. It is here so that a loop can take either buffer."""

    def sample_batch(self) -> dict[str, Tensor]:
        """Uniformly drawn transitions, none of them twice; the cost does not grow with the size of the buffer.

        Returns
            ``obs`` and ``obs2`` `(B, obs_dim)`, ``act`` `(B, act_dim)`, ``rew`` and ``done`` `(B,)`, float32, with
            B = min(batch_size, size).
        """
        rows = self.rng.choice(self.size, min(self.batch_size, self.size), replace=False)
        return gather(
            rows, obs=self.obs_buf, obs2=self.obs2_buf, act=self.act_buf, rew=self.rew_buf, done=self.done_buf
        )
