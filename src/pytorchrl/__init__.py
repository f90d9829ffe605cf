"""Reinforcement learning in PyTorch: swappable agents, one process or many, exactly resumable.

``train`` and ``load`` are the short way in; they are imported when first used, so that ``import pytorchrl`` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytorchrl.errors import (
    CheckpointError,
    ConfigError,
    EnvError,
    NonFiniteError,
    RLError,
    SpaceError,
    WorkerLostError,
)
from pytorchrl.keys import *  # noqa: F403  the vocabulary of batches belongs to the package itself

if TYPE_CHECKING:
    from pytorchrl.policy import Policy
    from pytorchrl.policy import load_policy as load
    from pytorchrl.recording import record
    from pytorchrl.run import Run, resume, train

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "ConfigError",
    "EnvError",
    "NonFiniteError",
    "Policy",
    "RLError",
    "Run",
    "SpaceError",
    "WorkerLostError",
    "load",
    "record",
    "resume",
    "train",
]

_LAZY = {
    "train": ("pytorchrl.run", "train"),
    "Run": ("pytorchrl.run", "Run"),
    "record": ("pytorchrl.recording", "record"),
    "resume": ("pytorchrl.run", "resume"),
    "load": ("pytorchrl.policy", "load_policy"),
    "Policy": ("pytorchrl.policy", "Policy"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'pytorchrl' has no attribute '{name}'")
    import importlib

    module, attribute = _LAZY[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value
