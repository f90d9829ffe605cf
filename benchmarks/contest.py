"""Contenders that do the same work in turns, so that a busy machine slows all of them; medians and spread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

ROUNDS = 5


def contest(title: str, contenders: Mapping[str, Callable[[], None]], work: int, unit: str) -> dict[str, float]:
    """Each contender's ``work`` per second over the rounds, after one that warms up; prints a table."""
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(ROUNDS + 1):
        for name, run in contenders.items():
            started = time.perf_counter()
            run()
            if number:
                rates[name].append(work / (time.perf_counter() - started))
    medians = {name: sorted(values)[len(values) // 2] for name, values in rates.items()}
    first = next(iter(medians.values()))
    print(f"{title}: {unit} per second, median (worst, best of {ROUNDS} rounds)")
    for name, values in rates.items():
        spread = f"({min(values):,.0f}, {max(values):,.0f})"
        print(f"  {name:<34}{medians[name]:>11,.0f}  {spread}{first / medians[name]:>8.2f} x")
    return medians
