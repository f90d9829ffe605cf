"""Actors: what maps observations to actions and values."""

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.actors.on_policy_actor import OnPolicyActor

__all__ = ["Actor", "OffPolicyActor", "OnPolicyActor"]
