"""The numerics as pure functions on tensors: recurrences, log-probabilities, losses, planners, statistics, sum tree.

Whatever is used twice, or deserves an oracle of its own, lives here and knows nothing about agents or environments.
"""

from pytorchrl.functional.log_probs import (
    categorical_entropy,
    categorical_kl,
    categorical_log_prob,
    gaussian_entropy,
    gaussian_kl,
    gaussian_log_prob,
    squashed_log_prob,
    tanh_correction,
)
from pytorchrl.functional.losses import clipped_surrogate, clipped_value_loss, value_loss
from pytorchrl.functional.planning import (
    categorical_cross_entropy,
    cross_entropy,
    random_shooting,
    reward_weighted,
)
from pytorchrl.functional.returns import (
    backward_recurrence,
    discount_cumsum,
    discounted_returns,
    gae,
    n_step_returns,
    normalize,
    vtrace,
)
from pytorchrl.functional.stats import ForwardDiscountedSum, RunningMeanStd
from pytorchrl.functional.sum_tree import SumTree

__all__ = [
    "ForwardDiscountedSum",
    "RunningMeanStd",
    "SumTree",
    "backward_recurrence",
    "categorical_cross_entropy",
    "categorical_entropy",
    "categorical_kl",
    "categorical_log_prob",
    "clipped_surrogate",
    "clipped_value_loss",
    "cross_entropy",
    "discount_cumsum",
    "discounted_returns",
    "gae",
    "gaussian_entropy",
    "gaussian_kl",
    "gaussian_log_prob",
    "n_step_returns",
    "normalize",
    "random_shooting",
    "reward_weighted",
    "squashed_log_prob",
    "tanh_correction",
    "value_loss",
    "vtrace",
]
