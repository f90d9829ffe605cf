"""Terms that join an algorithm's policy loss."""

from pytorchrl.agent.algorithms.policy_loss_addons.base import PolicyLossAddOn
from pytorchrl.agent.algorithms.policy_loss_addons.predictors import ReturnPredictor, RewardPredictor
from pytorchrl.agent.algorithms.policy_loss_addons.reference_kl import AttractionKL, RepulsionKL

__all__ = ["AttractionKL", "PolicyLossAddOn", "RepulsionKL", "ReturnPredictor", "RewardPredictor"]
