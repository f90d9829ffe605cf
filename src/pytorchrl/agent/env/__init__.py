"""Vectors of environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytorchrl.agent.env.vec_env import VecEnv

__all__ = ["VecEnv"]


def __getattr__(name: str) -> Any:
    # Imported when asked for: worker processes need this package, and not torch.
    if name != "VecEnv":
        raise AttributeError(f"module 'pytorchrl.agent.env' has no attribute '{name}'")
    from pytorchrl.agent.env.vec_env import VecEnv

    return VecEnv
