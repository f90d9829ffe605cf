"""Names that users know from elsewhere, and what they are called here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Alias:
    """Where a name goes, and what its value becomes."""

    path: str
    convert: Callable[[float], float] | None = None
    note: str = ""


ALIASES = {
    "learning_rate": Alias("algorithm.lr"),
    "ent_coef": Alias("algorithm.entropy_coef"),
    "vf_coef": Alias("algorithm.value_loss_coef"),
    "clip_range": Alias("algorithm.clip_param"),
    "clip_coef": Alias("algorithm.clip_param"),
    "n_epochs": Alias("algorithm.num_epochs"),
    "update_epochs": Alias("algorithm.num_epochs"),
    "num_minibatches": Alias("algorithm.num_mini_batch"),
    "batch_size": Alias("algorithm.mini_batch_size"),
    "tau": Alias("algorithm.polyak", lambda tau: 1.0 - tau, " (1 - tau)"),
    "learning_starts": Alias("algorithm.start_steps"),
    "train_freq": Alias("algorithm.update_every"),
    "gradient_steps": Alias("algorithm.num_updates"),
    "buffer_size": Alias("storage.size"),
    "n_steps": Alias("storage.size"),
    "num_steps": Alias("storage.size"),
    "n_envs": Alias("env.num_envs"),
    "total_timesteps": Alias("run.steps"),
}
