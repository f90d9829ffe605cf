"""A policy for other programs: a file that needs nothing of this library, and JSON that says how to feed it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.actors.model_based_planner_actor import ModelBasedPlannerActor
from pytorchrl.errors import ConfigError, suggestion
from pytorchrl.policy import DESCRIPTION, Policy, save_files

FORMATS = ("safetensors", "torch", "onnx")
NEEDED = {"onnx": ("onnx", "onnxscript")}


class Player(nn.Module):
    """An actor as a plain function of tensors: observations, then hidden states and ``done`` of a policy with a memory.

    It returns the deterministic action, then the next hidden states. Normalizers are inside.
    """

    def __init__(self, actor: Actor, observations: list[str]) -> None:
        super().__init__()
        self.actor = actor
        self.observations = observations
        self.states = sorted(actor.initial_rhs(1)) if actor.is_recurrent else []

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(self.observations)
        obs: Any = dict(zip(self.observations, tensors, strict=False)) if self.observations != ["obs"] else tensors[0]
        if self.states:
            rhs, done = dict(zip(self.states, tensors[count:-1], strict=True)), tensors[-1]
        else:
            done = tensors[0].new_zeros((tensors[0].shape[0], 1), dtype=torch.float32)
            rhs = dict.fromkeys(self.actor.initial_rhs(1), done)
        _, action, _, rhs, *_ = self.actor.get_action(obs, rhs, done, True)
        return (action, *(rhs[name] for name in self.states))


def example_inputs(policy: Policy, count: int = 2) -> dict[str, Tensor]:
    """Inputs by name, all zeros, as the exported policy takes them for a batch of ``count``."""
    rows = [torch.from_numpy(part) for part in policy.format.empty(count)]
    tree = policy.format.tree(rows)
    inputs: dict[str, Tensor] = dict(tree) if isinstance(tree, dict) else {"obs": tree}
    if policy.actor.is_recurrent:
        states = policy.actor.initial_rhs(count)
        # Each state is an input of its own, even where the networks begin with the same zeros.
        inputs |= {f"state.{name}": states[name].clone() for name in sorted(states)}
        inputs["done"] = torch.zeros(count, 1)
    return inputs


def export(policy: Policy, format: str, folder: Path) -> Path:
    """Write the policy into ``folder``; returns the file to load.

    safetensors: weights, and what ``pytorchrl.load`` needs; torch: a program of torch.export; onnx: an ONNX model.
    """
    if format not in FORMATS:
        raise ConfigError(f"unknown format '{format}'", suggestion(format, FORMATS))
    files = policy.files() if format == "safetensors" else program_files(policy, format)
    try:
        save_files(folder, files)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror})", "Give --out another folder.") from error
    return folder / next(name for name in files if name != DESCRIPTION)


def program_files(policy: Policy, format: str) -> dict[str, bytes]:
    """The policy as a program, and its description."""
    missing = [name for name in NEEDED.get(format, ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{format} needs {' and '.join(missing)}", f"Install it: pip install 'pytorchrl[{format}]'")
    if isinstance(policy.actor, ModelBasedPlannerActor):
        raise ConfigError(
            f"a policy of {policy.info['algorithm']} searches for every action, and has no form as a program",
            "Its weights can be exported: --format safetensors",
        )
    inputs = example_inputs(policy)
    names = [name for name in inputs if name != "done" and not name.startswith("state.")]
    player = Player(policy.actor, names).eval()
    outputs = ["action", *(f"next.{name}" for name in player.states)]
    batch = torch.export.Dim("batch", min=1)
    shapes = {"tensors": tuple({0: batch} for _ in inputs)}
    with _quiet(), torch.no_grad():
        program = torch.export.export(player, tuple(inputs.values()), dynamic_shapes=shapes)
        made = player(*inputs.values())
        name, data = (
            ("policy.pt2", _saved(program)) if format == "torch" else ("policy.onnx", _onnx(program, inputs, outputs))
        )
    info = {
        **json.loads(policy.files()[DESCRIPTION]),
        "inputs": [_described(key, tensor) for key, tensor in inputs.items()],
        "outputs": [_described(key, tensor) for key, tensor in zip(outputs, made, strict=True)],
    }
    return {name: data, DESCRIPTION: (json.dumps(info, indent=2) + "\n").encode()}


def _saved(program: torch.export.ExportedProgram) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def _onnx(program: torch.export.ExportedProgram, inputs: Mapping[str, Tensor], outputs: list[str]) -> bytes:
    model = torch.onnx.export(program, input_names=list(inputs), output_names=outputs, dynamo=True, verbose=False)
    if model is None:
        raise ConfigError("this policy has no ONNX form")
    data: bytes = model.model_proto.SerializeToString()
    return data


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters talk much about themselves."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _described(name: str, tensor: Tensor) -> dict[str, Any]:
    """An input or output as JSON; the first dimension is the batch."""
    return {"name": name, "shape": ["batch", *tensor.shape[1:]], "dtype": str(tensor.dtype).removeprefix("torch.")}
