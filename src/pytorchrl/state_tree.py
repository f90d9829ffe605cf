"""A tree of dicts, lists, numbers, text, bytes, tensors and shards as JSON plus safetensors: never pickle."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from pytorchrl.errors import CheckpointError
from pytorchrl.shards import Shard

# A JSON object with one of these keys alone stands for something that JSON has no word for.
_TENSOR, _ARRAY, _ITEMS, _TUPLE, _BYTES, _SHARD = "$tensor", "$array", "$items", "$tuple", "$bytes", "$shard"

Put = Callable[[Shard], str]
Get = Callable[[str], Shard]


def encode(state: Any, put: Put | None = None) -> tuple[bytes, bytes]:
    """(JSON, safetensors) of a state tree; ``put`` writes its shards and names them."""
    tensors: dict[str, Tensor] = {}
    structure = _encode(state, "", tensors, put)
    return json.dumps(structure).encode(), save_safetensors(tensors)


def decode(structure: bytes, tensors: bytes, get: Get | None = None) -> Any:
    """The state tree again, with shards from ``get``; ``CheckpointError`` if the parts do not belong together."""
    try:
        return _decode(json.loads(structure), load_safetensors(tensors), get)
    except (KeyError, ValueError, TypeError, RecursionError, SafetensorError) as error:
        raise CheckpointError(f"the saved state is damaged: {error}") from error


def _encode(value: Any, path: str, tensors: dict[str, Tensor], put: Put | None) -> Any:
    if isinstance(value, Tensor):
        # Shared storage would be saved twice or refused: what is saved is a copy of its own.
        return {_TENSOR: _add(tensors, path, value.detach().cpu().clone(memory_format=torch.contiguous_format))}
    if isinstance(value, np.ndarray):
        return {_ARRAY: _add(tensors, path, torch.from_numpy(np.array(value)))}
    if isinstance(value, Mapping):
        items = {key: _encode(item, f"{path}/{key}", tensors, put) for key, item in value.items()}
        plain = all(isinstance(key, str) and not key.startswith("$") for key in items)
        return items if plain else {_ITEMS: [[key, item] for key, item in items.items()]}
    if isinstance(value, tuple):
        return {_TUPLE: [_encode(item, f"{path}/{i}", tensors, put) for i, item in enumerate(value)]}
    if isinstance(value, list):
        return [_encode(item, f"{path}/{i}", tensors, put) for i, item in enumerate(value)]
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, Shard) and put is not None:
        return {_SHARD: put(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{path}: a {type(value).__name__} has no place in a checkpoint")


def _add(tensors: dict[str, Tensor], path: str, tensor: Tensor) -> str:
    """Keep the tensor under a name that says where it belongs; the number keeps names apart."""
    name = f"{len(tensors)}{path}"
    tensors[name] = tensor
    return name


def _decode(value: Any, tensors: Mapping[str, Tensor], get: Get | None) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors, get) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        kind, content = next(iter(value.items()))
        if kind == _TENSOR:
            return tensors[content]
        if kind == _ARRAY:
            return tensors[content].numpy()
        if kind == _ITEMS:
            return {key: _decode(item, tensors, get) for key, item in content}
        if kind == _TUPLE:
            return tuple(_decode(item, tensors, get) for item in content)
        if kind == _BYTES:
            return base64.b64decode(content)
        if kind == _SHARD and get is not None:
            return get(content)
    return {key: _decode(item, tensors, get) for key, item in value.items()}
