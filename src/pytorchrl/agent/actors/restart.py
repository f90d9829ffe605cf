"""Starting from a policy that was trained before."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from pytorchrl.errors import CheckpointError

# The name of a policy's weights in its folder.
WEIGHTS = "policy.safetensors"


def start_from(actor: nn.Module, path: str | Path) -> None:
    """Load weights from a run, checkpoint or policy folder, or from a safetensors file; all of them must fit."""
    path = Path(path)
    places = (path, path / "policy" / WEIGHTS, path / WEIGHTS)
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise CheckpointError(
            f"restart_model: no policy at {path}", "Give a run, checkpoint or policy folder, or a .safetensors file."
        )
    try:
        actor.load_state_dict(load(file.read_bytes()))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"restart_model: {file} cannot be read: {error}") from error
    except RuntimeError as error:
        raise CheckpointError(f"restart_model: the weights in {file} do not fit this actor: {error}") from error
