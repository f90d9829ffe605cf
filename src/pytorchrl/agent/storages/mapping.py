"""Where a storage's tensors live: in memory, or in files that are mapped into it."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pytorchrl import memory, tree
from pytorchrl.errors import ConfigError
from pytorchrl.memory import in_units, refuse_if_too_large
from pytorchrl.tree import Tree


class Allocator:
    """Makes tensors of zeros on a device, or in files of a temporary folder inside ``folder``.

    Mapped tensors are on the CPU; pages that were not used lately go to disk, and the files go with the allocator.
    """

    def __init__(self, device: torch.device, folder: str | None = None) -> None:
        self.device = device if folder is None else torch.device("cpu")
        self._folder = None
        self._files = 0
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._folder = tempfile.TemporaryDirectory(prefix="replay-", dir=folder)

    @property
    def place(self) -> str:
        """Where the tensors live, in words."""
        return (
            "this machine's memory" if self._folder is None else f"free disk space in {Path(self._folder.name).parent}"
        )

    def available_bytes(self) -> int:
        """How much of it there is."""
        return memory.available_bytes() if self._folder is None else shutil.disk_usage(self._folder.name).free

    def refuse_if_too_large(self, needed: int, what: str) -> None:
        """``ConfigError`` with both figures if ``needed`` bytes cannot fit where the tensors would live."""
        if self._folder is None:
            refuse_if_too_large(needed, what)
            return
        free = self.available_bytes()
        if needed > free:
            raise ConfigError(
                f"{what} needs {in_units(needed)} of disk space, and {in_units(free)} are free",
                "Choose a smaller size, fewer environments, or another folder.",
            )

    def __call__(self, example: Tree, *leading: int) -> Tree:
        """Zeros shaped ``[*leading, *example.shape]`` with the dtype of every tensor of the example."""
        if self._folder is None:
            return tree.allocate(example, *leading, device=self.device)
        return tree.tree_map(lambda tensor: self._mapped(tensor, (*leading, *tensor.shape)), example)

    def _mapped(self, example: Tensor, shape: tuple[int, ...]) -> Tensor:
        self._files += 1
        path = Path(self._folder.name) / str(self._files)  # type: ignore[union-attr]
        size = max(math.prod(shape) * example.element_size(), 1)
        file = np.memmap(path, np.uint8, "w+", shape=(size,))  # sparse: what is not written takes no space
        return torch.from_numpy(file)[: math.prod(shape) * example.element_size()].view(example.dtype).view(shape)
