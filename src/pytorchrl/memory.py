"""How much memory there is, so that what cannot fit is refused before it is allocated."""

from __future__ import annotations

import os
from pathlib import Path

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


def in_units(number: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} PiB"


def refuse_if_too_large(needed: int, what: str) -> None:
    """``ConfigError`` with both figures if ``needed`` bytes cannot fit."""
    available = available_bytes()
    if needed > available:
        raise ConfigError(
            f"{what} needs {in_units(needed)} of memory, and this machine has {in_units(available)}",
            "Choose a smaller size or fewer environments.",
        )
