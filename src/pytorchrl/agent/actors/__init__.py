"""Actors: what maps observations to actions and values."""

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.actors.model_based_planner_actor import ModelBasedPlannerActor
from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.actors.on_policy_actor import OnPolicyActor
from pytorchrl.agent.actors.world_model import WorldModel

__all__ = ["Actor", "ModelBasedPlannerActor", "OffPolicyActor", "OnPolicyActor", "WorldModel"]
