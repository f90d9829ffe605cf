"""Draws the README's learning curve: `python tools/readme_curve.py RUN… > docs/images/cartpole.svg`."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from pytorchrl.report.curves import Line, chart

WINDOW, POINTS = 20, 100


def smoothed(run: Path, grid: np.ndarray) -> np.ndarray:
    """Mean return of the last ``WINDOW`` episodes of a run at the steps of the grid."""
    with (run / "episodes.csv").open(newline="") as file:
        rows = [(float(row["steps"]), float(row["return"])) for row in csv.DictReader(file)]
    steps, returns = np.array(rows).T
    sums = np.cumsum(np.insert(returns, 0, 0.0))
    ends = np.maximum(np.searchsorted(steps, grid, side="right"), 1)
    starts = np.maximum(ends - WINDOW, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def main() -> None:
    runs = [Path(argument) for argument in sys.argv[1:]]
    grid = np.linspace(0, 50_000, POINTS + 1)[1:]
    curves = np.array([smoothed(run, grid) for run in runs])
    points = list(zip(grid, curves.mean(0), strict=True))
    band = list(zip(grid, curves.min(0), curves.max(0), strict=True))
    title = f"PPO on CartPole-v1: mean, worst and best of {len(runs)} seeds"
    # An image has no text color to inherit: gray reads on light and on dark pages.
    print(chart(title, [Line(points, band)], "environment steps").replace("currentColor", "#888"))


if __name__ == "__main__":
    main()
