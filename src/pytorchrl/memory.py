"""How much memory there is, so that what cannot fit is refused before it is allocated."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from pytorchrl.errors import ConfigError

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def available_bytes() -> int:
    """The machine's memory, or the control group's limit if that is smaller."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        text = path.read_text().strip() if path.exists() else ""
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def bytes_of(space: gym.Space[Any]) -> int:
    """What one observation of our side of the border takes: a box, or a dict of boxes."""
    if isinstance(space, spaces.Dict):
        return sum(bytes_of(part) for part in space.values())
    return math.prod(space.shape) * space.dtype.itemsize  # type: ignore[arg-type,union-attr]


def in_units(number: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} PiB"


def refuse_if_too_large(needed: int, what: str) -> None:
    """``ConfigError`` with both figures if ``needed`` bytes cannot fit."""
    available = available_bytes()
    if needed > available:
        raise ConfigError(
            f"{what} needs {in_units(needed)} of memory, and this machine has {in_units(available)}",
            "Choose a smaller size or fewer environments.",
        )
