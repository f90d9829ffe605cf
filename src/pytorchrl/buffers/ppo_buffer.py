"""A buffer with GAE(λ) for hand-written on-policy loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytorchrl.buffers.rows import allocate, field, gather, new_generator, row
from pytorchrl.component import Component
from pytorchrl.errors import ConfigError
from pytorchrl.functional.returns import discount_cumsum
from pytorchrl.parameters import NonNegativeFloat, PositiveInt, UnitFloat

__all__ = ["PPOBuffer", "discount_cumsum"]


class PPOBuffer(Component):
    """A buffer for storing trajectories experienced by a PPO agent interacting with the environment, and using
    Generalized Advantage Estimation (GAE-Lambda) for calculating the advantages of state-action pairs.

    A ring of ``max_size`` timesteps in numpy arrays of float32: ``obs_buf`` `[max_size, obs_dim]`, ``act_buf``
    `[max_size, act_dim]`, ``rew_buf``, ``val_buf``, ``logp_buf``, ``done_buf``, and, once their path is finished,
    ``adv_buf`` and ``ret_buf`` `[max_size]`. The next timestep goes to row ``ptr``; the open path began at
    ``path_start_idx`` and has ``path_length`` rows. ``rng`` draws the batches; ``np.random.seed`` before construction,
    or a generator of your own in its place, makes them repeatable.

    Parameters
        obs_dim: numbers in an observation.
        act_dim: numbers in an action.
        size: timesteps that the buffer holds; then the oldest makes room.
        batch_size: timesteps in a batch.
        gamma: discount γ.
        lam: λ of GAE: 0 trusts the values, 1 the rewards.
        eps: added to the standard deviation that advantages are divided by.
    """

    fixed_parameters = ("obs_dim", "act_dim", "size")

    def __init__(
        self,
        obs_dim: PositiveInt,
        act_dim: PositiveInt,
        size: PositiveInt,
        batch_size: PositiveInt,
        gamma: UnitFloat = 0.99,
        lam: UnitFloat = 0.95,
        eps: NonNegativeFloat = 0.001,
    ) -> None:
        PPOBuffer.complete(
            {"obs_dim": obs_dim, "act_dim": act_dim, "size": size, "batch_size": batch_size}
            | {"gamma": gamma, "lam": lam, "eps": eps}
        )
        self.obs_dim, self.act_dim, self.max_size, self.batch_size = obs_dim, act_dim, size, batch_size
        self.gamma, self.lam, self.eps = gamma, lam, eps
        self.obs_buf, self.act_buf = allocate(size, (obs_dim,), (act_dim,))
        self.rew_buf, self.val_buf, self.logp_buf, self.done_buf, self.adv_buf, self.ret_buf = allocate(size, *6 * [()])
        self.ptr, self.path_start_idx, self.path_length = 0, 0, 0
        self._finished, self._finished_end = 0, 0  # how many finished rows there are, and the row after the last one
        self._epoch_ended = False
        self.rng = new_generator()

    def store(self, buffer_dict: Mapping[str, Any]) -> None:
        """Append one timestep of agent-environment interaction; one that is refused leaves the buffer as it was.

        Parameters
            buffer_dict: ``obs`` `(obs_dim,)`, ``act`` with ``.action`` `(act_dim,)`, ``.value`` and ``.logp``, ``rew``,
                and ``done`` if known (1 where the environment reached a terminal state): arrays, tensors on any device
                or numbers, also with a leading axis of one. Other keys are ignored.
        """
        act = field(buffer_dict, "act")
        try:
            action, value, logp = act.action, act.value, act.logp
        except AttributeError as error:
            raise ConfigError(
                f"act: expected an object with .action, .value and .logp, got {type(act).__name__}"
            ) from error
        obs = row("obs", field(buffer_dict, "obs"), self.obs_dim)
        action = row("act.action", action, self.act_dim)
        scalars = [
            row("rew", field(buffer_dict, "rew")),
            row("act.value", value),
            row("act.logp", logp),
            row("done", buffer_dict.get("done", 0.0)),
        ]

        if self._epoch_ended:
            self._finished, self._epoch_ended = 0, False
        here = self.ptr
        self.obs_buf[here], self.act_buf[here] = obs, action
        for column, scalar in zip((self.rew_buf, self.val_buf, self.logp_buf, self.done_buf), scalars, strict=True):
            column[here] = scalar[0]
        self.ptr = (here + 1) % self.max_size
        if self.path_length < self.max_size:
            self.path_length += 1
        else:
            self.path_start_idx = self.ptr
        self._finished = min(self._finished, self.max_size - self.path_length)

    def finish_path(self, action_obj: Any = None) -> None:
        """Call this at the end of a trajectory, or when one gets cut off by an epoch ending.

        Looks back in the buffer to where the trajectory started, and computes, in float64,

            δ_t = r_t + γ V_{t+1} − V_t        adv_t = δ_t + γ λ adv_{t+1}        ret_t = r_t + γ ret_{t+1}

        where V and ret after the last row are v_last: 0 if the trajectory ended because the agent reached a terminal
        state (``action_obj`` is None, or the last stored ``done`` is 1), and otherwise V(s_T), which accounts for the
        timesteps beyond a time limit or the end of an epoch. If no timestep was stored since the last call, nothing
        happens.

        Parameters
            action_obj: object whose ``.value`` is V(s_T).
        """
        if self.path_length == 0:
            return
        ended = action_obj is None or self.done_buf[self.ptr - 1] == 1
        v_last = 0.0 if ended else row("action_obj.value", action_obj.value)[0]

        rows = (self.path_start_idx + np.arange(self.path_length)) % self.max_size
        rewards = np.append(self.rew_buf[rows], v_last).astype(np.float64)
        values = np.append(self.val_buf[rows], v_last).astype(np.float64)
        deltas = rewards[:-1] + self.gamma * values[1:] - values[:-1]
        self.adv_buf[rows] = discount_cumsum(deltas, self.gamma * self.lam)
        self.ret_buf[rows] = discount_cumsum(rewards, self.gamma)[:-1]

        self._finished += self.path_length
        self._finished_end = self.path_start_idx = self.ptr
        self.path_length = 0

    def sample_batch(self) -> dict[str, Tensor]:
        """Uniformly drawn timesteps of finished paths, none of them twice, with advantages normalized in the batch.

        Call this at the end of an epoch, as often as wanted. If no path is open, ``ptr`` and ``path_start_idx`` go back
        to 0, and the next ``store`` begins a new epoch: the rows that can be drawn now cannot be drawn after it.

        Returns
            ``obs`` `(B, obs_dim)`, ``act`` `(B, act_dim)`, ``ret``, ``adv`` and ``logp`` `(B,)`, float32, with
            B = min(batch_size, finished rows) and adv = (a − mean a) / (std a + eps) of the B advantages drawn.
        """
        rows = (self._finished_end - 1 - self._draw()) % self.max_size
        if self.path_length == 0:
            self.ptr, self.path_start_idx, self._epoch_ended = 0, 0, True
        batch = gather(rows, obs=self.obs_buf, act=self.act_buf, ret=self.ret_buf, adv=self.adv_buf, logp=self.logp_buf)
        batch["adv"] = self._normalized(batch["adv"])
        return batch

    def _normalized(self, adv: Tensor) -> Tensor:
        """(a − mean) / (std + eps), `(B,)`, with the population's std; equal advantages give 0, whatever ``eps``."""
        if len(adv) == 0:
            return adv
        std, mean = torch.std_mean(adv.double(), correction=0)
        scale = std + self.eps
        return ((adv - mean) / torch.where(scale > 0, scale, 1.0)).float()

    def _draw(self) -> npt.NDArray[np.int64]:
        """Which finished rows to take, counted back from the newest."""
        return self.rng.choice(self._finished, min(self.batch_size, self._finished), replace=False)
