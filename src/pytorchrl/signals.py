"""The first SIGINT or SIGTERM asks a run to finish its round and save; a second one leaves at once."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType


class Interrupted(Exception):  # noqa: N818  it is a request, not an error
    """A signal asked the run to stop; a checkpoint was saved."""

    def __init__(self, number: int, folder: Path) -> None:
        super().__init__(number, folder)
        self.exit_code = 128 + number
        self.folder = folder

    def __str__(self) -> str:
        return f"interrupted; a checkpoint was saved. Go on with: pytorchrl resume {self.folder}"


class StopRequest:
    """``number`` is the signal that came, None before; a context that listens while it is open."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> StopRequest:
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._heard)
        except ValueError:  # not the main thread: signals are its business
            self._before = {}
        return self

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self.__exit__()

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
