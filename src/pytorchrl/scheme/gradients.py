"""Gradients of several workers as one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def average(gradients: Sequence[Sequence[Tensor | None]], counts: Sequence[int]) -> list[Tensor | None]:
    """Σ_i n_i·g_i / Σ_i n_i of each parameter, added up in the order of the workers; None if no worker has one.

    A worker that leaves a parameter alone (None) does not count for it.
    """
    found: list[Tensor | None] = []
    for parts in zip(*gradients, strict=True):
        total, weight = None, 0
        for part, count in zip(parts, counts, strict=True):
            if part is not None:
                total = part * count if total is None else total.add_(part, alpha=count)
                weight += count
        found.append(None if total is None else total.div_(weight))
    return found
