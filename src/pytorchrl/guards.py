"""Finite guards: NaN and infinity are stopped before they reach an environment, a storage or a weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from pytorchrl.errors import NonFiniteError

# Whose fault it is, and what helps.
FIXES = {
    "action": "The policy's network gave it: lower the learning rate, or look for exploding inputs.",
    "observation": "The environment gave it: mend it there.",
    "reward": "The environment gave it: mend it there.",
}


def require_finite(rows: npt.NDArray[Any], field: str, name: str, step: int) -> None:
    """``NonFiniteError`` names the first environment (row ``[N, …]``) whose ``field`` is not finite.

    The product of an array with itself tells at the price of one pass whether to look closer: NaN and infinity cannot
    hide in it, though finite numbers can overflow it.
    """
    if rows.dtype.kind != "f":
        return
    flat = rows.reshape(-1)
    if math.isfinite(flat.dot(flat)):
        return
    bad = np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))
    if len(bad):
        value = np.array2string(rows[bad[0]], threshold=8, precision=4)
        where = f"environment {bad[0]} ({name})", f"step {step}"
        raise NonFiniteError(f"the {field} is not finite: {value}", FIXES[field], *where)


def require_finite_weights(weights: Mapping[str, Tensor]) -> None:
    """``NonFiniteError`` names the first tensor that is not finite: such weights are never saved."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise NonFiniteError(f"the weights '{name}' are not finite", "Resume from the last checkpoint.")
