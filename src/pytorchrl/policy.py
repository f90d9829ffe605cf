"""A trained policy alone: what acts, without what learned."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.env.actions import ActionFormat
from pytorchrl.agent.env.formats import Array, ObservationFormat
from pytorchrl.atomic import write_bytes
from pytorchrl.errors import CheckpointError
from pytorchrl.registry import load_class
from pytorchrl.tree import Tree

# Elements of an observation or action; a damaged description must not ask for all the memory there is.
LARGEST_SPACE = 10**8
WEIGHTS, DESCRIPTION = "policy.safetensors", "policy.json"


class Policy:
    """Predicts actions and values for the environment's own observations.

    Parameters
        actor: the networks.
        info: where the policy comes from: algorithm, env, steps, and what rebuilds the actor.
        observation_space: the environment's, before it is brought into our format.
    """

    def __init__(self, actor: Actor, info: Mapping[str, Any], observation_space: gym.Space[Any]) -> None:
        self.actor = actor.eval()
        self.info = dict(info)
        self.format = ObservationFormat(observation_space)
        self.actions = ActionFormat(actor.action_space)

    def predict(self, obs: Any, state: Any = None, deterministic: bool = True, *, done: Any = None) -> tuple[Any, Any]:
        """(action, state) for one observation or for a batch of them; ``state`` goes into the next call.

        A policy with a memory forgets where ``done`` is true: there ``obs`` is the first of an episode.
        """
        rows, count, single = self._rows(obs)
        rhs = self.actor.initial_rhs(count) if state is None else state
        begins = torch.zeros(count, 1) if done is None else torch.as_tensor(done, dtype=torch.float32).reshape(count, 1)
        with torch.inference_mode():
            _, action, _, rhs, *_ = self.actor.get_action(rows, rhs, begins, deterministic)
        actions = self.actions.batch(action.numpy())
        return (actions[0] if single else actions), rhs

    def act(self, obs: Tree, rhs: dict[str, Tensor], done: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """(deterministic actions, hidden states) of observations as a ``VecEnv`` returns them."""
        with torch.inference_mode():
            _, action, _, rhs, *_ = self.actor.get_action(obs, rhs, done, True)
        return action, rhs

    def value(self, obs: Any) -> Any:
        """V(s) of one observation, or of each in a batch."""
        rows, count, single = self._rows(obs)
        with torch.inference_mode():
            predicted = self.actor.get_value(rows, self.actor.initial_rhs(count), torch.zeros(count, 1))
        values = predicted["value_net1"].squeeze(1).numpy()
        return float(values[0]) if single else values

    def _rows(self, obs: Any) -> tuple[Tree, int, bool]:
        """(observations as networks take them, how many, whether it was a single one)."""
        single = self.format.is_single(obs)
        if single:
            rows = self.format.empty(1)
            self.format.write(rows, 0, obs)
        else:
            rows = self.format.batch(obs)
        return self.format.tree([torch.from_numpy(part) for part in rows]), len(rows[0]), single

    def files(self) -> dict[str, bytes]:
        """Weights as safetensors, the rest as JSON."""
        return policy_files(self.actor, self.info, self.format.source)


def policy_files(actor: Actor, info: Mapping[str, Any], observation_space: gym.Space[Any]) -> dict[str, bytes]:
    """The two files of a policy."""
    description = {
        **info,
        "observation_space": space_to_json(observation_space),
        "action_space": space_to_json(actor.action_space),
    }
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in actor.state_dict().items()}
    return {
        WEIGHTS: save_safetensors(weights),
        DESCRIPTION: (json.dumps(description, indent=2, default=_name_of) + "\n").encode(),
    }


def _name_of(value: Any) -> str:
    """A class or function as JSON: what is the user's own is known by its name."""
    if isinstance(value, (type, FunctionType)):
        return value.__name__
    raise TypeError(f"{value!r} cannot be written as JSON")


