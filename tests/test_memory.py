"""What cannot fit is refused with both figures; the control group's limit counts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
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


def test_a_run_says_what_its_replay_takes_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pendulum's transition: 3 + 1 float32 of observation and action, and six float32 beside them."""
    settings = {"storage.size": 1000, "env.num_envs": 2, "env.backend": "sync", "algorithm.start_steps": 10}
    settings |= {"algorithm.update_every": 8, "algorithm.num_updates": 2}
    sizes = {"memory": {}, "disk": {"storage.memmap": str(tmp_path / "mapped")}}
    said = {}
    for name, more in sizes.items():
        for room in (2**30, 90_000):
            monkeypatch.setattr(memory, "available_bytes", lambda room=room: room)
            prl.train(
                "sac", "Pendulum-v1", steps=32, overrides=settings | more, run=tmp_path / f"{name}{room}", quiet=False
            )
            said[name, room] = capsys.readouterr().out
    line = "ReplayBuffer takes 78.2 KiB for 2,000 transitions when it is full, of the"
    assert f"{line} 1 GiB of this machine's memory." in said["memory", 2**30]
    assert f"{line} 87.89 KiB of this machine's memory; that is close." in said["memory", 90_000]
    assert line in said["disk", 2**30]
    assert f"of free disk space in {tmp_path / 'mapped'}." in said["disk", 2**30]
    assert "2 updates (1 x 2 mini-batches), which is 0.125 per step" in said["memory", 2**30]
    monkeypatch.setattr(memory, "available_bytes", lambda: 70_000)
    with pytest.raises(ConfigError, match=r"ReplayBuffer of size 1000 needs 78\.2 KiB of memory, and this machine has"):
        prl.train("sac", "Pendulum-v1", steps=32, overrides=settings, run=tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
