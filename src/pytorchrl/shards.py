"""Shards: large parts of checkpoints that never change again, written once and shared by all checkpoints.

A shard's file is named by the hash of its content, so it is either the whole shard or not that shard. Checkpoints name
their shards in their manifests; a shard that no kept checkpoint names is deleted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from pytorchrl.atomic import write_bytes
from pytorchrl.errors import CheckpointError

FOLDER = "shards"
_BLOCK = 1 << 20


class Shard:
    """Tensors that never change again. ``name`` is known from when they were first written; ``make`` gets them."""

    def __init__(self, make: Callable[[], list[Tensor]], name: str | None = None) -> None:
        self.make = make
        self.name = name


class ShardFolder:
    """The shards of a folder of checkpoints.

    ``named`` are those that were put or found to be there since it was made, with their sizes; ``written`` counts the
    bytes that were new.
    """

    def __init__(self, checkpoints: Path) -> None:
        self.path = checkpoints / FOLDER
        self.named: dict[str, int] = {}
        self.written = 0

    def put(self, shard: Shard) -> str:
        """The shard's name, once its file is there; one that is there already is not read, made or written again."""
        try:
            if shard.name is None or not self._file(shard.name).is_file():
                tensors = {str(i): tensor.cpu().contiguous() for i, tensor in enumerate(shard.make())}
                data = save_safetensors(tensors)
                shard.name = hashlib.sha256(data).hexdigest()
                if not self._file(shard.name).is_file():
                    self.path.mkdir(parents=True, exist_ok=True)
                    write_bytes(self._file(shard.name), data)
                    self.written += len(data)
            self.named[shard.name] = self._file(shard.name).stat().st_size
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: a part of the replay could not be written ({error.strerror})",
                "Earlier checkpoints are whole. Free some space, or give another --run folder.",
            ) from error
        return shard.name

    def get(self, name: str) -> Shard:
        """The shard of that name, read when it is asked for."""
        self._file(name)
        return Shard(partial(self._read, name), name)

    def check(self, name: str, size: int) -> None:
        """``CheckpointError`` if the shard is not whole."""
        path = self._file(name)
        found = hashlib.sha256()
        try:
            if path.is_symlink() or path.stat().st_size != size:
                raise CheckpointError(f"{path}: damaged (its size differs from the manifest)")
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    found.update(block)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
        if found.hexdigest() != name:
            raise CheckpointError(f"{path}: damaged (its hash is not its name)")

    def keep(self, names: Collection[str]) -> None:
        """Delete what is not among ``names``."""
        for path in self.path.glob("*") if self.path.is_dir() else ():
            if path.name not in names:
                path.unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        if not re.fullmatch("[0-9a-f]{64}", name):
            raise CheckpointError(f"{self.path}: {name!r} is not the name of a shard")
        return self.path / name

    def _read(self, name: str) -> list[Tensor]:
        path = self._file(name)
        try:
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != name:
                raise CheckpointError(f"{path}: damaged (its hash is not its name)")
            tensors = load_safetensors(data)
            return [tensors[str(i)] for i in range(len(tensors))]
        except (OSError, KeyError, SafetensorError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error})") from error
