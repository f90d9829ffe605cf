"""Terms that join an algorithm's policy loss."""

from pytorchrl.agent.algorithms.policy_loss_addons.base import PolicyLossAddOn

__all__ = ["PolicyLossAddOn"]
