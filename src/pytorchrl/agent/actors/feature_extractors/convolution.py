"""Convolutions over images with channels last in memory, safe for fused optimizers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class _SameLayout(torch.autograd.Function):
    """The identity, with a contiguous gradient."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.contiguous()


class Convolution(nn.Conv2d):
    """``nn.Conv2d`` whose weight's gradient lies in memory as the weight does.

    Behind inputs with channels last, ``torch.autograd.grad`` returns gradients with channels last; a fused optimizer
    reads parameter, gradient and moments in the order of memory, and would silently mix them up.
    """

    def forward(self, x: Tensor) -> Tensor:
        weight: Tensor = _SameLayout.apply(self.weight) if torch.is_grad_enabled() else self.weight  # type: ignore[no-untyped-call]
        output: Tensor = self._conv_forward(x, weight, self.bias)
        return output
