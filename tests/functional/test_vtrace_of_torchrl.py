"""V-trace against torchrl, whose trace has a clip of its own (rlax fixes it at 1): numbers frozen into a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytorchrl.functional import vtrace

FROZEN = json.loads((Path(__file__).parents[1] / "data" / "torchrl_vtrace.json").read_text(encoding="utf-8"))


def time_major(rows: Any) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).T


@pytest.mark.parametrize("case", FROZEN["cases"], ids=lambda case: f"rho {case['clip_rho']:g}, c {case['clip_c']:g}")
def test_vtrace_of_torchrl(case: dict[str, Any]) -> None:
    rewards, values, next_values, terminals, dones, log_pi, log_mu = (
        time_major(FROZEN[key])
        for key in ("rewards", "values", "next_values", "terminals", "dones", "log_pi", "log_mu")
    )
    targets, advantages = vtrace(
        rewards,
        values,
        next_values,
        terminals,
        dones,
        log_pi - log_mu,
        FROZEN["gamma"],
        clip_rho=case["clip_rho"],
        clip_c=case["clip_c"],
    )
    torch.testing.assert_close(targets, time_major(case["targets"]), rtol=0, atol=1e-10)
    torch.testing.assert_close(advantages, time_major(case["advantages"]), rtol=0, atol=1e-10)
