"""Finite guards: NaN and infinity are stopped before they reach a storage, an environment or a weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from pytorchrl.errors import NonFiniteError

Arrays = npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]


def require_finite(arrays: Arrays, field: str, who: str, when: str, fix: str) -> None:
    """``NonFiniteError`` names the first environment (row) whose ``field`` is not finite.

    The product of an array with itself shows at the price of one pass whether to look closer: NaN and infinity cannot
    hide in it, though finite numbers can overflow it.
    """
    if isinstance(arrays, Mapping):
        for key, array in arrays.items():
            require_finite(array, f"{field}['{key}']", who, when, fix)
        return
    if arrays.dtype.kind != "f":
        return
    flat = arrays.reshape(-1)
    if math.isfinite(flat.dot(flat)):
        return
    bad = np.flatnonzero(~np.isfinite(arrays.reshape(len(arrays), -1)).all(axis=1))
    if len(bad):
        value = arrays.reshape(len(arrays), -1)[bad[0]]
        shown = np.array2string(value, threshold=8, precision=4)
        raise NonFiniteError(f"{field} is not finite: {shown}", fix, f"environment {bad[0]} of {who}", when)


def require_finite_weights(parameters: Mapping[str, Tensor]) -> None:
    """``NonFiniteError`` names the first tensor that is not finite: such weights are never saved or published."""
    for name, tensor in parameters.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise NonFiniteError(f"the weights '{name}' are not finite", "Resume from the last checkpoint.")
