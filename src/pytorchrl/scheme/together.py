"""Updates without a center: learners average among themselves (DD-PPO, arXiv 1911.00357)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.storages.base import Storage
from pytorchrl.precision import Products
from pytorchrl.scheme.round import means_of

# Seconds that learners wait for each other before they give the round up.
PATIENCE = 60.0


class BrokenCircleError(Exception):
    """A learner is gone; the others cannot finish the round."""


def learn_together(
    products: Products, algorithm: Algorithm, storage: Storage, rank: int, size: int, meeting: str
) -> tuple[dict[str, Tensor], int]:
    """One stage of updates on the own storage, each step with the average over all; (mean info, updates).

    A learner that has run out of batches takes part with none, until all have; one that is done with its data ends it.
    """
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one machine: nothing needs to be heard outside
    try:
        store = distributed.FileStore(meeting, size)  # type: ignore[attr-defined]
        distributed.init_process_group(
            "gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=PATIENCE)
        )
        return _learn(products, algorithm, storage)
    except (RuntimeError, distributed.DistError) as error:
        raise BrokenCircleError(str(error)) from error
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _learn(products: Products, algorithm: Algorithm, storage: Storage) -> tuple[dict[str, Tensor], int]:
    storage.before_gradients()
    batches: Iterator[Mapping[str, Any]] = storage.generate_batches(
        algorithm.num_mini_batch, algorithm.mini_batch_size, algorithm.num_epochs
    )
    infos, updates = [], 0
    while True:
        batch = next(batches, None)
        count = torch.zeros(1) if batch is None else torch.tensor([float(algorithm.rows_in(batch))])
        done = False
        gradients: list[Tensor | None] = [None] * len(algorithm.trainable_parameters)
        if batch is not None:
            gradients, info = products.gradients(algorithm, batch)
            done = algorithm.is_done_with_data(info)
            infos.append(storage.after_gradients(batch, info))
        averaged = _average(gradients, algorithm.trainable_parameters, count, done)
        if averaged is None:
            return means_of(infos), updates
        algorithm.apply_gradients(averaged)
        updates += 1


def _average(
    gradients: list[Tensor | None], parameters: list[Tensor], count: Tensor, done: bool
) -> list[Tensor | None] | None:
    """Σ n_i·g_i / Σ n_i over all learners, in one message; None if nobody has any, or one is done with its data."""
    present = torch.tensor([float(gradient is not None) for gradient in gradients]) * count
    parts = [
        (torch.zeros(parameter.shape) if gradient is None else gradient * count).flatten()
        for gradient, parameter in zip(gradients, parameters, strict=True)
    ]
    message = torch.cat([count, torch.tensor([float(done)]), present, *parts])
    distributed.all_reduce(message)
    if message[0] == 0 or message[1] > 0:
        return None
    counts = message[2 : 2 + len(parts)]
    sums = torch.split(message[2 + len(parts) :], [parameter.numel() for parameter in parameters])
    return [
        (total / n).view(parameter.shape) if n > 0 else None
        for total, n, parameter in zip(sums, counts, parameters, strict=True)
    ]


def digest(state: Mapping[str, Tensor]) -> str:
    """The weights in short, to see that all learners have the same."""
    sha = hashlib.sha256()
    for value in state.values():
        sha.update(value.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return sha.hexdigest()
