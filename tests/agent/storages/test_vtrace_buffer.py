"""V-trace through the buffer: worked numbers, stale data, and its limits."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from pytorchrl.agent.storages import VTraceBuffer
from pytorchrl.agent.storages.on_policy import vtrace_buffer
from pytorchrl.functional.returns import discounted_returns, vtrace
from pytorchrl.keys import ACT, ADV, DONE, DONE2, LOGP, OBS, OBS2, RET, REW, RHS, RHS2, TERMINAL, VAL

GAMMA = 0.9
REWARDS = (1.0, 0.0, -1.0, 2.0, 0.5, 1.0)
VALUES = (0.5, 1.0, -0.5, 2.0, 0.25, -1.0)
RATIOS = (0.5, 1.5, 2.0, 0.8, 1.0, 1.25)
# Codes of observations: rows 0 … 5, the bootstrap, and the successor of the truncated row.
BOOTSTRAP, FINAL = 6, 7
KNOWN = torch.tensor([*VALUES, 0.75, 1.5])


class KnownActor:
    """V(o) is looked up; log π(a|o) = log μ + log ratio of the row."""

    is_recurrent = False
    device = torch.device("cpu")

    def __init__(self, ratios: tuple[float, ...] = RATIOS) -> None:
        self.log_ratios = torch.tensor([*ratios, 1.0, 1.0]).log()

    def __call__(self, obs: Tensor, rhs: Any, done: Tensor) -> Any:
        codes = obs[:, 0].long()
        dist = SimpleNamespace(log_prob=lambda action: self.log_ratios[codes][:, None] - 0.7)
        return dist, {"value_net1": KNOWN[codes][:, None]}, rhs

    def get_value(self, obs: Tensor, rhs: Any, done: Tensor) -> Any:
        return {"value_net1": KNOWN[obs[:, 0].long()][:, None], "rhs": rhs}


def filled(actor: Any, steps: int = 6) -> VTraceBuffer:
    storage = VTraceBuffer(6, "cpu", actor, SimpleNamespace(gamma=GAMMA), None)
    rhs = {"policy": torch.zeros(1, 1)}
    for t in range(steps):
        successor = FINAL if t == 2 else BOOTSTRAP if t == steps - 1 else t + 1
        storage.insert_transition(
            {
                OBS: torch.tensor([[float(t)]]),
                RHS: rhs,
                DONE: torch.tensor([[float(t in (0, 3, 5))]]),
                ACT: torch.zeros(1, 1, dtype=torch.long),
                REW: torch.tensor([[REWARDS[t]]]),
                OBS2: torch.tensor([[float(successor)]]),
                RHS2: rhs,
                DONE2: torch.tensor([[float(t in (2, 4))]]),
                TERMINAL: torch.tensor([[float(t == 4)]]),
                VAL: torch.tensor([[99.0]]),  # stale: the present actor knows better
                LOGP: torch.tensor([[-0.7]]),
            }
        )
    return storage


def column(storage: VTraceBuffer, key: str, rows: int = 6) -> list[float]:
    return storage.data[key][:rows, 0, 0].tolist()  # type: ignore[index,union-attr]


# ρ̄, c̄, targets, advantages before they are normalized (worked by hand in the contract).
WORKED = [
    (1.0, 1.0, (0.89175, 0.315, 0.35, 2.36, 0.5, 1.675), (0.39175, -0.685, 0.85, 0.36, 0.25, 2.675)),
    (1.2, 0.9, (0.78879, 0.0862, 0.52, 2.36, 0.5, 2.21), (0.28879, -0.6384, 1.02, 0.36, 0.25, 3.21)),
]


@pytest.mark.parametrize(("rho", "c", "targets", "advantages"), WORKED)
def test_worked_numbers(rho: float, c: float, targets: Any, advantages: Any) -> None:
    storage = filled(KnownActor())
    storage.compute_vtrace(rho, c)
    assert column(storage, RET) == pytest.approx(targets, abs=1e-6)
    raw = torch.tensor(advantages)
    assert column(storage, ADV) == pytest.approx(((raw - raw.mean()) / (raw.std() + 1e-5)).tolist(), abs=1e-5)
    assert column(storage, LOGP) == pytest.approx([math.log(ratio) - 0.7 for ratio in RATIOS], abs=1e-6)
    assert column(storage, VAL, 7) == pytest.approx([*VALUES, 0.75])


def test_before_gradients_clips_at_one() -> None:
    storage = filled(KnownActor())
    storage.before_gradients()
    assert column(storage, RET) == pytest.approx(WORKED[0][2], abs=1e-6)


def test_the_collecting_policy_gives_plain_returns() -> None:
    storage = filled(KnownActor((1.0,) * 6))
    storage.compute_vtrace(math.inf, math.inf)
    assert column(storage, RET) == pytest.approx((1.2835, 0.315, 0.35, 2.45, 0.5, 1.675), abs=1e-6)


def test_a_ratio_bound_of_zero_gives_the_values() -> None:
    storage = filled(KnownActor())
    storage.compute_vtrace(clip_rho_thres=0.0)
    assert column(storage, RET) == pytest.approx(VALUES)


def test_a_trace_bound_of_zero_gives_one_step_targets() -> None:
    storage = filled(KnownActor((1.0,) * 6))
    storage.compute_vtrace(clip_c_thres=0.0)
    successors = (1.0, -0.5, 1.5, 0.25, 0.0, 0.75)
    expected = [r + GAMMA * v for r, v in zip(REWARDS, successors, strict=True)]
    assert column(storage, RET) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
def test_partial_rollouts(steps: int) -> None:
    storage = filled(KnownActor((1.0,) * 6), steps)
    storage.before_gradients()
    rewards = torch.tensor(REWARDS[:steps])
    successors = torch.tensor(
        [KNOWN[FINAL if t == 2 else BOOTSTRAP if t == steps - 1 else t + 1] for t in range(steps)]
    )
    ends = torch.tensor([float(t in (2, 4)) for t in range(steps)])
    terminals = torch.tensor([float(t == 4) for t in range(steps)])
    expected = discounted_returns(rewards, successors, terminals, ends, GAMMA)
    assert column(storage, RET, steps) == pytest.approx(expected.tolist(), abs=1e-6)


def test_nothing_to_learn_from() -> None:
    storage = VTraceBuffer(6, "cpu", KnownActor(), SimpleNamespace(gamma=GAMMA), None)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="no transitions"):
        storage.before_gradients()


# What is replaced in the call of the recurrence: (arguments by place, by name) -> the same, broken.
BREAKAGES: dict[str, Any] = {
    "ratios upside down": lambda args, names: ((*args[:5], -args[5], *args[6:]), names),
    "ratios forgotten": lambda args, names: ((*args[:5], 0 * args[5], *args[6:]), names),
    "rho not clipped": lambda args, names: (args, names | {"clip_rho": math.inf}),
    "c not clipped": lambda args, names: (args, names | {"clip_c": math.inf}),
    "clips exchanged": lambda args, names: (args, {"clip_rho": names["clip_c"], "clip_c": names["clip_rho"]}),
    "ends ignored": lambda args, names: ((*args[:3], 0 * args[3], 0 * args[4], *args[5:]), names),
    "ends shifted": lambda args, names: ((*args[:3], args[3].roll(1, 0), args[4].roll(1, 0), *args[5:]), names),
    "values of the next row": lambda args, names: ((args[0], args[2], args[2], *args[3:]), names),
    "rewards of the other sign": lambda args, names: ((-args[0], *args[1:]), names),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_is_noticed(monkeypatch: pytest.MonkeyPatch, breakage: str) -> None:
    def broken(*args: Any, **names: Any) -> Any:
        args, names = BREAKAGES[breakage](args, names)
        return vtrace(*args, **names)

    def check() -> None:
        for worked in WORKED:
            test_worked_numbers(*worked)

    check()
    monkeypatch.setattr(vtrace_buffer, "vtrace", broken)
    with pytest.raises(AssertionError):
        check()
