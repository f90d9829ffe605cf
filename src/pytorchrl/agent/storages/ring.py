"""The ring that replay is drawn from: the newest steps of N environments, each observation stored once.

A transition has a number for life, ``i = t·N + n`` for environment n at step t of the ring's life, and lies in slot
``i mod (rows·N)``. So the successor of a transition is N further on, its predecessor N back, "newest" is the largest
number, and a number below ``oldest`` says that its slot has been written over.

Row t of an observation is what was acted on at step t, and row t+1 what followed: the successor is stored once, as the
next observation. Where it is not the next observation, it is kept aside: the episode ended, collection began anew, or
steps of other environments were appended. There a new piece begins, which no window and no stack reaches across.

Of a stack of frames only the newest is stored; the others are those of the rows before, the first frame of a piece
repeated, or kept aside where that is not what the first stack holds.

Beside the ``size`` rows that can be drawn, there is one for the newest successor, and one for each older frame of the
oldest stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.storages.aside import Aside
from pytorchrl.agent.storages.frames import are_stacks, as_frames, frame, not_repeated
from pytorchrl.agent.storages.mapping import Allocator
from pytorchrl.keys import ACT, DONE, DONE2, OBS, OBS2, REW, RHS, RHS2, TERMINAL
from pytorchrl.shards import Shard
from pytorchrl.tree import Tree

# One float each per transition, stored side by side: one gather reads them all.
SCALARS = (REW, DONE, DONE2, TERMINAL, "Begins", "Cut")
_BEGINS, _CUT = 4, 5
_SCALARS = "Scalars"
_OLDER = "OlderFrames"
# About how large the parts are that a checkpoint writes once.
SHARD_BYTES = 16 * 2**20

Sample = Mapping[str, Any]


class Ring:
    """See the module. ``size`` counts steps, ``frame_stack`` frames per observation, ``memory`` makes the tensors.

    Hidden states of a feed-forward actor are zeros: one row stands for all of them.
    """

    def __init__(self, size: int, frame_stack: int, recurrent: bool, memory: Allocator) -> None:
        self.size = size
        self.frame_stack = frame_stack
        self.recurrent = recurrent
        self.memory = memory
        self.pairs = ((OBS, OBS2), (RHS, RHS2)) if recurrent else ((OBS, OBS2),)
        self.num_envs = 0
        self.slots = 0  # room for transitions, N times ``rows``
        self.columns: dict[str, Tree] = {}  # [rows, N, …] by key
        self.data: dict[str, Tree] = {}  # views of them by the names of a transition
        self._flat: dict[str, Tree] = {}  # the same tensors as [slots, …]
        self._arrays: dict[str, Any] = {}  # and those that are no dicts for NumPy, if they are on the CPU
        self.constants: dict[str, Tree] = {}
        self._in_shards = False
        self.clear()

    def clear(self) -> None:
        """Forget everything; numbers begin at 0 again."""
        self.steps = self.length = 0
        self.successors, self.older_frames = Aside(self.device), Aside(self.device)
        self._followed: list[Any] = [None] * len(self.pairs)
        self._shards: dict[int, Shard] = {}  # by the number of their first row over the rows of a shard

    @property
    def device(self) -> torch.device:
        return self.memory.device

    @property
    def rows(self) -> int:
        return self.size + self.frame_stack

    @property
    def oldest(self) -> int:
        """Number of the oldest transition."""
        return (self.steps - self.length) * self.num_envs

    @property
    def end(self) -> int:
        """Number after the newest transition."""
        return self.steps * self.num_envs

    def allocate(self, sample: Sample) -> None:
        """Tensors for samples like this one. Stacks that are not what stacks look like are stored whole."""
        if self.frame_stack > 1 and not are_stacks(sample, self.frame_stack):
            self.frame_stack = 1
        self.num_envs = len(sample[REW])
        examples = {now: tree.index(self._single(now, sample[now]), 0) for now, _ in self.pairs}
        examples |= {ACT: sample[ACT][0], _SCALARS: torch.empty(len(SCALARS))}
        self.memory.refuse_if_too_large(self.bytes_for(examples), f"a replay of {self.size} steps")
        self._make_columns(examples)
        if not self.recurrent:
            self.constants = {key: tree.copy(tree.index(sample[key], slice(0, 1)), self.device) for key in (RHS, RHS2)}

    def _make_columns(self, examples: Mapping[str, Tree]) -> None:
        self.slots = self.rows * self.num_envs
        self._zeros = torch.zeros(self.num_envs, 1)
        self._flat = {key: self.memory(example, self.slots) for key, example in examples.items()}
        self.columns = {
            key: tree.tree_map(lambda column: column.view(self.rows, self.num_envs, *column.shape[1:]), flat)
            for key, flat in self._flat.items()
        }
        scalars = tree.first_leaf(self.columns[_SCALARS])
        views: dict[str, Tree] = {key: scalars[:, :, i : i + 1] for i, key in enumerate(SCALARS[:_BEGINS])}
        self.data = {key: column for key, column in self.columns.items() if key != _SCALARS} | views
        plain = {key: column for key, column in self.columns.items() if torch.is_tensor(column)}
        self._arrays = {key: column.numpy() for key, column in plain.items()} if self.device.type == "cpu" else {}

    def bytes_for(self, examples: Mapping[str, Tree]) -> int:
        """What the columns of such rows take."""
        row = sum(leaf.numel() * leaf.element_size() for example in examples.values() for leaf in tree.leaves(example))
        return self.rows * self.num_envs * row

    def _single(self, key: str, value: Tree) -> Tree:
        """What is stored of an observation or a hidden state."""
        return frame(value, self.frame_stack) if key == OBS else value

    # Writing

    def insert(self, sample: Sample) -> None:
        """Write one step over the oldest one; what is acted on only where it is not what followed the step before."""
        if not self.columns:
            self.allocate(sample)
        rows = self.rows
        row, after = self.steps % rows, (self.steps + 1) % rows
        begins = done = sample[DONE]
        for (now, _), followed in zip(self.pairs, self._followed, strict=True):
            if sample[now] is not followed:
                begins = torch.maximum(done, self._begin(sample, row).to(done))
                break
        for now, following in self.pairs:
            self._write(now, after, self._single(now, sample[following]))
        self._write(ACT, row, sample[ACT])
        # Nothing is cut until the next step says so.
        uncut = self._zeros if self._zeros.device == done.device else self._zeros.to(done.device)
        scalars = torch.cat((sample[REW], done, sample[DONE2], sample[TERMINAL], begins, uncut), 1)
        self._write(_SCALARS, row, scalars)
        self._followed = [sample[following] for _, following in self.pairs]
        self.steps += 1
        if self.length < self.size:
            self.length += 1

    def _write(self, key: str, row: int, value: Tree) -> None:
        """One row of a column; NumPy's view of it where there is one: for rows this small it is twice as fast."""
        array = self._arrays.get(key)
        if array is None:
            tree.copy_into(self.columns[key], row, value)
        else:
            array[row] = value.cpu().numpy()  # type: ignore[union-attr]

    def _begin(self, sample: Sample, row: int) -> Tensor:
        """Write what is acted on, keep the successors aside that it is not, and say where pieces begin, ``[N, 1]``."""
        stored = {now: tree.index(self.columns[now], row) for now, _ in self.pairs}
        given = {now: tree.to(self._single(now, sample[now]), self.device) for now, _ in self.pairs}
        begins: Tensor = (
            (sample[DONE].flatten() > 0).to(self.device) | (self.length == 0) | _different_rows(stored, given)
        )
        envs = begins.nonzero().flatten()
        if len(envs) and self.length:
            ids = (self.steps - 1) * self.num_envs + envs
            self.successors.append(ids, {now: tree.index(value, envs) for now, value in stored.items()}, self.oldest)
            tree.first_leaf(self.columns[_SCALARS])[row - 1, envs, _CUT] = 1
        if len(envs) and self.frame_stack > 1:
            stacks = sample[OBS].to(self.device)[envs]
            odd = not_repeated(stacks, self.frame_stack)
            older = as_frames(stacks, self.frame_stack)[odd, :-1]
            self.older_frames.append(
                self.steps * self.num_envs + envs[odd], {_OLDER: older}, self.oldest - self.frame_stack * self.num_envs
            )
        for now, value in given.items():
            tree.copy_into(self.columns[now], row, value)
        return begins.unsqueeze(1)

    # Reading

    def numbers(self) -> Tensor:
        """All transitions, in time order."""
        return torch.arange(self.oldest, self.end, device=self.device)

    def scalars(self, ids: Tensor) -> Tensor:
        """Rows of SCALARS, ``[*ids.shape, 6]``."""
        rows: Any = self._take(_SCALARS, self.slots_of(ids.flatten()))
        return rows.view(*ids.shape, len(SCALARS))  # type: ignore[no-any-return]

    @property
    def begins(self) -> Tensor:
        """Where the newest step begins a piece, ``[N]``."""
        return tree.first_leaf(self.columns[_SCALARS])[(self.steps - 1) % self.rows, :, _BEGINS] > 0

    def windows(self, ids: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Rewards of the n steps from each of ``ids`` on, and which of them count, both ``[B, n]``.

        A window ends with the episode, with the piece, and with the newest transition.
        """
        steps = ids[:, None] + torch.arange(n, device=self.device) * self.num_envs
        rewards, _, ended, _, begins, _ = self.scalars(steps).unbind(-1)
        goes_on = (ended[:, :-1] == 0) & (begins[:, 1:] == 0) & (steps[:, 1:] < self.end)
        first = torch.ones(len(ids), 1, dtype=torch.int64, device=self.device)
        return rewards, torch.cat([first, goes_on.long()], 1).cumprod(1).bool()

    def transitions(self, ids: Tensor, last: Tensor | None = None, length: int = 1) -> dict[str, Tree]:
        """Whole transitions ``[B]``: what was acted on at ``ids``, and what followed there, or after ``last``.

        Of sequences of some ``length``, hidden states are those of the first steps; Done marks every piece that begins.
        """
        slots = self.slots_of(ids)
        scalars: Any = self._take(_SCALARS, slots)
        reward, done, done2, terminal, begins, cut = scalars.split(1, 1)
        if last is None:
            last = ids
        else:
            _, _, done2, terminal, _, cut = self.scalars(last).split(1, 1)  # type: ignore[no-untyped-call]
        if length > 1:
            within = torch.arange(len(ids), device=self.device)[:, None] % length > 0
            done = torch.maximum(done, begins * within)
        batch = {**self.constants, DONE: done, ACT: self._take(ACT, slots), REW: reward}
        batch |= {DONE2: done2, TERMINAL: terminal}
        after = self.slots_of(last, 1)
        for now, following in self.pairs:
            if now == OBS and self.frame_stack > 1:
                batch[now], batch[following] = self._stacks(ids, last, after)
            else:
                every = length if now == RHS else 1
                batch[now], batch[following] = self._take(now, slots[::every]), self._take(now, after[::every])
        if cut.any():
            for now, following in self.pairs:
                every = length if now == RHS else 1
                ended = cut[::every, 0].nonzero().flatten()
                newest = self._single(now, batch[following])
                tree.copy_into(newest, ended, self.successors.get(now, last[::every][ended]))
        return batch

    def _stacks(self, ids: Tensor, last: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """Stacks of the transitions ``ids``, and of the successors of ``last``, whose newest frame is at ``after``.

        The stacks of a transition and its own successor share all frames but one each: two views of k+1 frames.
        """
        frames, missing = self._history(last)
        found = self._frames(frames, missing, after)
        before = found if last is ids else self._frames(*self._history(ids), None)
        return before[:, : self.frame_stack].flatten(1, 2), found[:, 1:].flatten(1, 2)

    def _history(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Which rows hold the frames of the stacks ``ids``, oldest first, and how far before them a frame should lie.

        Both ``[B, k]``. The first row of a piece stands in for what lies before it.
        """
        frames, missing = [ids], [torch.zeros_like(ids)]
        for _ in range(self.frame_stack - 1):
            begins = self.scalars(frames[-1])[:, _BEGINS].long()
            frames.append(frames[-1] - self.num_envs * (1 - begins))
            missing.append(missing[-1] + begins)
        return torch.stack(frames[::-1], 1), torch.stack(missing[::-1], 1)

    def _frames(self, frames: Tensor, missing: Tensor, after: Tensor | None) -> Tensor:
        """Frames ``[B, k, …]`` of a history, or ``[B, k+1, …]`` with one more frame."""
        slots = self.slots_of(frames)
        slots = slots if after is None else torch.cat([slots, after[:, None]], 1)
        found: Any = self._take(OBS, slots.flatten())
        found = found.view(*slots.shape, *found.shape[1:])
        if self.older_frames.count:
            rows, places = missing.nonzero().unbind(1)
            known, kept = self.older_frames.find(frames[rows, places])
            rows, places = rows[known], places[known]
            older: Any = self.older_frames.rows[_OLDER]
            found[rows, places] = older[kept, self.frame_stack - 1 - missing[rows, places]]
        return found  # type: ignore[no-any-return]

    def slots_of(self, ids: Tensor, ahead: int = 0) -> Tensor:
        """Where transitions lie, or those so many steps ahead."""
        return (ids + ahead * self.num_envs if ahead else ids) % self.slots

    def _take(self, key: str, slots: Tensor) -> Tree:
        """Rows of a column ``[B, …]``."""
        return tree.tree_map(lambda column: column.index_select(0, slots), self._flat[key])

    # The whole

    def get_state(self, size: int | None = None) -> dict[str, Any]:
        """Everything that counts, in time order: the newest ``size`` steps, or all."""
        length = min(self.length, self.size if size is None else size)
        first, oldest = self.steps - length - self.frame_stack + 1, (self.steps - length) * self.num_envs
        shards = self._sealed(first) if self._in_shards else {}
        rows = self._rows(max([first, *((number + 1) * self.shard_rows for number in shards)]), self.steps + 1)
        return {
            "steps": self.steps,
            "length": length,
            "num_envs": self.num_envs,
            "frame_stack": self.frame_stack,
            "shards": list(shards.values()),
            "columns": {key: tree.to(tree.index(value, rows), "cpu") for key, value in self.columns.items()},
            "constants": {key: tree.copy(value, "cpu") for key, value in self.constants.items()},
            "successors": self.successors.get_state(oldest),
            "older_frames": self.older_frames.get_state(oldest - self.frame_stack * self.num_envs),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Put the steps of a state into rows of a ring of this ``size``, which may be another, but not too small."""
        self.steps, self.length = state["steps"], state["length"]
        self.num_envs, self.frame_stack = state["num_envs"], state["frame_stack"]
        self._make_columns({key: tree.index(tree.index(value, 0), 0) for key, value in state["columns"].items()})
        end = self.steps + 1
        rows = self._rows(end - len(tree.first_leaf(state["columns"][ACT])), end)
        for key, value in state["columns"].items():
            tree.copy_into(self.columns[key], rows, tree.to(value, self.device))
        self._shards = {}
        for shard in state["shards"]:
            self._take_shard(shard)
        self.constants = {key: tree.copy(value, self.device) for key, value in state["constants"].items()}
        self.successors.set_state(state["successors"])
        self.older_frames.set_state(state["older_frames"])
        self._followed = [None] * len(self.pairs)

    def resize(self, size: int) -> None:
        """Another capacity; the newest steps that fit stay."""
        state = self.get_state(size)
        self.size = size
        if self.columns:
            self.set_state(state)

    def _rows(self, first: int, end: int) -> Tensor:
        """Where rows ``first`` … ``end`` − 1 of the ring's life lie."""
        return torch.arange(first, end, device=self.device) % self.rows

    # Shards

    @contextmanager
    def in_shards(self) -> Iterator[None]:
        """States that are made meanwhile hold rows that never change again as shards, without copying them."""
        self._in_shards = True
        try:
            yield
        finally:
            self._in_shards = False

    @property
    def shard_rows(self) -> int:
        """Rows per shard: a power of two, with about SHARD_BYTES."""
        row = sum(leaf[0].numel() * leaf.element_size() for leaf in self._leaves())
        return 1 << (max(SHARD_BYTES // row, 1).bit_length() - 1)

    def _sealed(self, first: int) -> dict[int, Shard]:
        """Every shard with rows from ``first`` on, of rows that the next step cannot change: all but the newest two."""
        size = self.shard_rows
        numbers = range(first // size, (self.steps - 1) // size)
        self._shards = {k: self._shards.get(k) or Shard(partial(self._shard, k)) for k in numbers}
        return self._shards

    def _shard(self, number: int) -> list[Tensor]:
        """The number of its first row, and its rows of every column; rows that were written over are left out."""
        size = self.shard_rows
        first = max(number * size, self.steps - self.length - self.frame_stack + 1)
        rows = self._rows(first, (number + 1) * size)
        return [torch.tensor(first), *(leaf[rows] for leaf in self._leaves())]

    def _take_shard(self, shard: Shard) -> None:
        """Put the rows of a shard where they belong, but those that the ring had forgotten already."""
        start, *leaves = shard.make()
        first, end = int(start), int(start) + len(leaves[0])
        dropped = max(self.steps - self.length - self.frame_stack + 1 - first, 0)
        rows = self._rows(first + dropped, end)
        for leaf, saved in zip(self._leaves(), leaves, strict=True):
            leaf[rows] = saved[dropped:].to(self.device)
        number = first // self.shard_rows
        if (first, end) == (number * self.shard_rows, (number + 1) * self.shard_rows):
            self._shards[number] = Shard(partial(self._shard, number), shard.name)

    def _leaves(self) -> Iterator[Tensor]:
        for column in self.columns.values():
            yield from tree.leaves(column)


def _different_rows(first: Mapping[str, Tree], second: Mapping[str, Tree]) -> Tensor:
    """Which rows of two observations, hidden states included, are not the same, ``[N]``."""
    found = [
        leaf
        for key, value in first.items()
        for leaf in tree.leaves(tree.tree_zip(lambda a, b: (a != b).reshape(len(a), -1).any(1), value, second[key]))
    ]
    return torch.stack(found).any(0)