def save_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files, such as a policy's, into a folder of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_bytes(folder / name, data)


def load_policy(path: str | Path) -> Policy:
    """The policy in a run folder, in one of its checkpoints, or in a folder of its own."""
    path = Path(path)
    folder = path / "policy" if (path / "policy").is_dir() else path
    if not (folder / DESCRIPTION).is_file():
        raise CheckpointError(f"{path}: no policy here", "Give a run folder, a checkpoint folder or a policy folder.")
    try:
        info = json.loads((folder / DESCRIPTION).read_bytes())
        observation_space = space_from_json(info["observation_space"])
        action_space = space_from_json(info["action_space"])
        actor_class = load_class("actor", info["actor"]["name"])
        actor = actor_class(
            "cpu",
            ObservationFormat(observation_space).space,
            action_space,
            info["algorithm"],
            **info["actor"]["config"] | {"restart_model": None},
        )
        files = {WEIGHTS: (folder / WEIGHTS).read_bytes()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{folder}: the policy cannot be loaded: {error}") from error
    load_weights(actor, files)
    return Policy(actor, info, observation_space)


def load_weights(actor: Actor, files: Mapping[str, bytes]) -> None:
    """Put a policy's weights into an actor of the same making."""
    try:
        actor.load_state_dict(load_safetensors(files[WEIGHTS]))
    except (KeyError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"the policy's weights do not fit the actor: {error}") from error


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """A space as plain JSON."""
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.Box):
        bounds = {name: _bounds_to_json(getattr(space, name)) for name in ("low", "high")}
        return {"type": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if isinstance(space, spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": [[str(key), space_to_json(inner)] for key, inner in space.items()]}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [space_to_json(inner) for inner in space]}
    raise TypeError(f"no JSON form for the space {space}")


def _bounds_to_json(bounds: Array) -> float | str | list[float | str]:
    """One number if all are equal; infinities as text, which strict JSON has no number for."""
    flat = [value if np.isfinite(value) else str(value) for value in bounds.reshape(-1).tolist()]
    return flat[0] if flat and all(value == flat[0] for value in flat) else flat


def space_from_json(value: Mapping[str, Any]) -> gym.Space[Any]:
    """The space again; ``ValueError`` if it is larger than any environment's."""
    if value["type"] == "Discrete":
        if value["n"] > LARGEST_SPACE:
            raise ValueError(f"a space of {value['n']} elements")
        return spaces.Discrete(value["n"], start=value["start"])
    if value["type"] == "Box":
        dtype, shape = np.dtype(value["dtype"]), _shape(value)
        low, high = (
            np.broadcast_to(
                np.asarray(value[name], np.float64).reshape(shape if isinstance(value[name], list) else ()), shape
            )
            for name in ("low", "high")
        )
        return spaces.Box(low.astype(dtype), high.astype(dtype), shape, dtype.type)
    if value["type"] == "MultiDiscrete":
        sizes = np.asarray(value["nvec"], np.int64)
        if (sizes > LARGEST_SPACE).any() or sizes.sum() > LARGEST_SPACE:
            raise ValueError(f"a space of {sizes.sum()} elements")
        return spaces.MultiDiscrete(sizes, start=np.asarray(value["start"], np.int64))
    if value["type"] == "MultiBinary":
        shape = _shape(value)
        return spaces.MultiBinary(shape if len(shape) > 1 else shape[0])
    if value["type"] == "Dict":
        return spaces.Dict([(key, space_from_json(inner)) for key, inner in value["spaces"]])
    if value["type"] == "Tuple":
        return spaces.Tuple([space_from_json(inner) for inner in value["spaces"]])
    raise ValueError(f"unknown space type {value['type']!r}")


def _shape(value: Mapping[str, Any]) -> tuple[int, ...]:
    shape = tuple(value["shape"])
    if min(shape, default=0) < 0 or math.prod(shape) > LARGEST_SPACE:
        raise ValueError(f"a space of shape {shape}")
    return shape
