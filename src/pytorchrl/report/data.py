"""What a page reads of a run: its status, its configuration and the rows of its logs."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytorchrl.errors import ConfigError
from pytorchrl.report.curves import Points
from pytorchrl.run_folder import RunFolder
from pytorchrl.strict_yaml import read_yaml

Row = dict[str, float]
WINDOW = 100
DRAWN_POINTS = 400
STEPS, SECONDS = "time/total_timesteps", "time/time_elapsed"


@dataclass(frozen=True, eq=False)
class RunData:
    """The files of one run, read at one moment."""

    folder: RunFolder
    status: dict[str, Any]
    progress: list[Row]
    episodes: list[Row]

    @classmethod
    def read(cls, folder: RunFolder) -> RunData:
        return cls(folder, folder.read_status(), rows_of(folder.progress), rows_of(folder.episodes))

    @property
    def name(self) -> str:
        return self.folder.path.resolve().name

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration as nested dicts of text."""
        config = read_yaml(self.folder.config).plain()
        if not isinstance(config, dict):
            raise ConfigError(f"{self.folder.config}: not the configuration of a run")
        return config

    def logged(self, x: str, y: str) -> list[tuple[float, float]]:
        """A column of the log over another one."""
        return points_of(self.progress, x, y)

    @cached_property
    def evaluations(self) -> list[tuple[float, float]]:
        """(steps, mean return) of every evaluation."""
        return self.logged(STEPS, "eval/mean_reward")

    @cached_property
    def returns(self) -> list[tuple[float, float]]:
        """(steps, return) of every finished training episode."""
        return points_of(self.episodes, "steps", "return")


def points_of(rows: Sequence[Row], x: str, y: str) -> list[tuple[float, float]]:
    """Two columns of rows that have both."""
    return [(row[x], row[y]) for row in rows if x in row and y in row]


def rows_of(path: Path) -> list[Row]:
    """The numbers of a CSV file; empty cells, and a last line that was torn by a kill, are left out."""
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    text = [line.decode(errors="replace") for line in lines if line.endswith(b"\n")]
    return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(text)]


def moving_mean(
    points: Points, window: int = WINDOW
) -> tuple[list[tuple[float, float]], list[tuple[float, float, float]]]:
    """Mean, and mean ± standard deviation, of the last ``window`` values at each x, thinned for drawing."""
    curve, band = [], []
    total = squares = 0.0
    every = max(len(points) // DRAWN_POINTS, 1)
    for i, (x, y) in enumerate(points):
        total, squares = total + y, squares + y * y
        if i >= window:
            gone = points[i - window][1]
            total, squares = total - gone, squares - gone * gone
        if i % every == 0 or i == len(points) - 1:
            count = min(i + 1, window)
            center = total / count
            spread = math.sqrt(max(squares / count - center * center, 0.0))
            curve.append((x, center))
            band.append((x, center - spread, center + spread))
    return curve, band


def thinned(points: Points) -> Points:
    """Few enough points to draw: the lowest and the highest of each stretch stay."""
    stretch = 2 * len(points) // DRAWN_POINTS
    if stretch <= 2:
        return points
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), stretch):
        part = range(start, min(start + stretch, len(points)))
        ends = {min(part, key=lambda i: points[i][1]), max(part, key=lambda i: points[i][1])}
        kept += [points[i] for i in sorted(ends)]
    return kept
