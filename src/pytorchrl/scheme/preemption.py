"""Rounds that do not wait for stragglers (DD-PPO, arXiv 1911.00357)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pytorchrl.scheme.fleet import Played

# A rollout is played in so many units; a round can be closed after each of them.
PARTS = 8


class Preemption:
    """Plays rollouts part by part, and closes a round when enough of them are through.

    A round closes when ``fraction_workers`` of the collectors have their whole rollout and each of the others has
    ``fraction_samples`` of it. What a straggler is playing then opens its next rollout.

    Parameters
        thresholds: the two shares.
        size: collectors.
        steps: of a whole rollout.
    """

    def __init__(self, thresholds: Mapping[str, float], size: int, steps: int) -> None:
        self.needed_workers = math.ceil(thresholds.get("fraction_workers", 1.0) * size)
        self.needed_steps = math.ceil(thresholds.get("fraction_samples", 1.0) * steps)
        self.size, self.steps = size, steps
        self.part = math.ceil(steps / PARTS)
        self.playing = [0] * size  # steps that each collector was sent out for and has not brought yet

    def round(self, send: Callable[[int, int], None], receive: Callable[[], Played]) -> list[list[Played]]:
        """The parts of every collector's rollout; ``send`` has a collector play so many steps."""
        rollouts: list[list[Played]] = [[] for _ in range(self.size)]
        held = [0] * self.size
        for worker in range(self.size):
            self._send_on(worker, 0, send)
        while not self._closed(held):
            played = receive()
            worker = played.unit.worker
            self.playing[worker] = 0
            rollouts[worker].append(played)
            held[worker] += played.steps
            self._send_on(worker, held[worker], send)
        return rollouts

    def _send_on(self, worker: int, held: int, send: Callable[[int, int], None]) -> None:
        steps = min(self.part, self.steps - held)
        if steps > 0 and not self.playing[worker]:
            self.playing[worker] = steps
            send(worker, steps)

    def _closed(self, held: list[int]) -> bool:
        through = sum(steps >= self.steps for steps in held)
        enough = all(steps >= self.needed_steps for steps in held)
        return through == self.size or (through >= self.needed_workers and enough)
