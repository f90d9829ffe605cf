"""Policies over finitely many actions. Actions are integers, counted from 0."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from pytorchrl.functional.draws import exponential_like, uniform_like
from pytorchrl.functional.log_probs import categorical_kl

# The logit of an action that is ruled out: probability 0 without the NaN of 0 · log 0.
RULED_OUT = -1e8


def first_to_ring(log_probs: Tensor, generator: torch.Generator) -> Tensor:
    """A draw along the last axis: of competing exponential clocks with rates π, argmin_a E_a / π_a rings first."""
    clocks = exponential_like(log_probs, generator)
    # E = 0 may be drawn; bounded, it lets no action ring that is ruled out.
    return (log_probs - clocks.log_().clamp_(min=-80.0)).argmax(-1)


class Categorical:
    """π(a) ∝ exp(logits_a); actions are ``[B, 1]``."""

    def __init__(self, logits: Tensor) -> None:
        self.log_probs = logits.log_softmax(-1)

    def sample(self, generator: torch.Generator) -> Tensor:
        return first_to_ring(self.log_probs, generator).unsqueeze(-1)

    def mode(self) -> Tensor:
        return self.log_probs.argmax(-1, keepdim=True)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs.gather(-1, action)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1, keepdim=True)

    def executed(self, action: Tensor) -> Tensor:
        return action

    def kl(self, other: Categorical) -> Tensor:
        return categorical_kl(self.log_probs, other.log_probs)

    def floored(self, eps: float) -> Categorical:
        return Categorical(self.log_probs.clamp(min=math.log(eps)))


class MultiCategorical:
    """K independent categoricals; actions are ``[B, K]``.

    Logits are ``[B, K, n]``, with what is beyond the size of a categorical ruled out.
    """

    def __init__(self, logits: Tensor) -> None:
        self.log_probs = logits.log_softmax(-1)

    def sample(self, generator: torch.Generator) -> Tensor:
        return first_to_ring(self.log_probs, generator)

    def mode(self) -> Tensor:
        return self.log_probs.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs.gather(-1, action.unsqueeze(-1)).sum(1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum((1, 2)).unsqueeze(-1)

    def executed(self, action: Tensor) -> Tensor:
        return action

    def kl(self, other: MultiCategorical) -> Tensor:
        return categorical_kl(self.log_probs, other.log_probs).sum(1)

    def floored(self, eps: float) -> MultiCategorical:
        """What is beyond the size of a categorical stays ruled out."""
        log_probs = self.log_probs.clamp(min=math.log(eps))
        return MultiCategorical(log_probs.masked_fill(self.log_probs <= RULED_OUT / 2, RULED_OUT))


class Bernoulli:
    """n independent switches, on with probability σ(logit); actions are ``[B, n]`` of 0 and 1."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def sample(self, generator: torch.Generator) -> Tensor:
        chance = uniform_like(self.logits, generator)
        return (chance < self.logits.sigmoid()).long()

    def mode(self) -> Tensor:
        return (self.logits > 0).long()

    def log_prob(self, action: Tensor) -> Tensor:
        sign = 2 * action.to(self.logits.dtype) - 1
        return logsigmoid(sign * self.logits).sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        return (softplus(self.logits) - self.logits * self.logits.sigmoid()).sum(-1, keepdim=True)

    def executed(self, action: Tensor) -> Tensor:
        return action

    def kl(self, other: Bernoulli) -> Tensor:
        on = logsigmoid(self.logits) - logsigmoid(other.logits)
        off = logsigmoid(-self.logits) - logsigmoid(-other.logits)
        return (self.logits.sigmoid() * on + (-self.logits).sigmoid() * off).sum(-1, keepdim=True)

    def floored(self, eps: float) -> Bernoulli:
        limit = math.log1p(-eps) - math.log(eps)
        return Bernoulli(self.logits.clamp(-limit, limit))
