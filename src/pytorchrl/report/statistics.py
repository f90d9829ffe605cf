"""Few runs, told honestly: interquartile means with bootstrap intervals, and performance profiles.

The statistics of Agarwal et al. 2021 (arXiv 2108.13264). Scores are one array ``[runs]`` per task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytorchrl.seeding import derived_seed

Scores = NDArray[np.float64]
REPETITIONS = 2000
CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A statistic of the scores, and the percentile interval of its bootstrap."""

    low: float
    center: float
    high: float


def iqm(scores: Any, axis: int | None = None) -> Any:
    """Interquartile mean: the mean of what is left when ⌊n/4⌋ of n scores are cut off at either end."""
    values = np.asarray(scores, np.float64)
    if axis is None:
        values, axis = values.reshape(-1), 0
    ordered = np.sort(np.moveaxis(values, axis, 0), axis=0)
    cut = len(ordered) // 4
    return ordered[cut : len(ordered) - cut].mean(axis=0)


def resampled(scores: Sequence[Scores], seed: int = 0, repetitions: int = REPETITIONS) -> Scores:
    """``[repetitions, Σ runs, …]``: runs drawn with replacement, from each task as many as it has (the strata)."""
    generator = np.random.default_rng(derived_seed(seed, "bootstrap"))
    parts = [task[generator.integers(len(task), size=(repetitions, len(task)))] for task in scores]
    return np.concatenate(parts, axis=1)


def interval_of(
    scores: Sequence[Scores],
    statistic: Callable[..., Any] = iqm,
    seed: int = 0,
    repetitions: int = REPETITIONS,
) -> Interval:
    """The statistic of all scores together, with its stratified-bootstrap interval of 95 %."""
    drawn = statistic(resampled(scores, seed, repetitions), axis=1)
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(statistic(np.concatenate(list(scores)))), float(high))


def curve_of(curves: Scores, seed: int = 0, repetitions: int = REPETITIONS) -> list[Interval]:
    """Of curves ``[runs, points]``, the interquartile mean over runs at each point with its interval."""
    drawn = iqm(resampled([curves], seed, repetitions), axis=1)
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return [Interval(*map(float, point)) for point in zip(low, iqm(curves, axis=0), high, strict=True)]


def profile_of(scores: Sequence[Scores], levels: Scores, seed: int = 0) -> list[Interval]:
    """At each level, the share of runs that score above it, with its interval."""
    above = [(task[:, None] > levels).astype(np.float64) for task in scores]
    drawn = resampled(above, seed).mean(axis=1)
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    share = np.concatenate(above).mean(axis=0)
    return [Interval(*map(float, point)) for point in zip(low, share, high, strict=True)]
