"""One seed tree per run: every stream of random numbers has its own branch, named by what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from pytorchrl.parameters import LARGEST_SEED

# The branches. A new kind goes to the end: the numbers are part of what a seed means.
KINDS = {
    "model": 0,
    "acting": 1,
    "storage": 2,
    "train_env": 3,
    "test_env": 4,
    "episodes": 5,
    "barrier": 6,
    "bootstrap": 7,
    "video": 8,
    "tune": 9,
}


def derived_seed(seed: int, kind: str, *indices: int) -> int:
    """A 63-bit seed for the branch ``(kind, *indices)`` of the run's tree."""
    sequence = np.random.SeedSequence(seed, spawn_key=(KINDS[kind], *indices))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """PyTorch's global CPU stream seeded inside, and back as it was outside: for building networks."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def own_generator() -> torch.Generator:
    """A generator of one's own, seeded from PyTorch's global stream at this moment."""
    return torch.Generator().manual_seed(int(torch.randint(LARGEST_SEED, ()).item()))
