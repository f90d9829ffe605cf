"""How exactly, and by which library, the CPU multiplies matrices while an agent learns.

A float32 product need not be the one that PyTorch chooses: on many CPUs oneDNN is twice as fast with the same error,
and on others (those with AMX tiles) it rounds to bfloat16. So it is measured, once in a process. Small products are
left alone: there, oneDNN's start costs more than it saves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import torch
from torch import nn

from pytorchrl.options import Precision

# Multiplications of one layer from which oneDNN pays off: measured for layers of 64 to 256 units, 8 to 512 rows.
LARGE = 2**22
# oneDNN is taken if it is this much faster, and if its error stays below this part of the result.
GAIN, ERROR = 1.25, 1e-5


@contextmanager
def by_onednn() -> Iterator[None]:
    """Float32 products inside are oneDNN's."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@cache
def fastest() -> tuple[Precision, str]:
    """(fp32 or onednn, why): whichever multiplies faster here within the error that is allowed."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, 256, generator=generator) for _ in range(2))
    exact = a.double() @ b.double()

    def error() -> float:
        return float(((a @ b).double() - exact).norm() / exact.norm())

    usual = shortest(lambda: a @ b)
    with by_onednn():
        other, wrong = shortest(lambda: a @ b), error()
    gain = usual / other
    if wrong > ERROR:
        return "fp32", "oneDNN would round products"
    if gain < GAIN:
        return "fp32", "oneDNN is not faster here"
    return "onednn", f"{gain:.1f} times as fast here, and as exact"


def shortest(work: Callable[[], object], rounds: int = 9) -> float:
    """Seconds of the quickest of some rounds: what other processes take is left out."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def precision_of(wish: Precision, device: str) -> tuple[Precision, str]:
    """(precision, why); "auto" is what is fastest on this machine without loss."""
    if wish != "auto":
        return wish, "as asked"
    return fastest() if device == "cpu" else ("fp32", f"on {device}")


class Products:
    """The products of one network's updates at a precision.

    Parameters
        precision: fp32, onednn (float32 by oneDNN) or bf16 (products rounded to 8 bits of mantissa).
        network: whose layers are multiplied.
    """

    def __init__(self, precision: Precision, network: nn.Module) -> None:
        self.precision = precision
        weights = [p for p in network.parameters() if p.dim() >= 2]
        self.device = weights[0].device.type if weights else "cpu"
        # Of a stack of K matrices each is a product of its own.
        self.largest = max(
            (weight.numel() // (len(weight) if weight.dim() == 3 else 1) for weight in weights), default=0
        )

    def __call__(self, rows: int) -> AbstractContextManager[None]:
        """The context for computing gradients of a batch of ``rows``."""
        if self.precision == "bf16":
            return torch.autocast(self.device, torch.bfloat16)
        if self.precision == "onednn" and rows * self.largest >= LARGE:
            return by_onednn()
        return nullcontext()
