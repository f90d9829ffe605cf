"""Policy distributions: what a policy network's last layer says, as lean objects over the functions of ``functional``.

A head (module) turns features ``[B, F]`` into a distribution; a distribution samples, names its mode, and computes
log-probabilities and entropies ``[B, 1]``. Actions are in environment units; networks and log-probabilities live in
[−1, 1] units, which ``BoxScale`` maps to the bounds.
"""

from pytorchrl.agent.actors.distributions.base import Distribution
from pytorchrl.agent.actors.distributions.continuous import Deterministic, DiagGaussian, SquashedGaussian
from pytorchrl.agent.actors.distributions.discrete import Bernoulli, Categorical, MultiCategorical
from pytorchrl.agent.actors.distributions.heads import stochastic_head
from pytorchrl.agent.actors.distributions.scale import BoxScale

__all__ = [
    "Bernoulli",
    "BoxScale",
    "Categorical",
    "Deterministic",
    "DiagGaussian",
    "Distribution",
    "MultiCategorical",
    "SquashedGaussian",
    "stochastic_head",
]
