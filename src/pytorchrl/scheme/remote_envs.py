"""What algorithm, storage and run know of environments that workers have."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch

from pytorchrl.agent.env.formats import ObservationFormat
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.errors import EnvError


class RemoteEnvs(VecEnv):
    """Describes the environments whose transitions a storage holds side by side; they are stepped elsewhere.

    Parameters
        facts: what ``Worker.describe`` says of one worker's environments.
        num_envs: environments side by side.
        device: where the learner's tensors live.
    """

    def __init__(self, facts: Mapping[str, Any], num_envs: int, device: torch.device) -> None:
        self.name = facts["name"]
        self.num_envs = num_envs
        self.env_kwargs = facts["env_kwargs"]
        self.device = device
        self.backend_name = facts["backend_name"]
        self.backend_reason = facts["backend_reason"]
        self.observation_space = facts["observation_space"]
        self.action_space = facts["action_space"]
        self.backend: Any = SimpleNamespace(observations=ObservationFormat(facts["source"]))
        self._support: str | None = facts["snapshot_support"]

    def reset(self, *arguments: Any) -> Any:
        raise EnvError("these environments are stepped by workers, not here", who=self.name)

    def step(self, *arguments: Any) -> Any:
        raise EnvError("these environments are stepped by workers, not here", who=self.name)

    def snapshot_support(self) -> str | None:
        return self._support

    def close(self) -> None:
        """Nothing: workers close what they opened."""
