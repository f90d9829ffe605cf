"""What VecEnv asks of whatever runs its environments."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pytorchrl.agent.env.actions import ActionFormat
from pytorchrl.agent.env.formats import Array, ObservationFormat, Rows
from pytorchrl.errors import EnvError

# A transition that ends for the learner (a life was lost) while the episode that is counted goes on.
LIFE_LOST = "life_lost"


class Step(NamedTuple):
    """What one step of N environments gave: no ghost rows, and the true successors.

    ``observation`` is the one to act on next, after the reset of an ended episode; ``successor`` is the true one, and
    the same object where no episode ended. ``reward`` is float32 ``[N]``, the flags are bool ``[N]``; ``terminated``
    wins over ``truncated``. ``over`` marks the episodes that count as finished: all that ended, except where only a
    life was lost. ``scores`` has (return, length) where an environment kept count itself. Rows of environments that
    were not stepped keep their last observation, with reward 0 and no flag.
    """

    observation: Rows
    successor: Rows
    reward: Array
    terminated: Array
    truncated: Array
    over: Array
    scores: Mapping[int, tuple[float, int]]


class Backend(Protocol):
    """N environments that are stepped together and reset as soon as an episode ends.

    Everything that goes wrong in an environment surfaces as an ``EnvError`` that names it. Rows that were handed out
    are never written to again.
    """

    observations: ObservationFormat
    actions: ActionFormat

    def reset(self, seeds: Sequence[int | None]) -> Rows:
        """Start a new episode everywhere; a seed of None continues an environment's own stream."""
        ...

    def reset_single(self, i: int) -> Rows:
        """Start a new episode in environment ``i``; all rows."""
        ...

    def step(self, actions: Array, active: Array | None) -> Step:
        """One step of every environment, or of those that are active."""
        ...

    def snapshot_support(self) -> str | None:
        """None if the environments can be saved, else the reason why not."""
        ...

    def get_state(self) -> list[Any]:
        """One state per environment, its current observation included."""
        ...

    def set_state(self, states: Sequence[Any]) -> Rows:
        """Put every environment back; the current observations."""
        ...

    def close(self) -> None:
        """Close every environment, whatever happens; may be called more than once."""
        ...


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def env_error(name: str, i: int, operation: str, action: Any, error: Exception, step: int) -> EnvError:
    """What an environment did wrong, with its index and its last action; raise it ``from error``."""
    return EnvError(
        f"{operation}{given(action)} raised {type(error).__name__}: {error}",
        _advice(error),
        f"environment {i} ({name})",
        f"step {step}" if operation == "step" else "",
    )


def given(action: Any) -> str:
    """The last action, as part of a sentence; nothing if there was none."""
    return "" if action is None else f" on action {np.asarray(action).tolist()}"


def _advice(error: Exception) -> str:
    text = str(error)
    if isinstance(error, ValueError) and "values to unpack" in text:
        return (
            "Gymnasium's reset returns (observation, info), its step"
            " (observation, reward, terminated, truncated, info)."
        )
    return "The environment's own traceback stands above."
