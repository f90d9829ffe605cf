"""Dicts of tensors, nested at most one level deep: the only file that looks into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Tree: TypeAlias = "Tensor | dict[str, Tensor]"


def tree_map(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """The same tree with ``function`` applied to every tensor."""
    if isinstance(tree, dict):
        return {key: function(value) for key, value in tree.items()}
    return function(tree)


def tree_zip(function: Callable[..., Tensor], first: Tree, *others: Tree) -> Tree:
    """``tree_map`` over several trees of the same structure at once."""
    if isinstance(first, dict):
        return {key: function(first[key], *(other[key] for other in others)) for key in first}  # type: ignore[index]
    return function(first, *others)


def leaves(tree: Tree) -> Iterator[Tensor]:
    """Every tensor of the tree, in the order of its keys."""
    if isinstance(tree, dict):
        yield from tree.values()
    else:
        yield tree


def first_leaf(tree: Tree) -> Tensor:
    """Any one tensor, for what all of them share: device, number of rows."""
    return next(leaves(tree))


def stack(trees: Sequence[Tree], dim: int = 0) -> Tree:
    """Trees of the same structure, stacked along a new dimension."""
    return tree_zip(lambda *tensors: torch.stack(tensors, dim), trees[0], *trees[1:])


def concatenate(trees: Sequence[Tree], dim: int = 0) -> Tree:
    """Trees of the same structure, joined along an existing dimension."""
    return tree_zip(lambda *tensors: torch.cat(tensors, dim), trees[0], *trees[1:])


def index(tree: Tree, rows: int | slice | Tensor | tuple[Tensor, ...]) -> Tree:
    """Rows of every tensor."""
    return tree_map(lambda tensor: tensor[rows], tree)


def copy_into(target: Tree, row: int | slice | Tensor | tuple[Tensor, ...], source: Tree) -> None:
    """Write ``source`` into ``row`` of ``target``, in place."""
    if isinstance(target, dict):
        for key, tensor in target.items():
            tensor[row] = source[key]  # type: ignore[index]
    else:
        target[row] = source  # type: ignore[assignment]


def allocate(example: Tree, *leading: int, device: torch.device | str = "cpu") -> Tree:
    """Zeros shaped ``[*leading, *example.shape]`` with the dtype of every tensor of the example."""
    return tree_map(lambda tensor: torch.zeros(*leading, *tensor.shape, dtype=tensor.dtype, device=device), example)


def to(tree: Tree, device: torch.device | str) -> Tree:
    """Every tensor on ``device``."""
    return tree_map(lambda tensor: tensor.to(device), tree)


def copy(tree: Tree, device: torch.device | str) -> Tree:
    """Every tensor on ``device``, as a copy of its own."""
    return tree_map(lambda tensor: tensor.to(device, copy=True), tree)


def flatten_time(tree: Tree, length: int) -> Tree:
    """``[T, N, …]`` to the ``length·N`` rows ``[length·N, …]``, time-major."""
    return tree_map(lambda tensor: tensor[:length].reshape(length * tensor.shape[1], *tensor.shape[2:]), tree)
