"""What cannot fit is refused with both figures; the control group's limit counts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from pytorchrl import memory
from pytorchrl.errors import ConfigError


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1023 * 1024, "1023 KiB"),
        (3 * 2**30, "3 GiB"),
        (2**50, "1 PiB"),
        (2**60, "1024 PiB"),
    ],
)
def test_bytes_as_people_read_them(number: float, text: str) -> None:
    assert memory.in_units(number) == text


def test_the_smallest_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CGROUP_LIMITS", (limit, tmp_path / "absent"))
    assert memory.available_bytes() == machine
    limit.write_text("max\n")
    assert memory.available_bytes() == machine
    limit.write_text("1048576\n")
    assert memory.available_bytes() == 2**20
    limit.write_text(f"{2**63}\n")
    assert memory.available_bytes() == machine


def test_refused_with_what_and_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    memory.refuse_if_too_large(2**30, "a buffer")
    with pytest.raises(ConfigError, match=r"^a buffer needs 2 GiB of memory, and this machine has 1 GiB") as caught:
        memory.refuse_if_too_large(2**31, "a buffer")
    assert caught.value.fix


def test_bytes_of_observations() -> None:
    image, speed = spaces.Box(0, 255, (3, 84, 84), np.uint8), spaces.Box(-1, 1, (5,), np.float32)
    assert memory.bytes_of(image) == 3 * 84 * 84
    assert memory.bytes_of(speed) == 20
    assert memory.bytes_of(spaces.Box(-1, 1, (), np.float32)) == 4
    assert memory.bytes_of(spaces.Dict({"image": image, "speed": speed})) == 3 * 84 * 84 + 20
