"""The ring that replay is drawn from: the newest steps of N environments, each observation stored once.

A transition has a number for life, ``i = t·N + n`` for environment n at step t of the ring's life, and lies in slot
``i mod (rows·N)``. So the successor of a transition is N further on, its predecessor N back, "newest" is the largest
number, and a number below ``oldest`` says that its slot has been written over.

Row t of an observation is what was acted on at step t, and row t+1 what followed: the successor is stored once, as the
next observation. Where it is not the next observation (the episode ended, or collection began anew), it is kept aside.
Of a stack of frames only the newest is stored; the others are those of the rows before, the first frame of an episode
repeated. Beside the ``size`` rows that can be drawn, there is one for the newest successor, and one for each older frame
of the oldest stack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.storages.aside import Aside
from pytorchrl.agent.storages.frames import are_stacks, frame, repeats_one_frame
from pytorchrl.agent.storages.mapping import Allocator
from pytorchrl.errors import RLError
from pytorchrl.keys import ACT, DONE, DONE2, OBS, OBS2, REW, RHS, RHS2, TERMINAL
from pytorchrl.tree import Tree

# One float each per transition, stored side by side: one gather reads them all.
SCALARS = (REW, DONE, DONE2, TERMINAL)
_DONE, _DONE2 = SCALARS.index(DONE), SCALARS.index(DONE2)
_SCALARS = "Scalars"

Sample = Mapping[str, Any]


class Ring:
    """See the module. ``size`` counts steps, ``frame_stack`` frames per observation, ``allocate`` makes the tensors.

    Hidden states of a feed-forward actor are zeros: one row stands for all of them.
    """

    def __init__(self, size: int, frame_stack: int, recurrent: bool, allocate: Allocator) -> None:
        self.size = size
        self.frame_stack = frame_stack
        self.recurrent = recurrent
        self.allocate = allocate
        self.pairs = ((OBS, OBS2), (RHS, RHS2)) if recurrent else ((OBS, OBS2),)
        self.num_envs = 0
        self.columns: dict[str, Tree] = {}
        self.constants: dict[str, Tree] = {}
        self.clear()

    def clear(self) -> None:
        """Forget everything; numbers begin at 0 again."""
        self.steps = self.length = 0
        self.aside = Aside(self.allocate.device)
        self._followed: Sample = {}

    @property
    def device(self) -> torch.device:
        return self.allocate.device

    @property
    def rows(self) -> int:
        return self.size + self.frame_stack

    @property
    def slots(self) -> int:
        """How many transitions there is room for; as a number modulo this, a transition has its place."""
        return self.rows * self.num_envs

    @property
    def oldest(self) -> int:
        """Number of the oldest transition."""
        return (self.steps - self.length) * self.num_envs

    @property
    def end(self) -> int:
        """Number after the newest transition."""
        return self.steps * self.num_envs

    def _allocate(self, sample: Sample) -> None:
        """Tensors for samples like this one. Stacks that are not what stacks look like are stored whole."""
        if self.frame_stack > 1 and not are_stacks(sample, self.frame_stack):
            self.frame_stack = 1
        self.num_envs = len(sample[REW])
        examples = {now: tree.index(self._single(now, sample[now]), 0) for now, _ in self.pairs}
        examples |= {ACT: sample[ACT][0], _SCALARS: torch.empty(len(SCALARS))}
        self.allocate.refuse_if_too_large(self.bytes_for(examples), f"a replay of {self.size} steps")
        self.columns = {key: self.allocate(example, self.rows, self.num_envs) for key, example in examples.items()}
        if not self.recurrent:
            self.constants = {key: tree.copy(tree.index(sample[key], slice(0, 1)), self.device) for key in (RHS, RHS2)}

    def bytes_for(self, examples: Mapping[str, Tree]) -> int:
        """What the columns of such rows take."""
        row = sum(leaf.numel() * leaf.element_size() for example in examples.values() for leaf in tree.leaves(example))
        return self.slots * row

    def _single(self, key: str, value: Tree) -> Tree:
        """What is stored of an observation or a hidden state."""
        return frame(value, self.frame_stack) if key == OBS else value

    # Writing

    def insert(self, sample: Sample) -> None:
        """Write one step over the oldest one; what is acted on only where it is not what followed the step before."""
        if not self.columns:
            self._allocate(sample)
        row, after = self.steps % self.rows, (self.steps + 1) % self.rows
        if any(sample[now] is not self._followed.get(now) for now, _ in self.pairs):
            self._begin(sample, row)
        for now, following in self.pairs:
            tree.copy_into(self.columns[now], after, self._single(now, sample[following]))
        tree.copy_into(self.columns[ACT], row, sample[ACT])
        tree.copy_into(self.columns[_SCALARS], row, torch.cat([sample[key] for key in SCALARS], 1))
        self._followed = {now: sample[following] for now, following in self.pairs}
        self.steps += 1
        self.length = min(self.length + 1, self.size)

    def _begin(self, sample: Sample, row: int) -> None:
        """Write what is acted on, and keep the successors aside that it is not.

        The first observation of an episode before the last one ended says that collection began anew: the step before
        is where the episode was cut off.
        """
        stored = {now: tree.index(self.columns[now], row) for now, _ in self.pairs}
        given = {now: tree.to(self._single(now, sample[now]), self.device) for now, _ in self.pairs}
        if self.length:
            envs = _different_rows(stored, given)
            if len(envs):
                self._refuse_unknown_frames(sample[OBS], envs)
                ids = (self.steps - 1) * self.num_envs + envs
                self.aside.append(ids, {now: tree.index(value, envs) for now, value in stored.items()}, self.oldest)
            ends = tree.first_leaf(self.columns[_SCALARS])[row - 1, :, _DONE2]
            ends.copy_(torch.maximum(ends, sample[DONE][:, 0].to(ends)))
        else:
            self._write_older_frames(sample[OBS], row)
        for now, value in given.items():
            tree.copy_into(self.columns[now], row, value)

    def _write_older_frames(self, obs: Tree, row: int) -> None:
        """Whole stacks, where no rows before can hold their older frames yet."""
        for back in range(1, self.frame_stack):
            tree.copy_into(self.columns[OBS], (row - back) % self.rows, frame(obs, self.frame_stack, back))
            tree.first_leaf(self.columns[_SCALARS])[(row - back) % self.rows, :, _DONE] = 0

    def _refuse_unknown_frames(self, obs: Any, envs: Tensor) -> None:
        if self.frame_stack > 1 and not repeats_one_frame(obs[envs.to(obs.device)], self.frame_stack):
            raise RLError(
                f"an episode begins with a stack that is not its first frame {self.frame_stack} times",
                "Frames are stored once and stacked again: repeat the first one, or leave frame_stack out of env_kwargs.",
            )

    # Reading

    def numbers(self, start: int | None = None) -> Tensor:
        """The transitions from number ``start`` on, or all of them, in time order."""
        return torch.arange(self.oldest if start is None else start, self.end, device=self.device)

    def scalars(self, ids: Tensor) -> Tensor:
        """Reward, Done, NextDone and NextTerminal of transitions, ``[*ids.shape, 4]``."""
        return self._take(_SCALARS, ids.flatten()).view(*ids.shape, len(SCALARS))  # type: ignore[union-attr]

    def transitions(self, ids: Tensor) -> dict[str, Tree]:
        """Whole transitions ``[B]``."""
        return self.acted_on(ids) | self.followed(ids)

    def acted_on(self, ids: Tensor) -> dict[str, Tree]:
        """What was acted on, what was done, and what it gave."""
        reward, done, _, _ = self.scalars(ids).split(1, dim=1)
        states = {now: self._now(now, ids) for now, _ in self.pairs}
        return {**self.constants, **states, DONE: done, ACT: self._take(ACT, ids), REW: reward}

    def followed(self, ids: Tensor) -> dict[str, Tree]:
        """What came after, and what it ended."""
        _, _, done, terminal = self.scalars(ids).split(1, dim=1)
        states = {following: self._next(now, ids) for now, following in self.pairs}
        return {**states, DONE2: done, TERMINAL: terminal}

    def _now(self, key: str, ids: Tensor) -> Tree:
        return self._stacks(self._history(ids)) if key == OBS and self.frame_stack > 1 else self._take(key, ids)

    def _next(self, key: str, ids: Tensor) -> Tree:
        """The next row, or what was kept aside instead."""
        after = ids + self.num_envs
        if key == OBS and self.frame_stack > 1:
            stacks = self._stacks(torch.cat([self._history(ids)[:, 1:], after[:, None]], 1))
            self.aside.overlay(frame(stacks, self.frame_stack), key, ids)
            return stacks
        successors = self._take(key, after)
        self.aside.overlay(successors, key, ids)
        return successors

    def _history(self, ids: Tensor) -> Tensor:
        """Where the frames of the stacks of ``ids`` lie, ``[B, k]``, oldest first; none before the episode's first."""
        frames = [ids]
        for _ in range(self.frame_stack - 1):
            begins = self.scalars(frames[-1])[:, _DONE].bool()
            frames.append(torch.where(begins, frames[-1], frames[-1] - self.num_envs))
        return torch.stack(frames[::-1], 1)

    def _stacks(self, history: Tensor) -> Tree:
        frames = self._take(OBS, history.flatten())
        return tree.tree_map(lambda frame: frame.unflatten(0, history.shape).flatten(1, 2), frames)

    def _take(self, key: str, ids: Tensor) -> Tree:
        """Rows of a column ``[B, …]``."""
        slots = ids % self.slots
        return tree.tree_map(lambda column: column.flatten(0, 1).index_select(0, slots), self.columns[key])

    # The whole

    def get_state(self, size: int | None = None) -> dict[str, Any]:
        """Everything that counts, in time order: the newest ``size`` steps, or all."""
        length = min(self.length, self.size if size is None else size)
        rows = self._rows(length)
        return {
            "steps": self.steps,
            "length": length,
            "num_envs": self.num_envs,
            "frame_stack": self.frame_stack,
            "columns": {key: tree.to(tree.index(value, rows), "cpu") for key, value in self.columns.items()},
            "constants": {key: tree.copy(value, "cpu") for key, value in self.constants.items()},
            "aside": self.aside.get_state((self.steps - length) * self.num_envs),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Put the steps of a state into rows of a ring of this ``size``, which may be another, but not too small."""
        self.steps, self.length = state["steps"], state["length"]
        self.num_envs, self.frame_stack = state["num_envs"], state["frame_stack"]
        rows = self._rows(self.length)
        self.columns = {}
        for key, value in state["columns"].items():
            self.columns[key] = self.allocate(tree.index(value, (0, 0)), self.rows, self.num_envs)  # type: ignore[arg-type]
            tree.copy_into(self.columns[key], rows, tree.to(value, self.device))
        self.constants = {key: tree.copy(value, self.device) for key, value in state["constants"].items()}
        self.aside.set_state(state["aside"])
        self._followed = {}

    def resize(self, size: int) -> None:
        """Another capacity; the newest steps that fit stay."""
        state = self.get_state(size)
        self.size = size
        if self.columns:
            self.set_state(state)

    def _rows(self, length: int) -> Tensor:
        """The rows of the newest ``length`` steps, of the older frames before and the successors behind them."""
        return torch.arange(self.steps - length - self.frame_stack + 1, self.steps + 1, device=self.device) % self.rows


def _different_rows(first: Mapping[str, Tree], second: Mapping[str, Tree]) -> Tensor:
    """Which of the rows ``[N, …]`` of two observations, hidden states included, are not the same."""
    found = [
        leaf
        for key, value in first.items()
        for leaf in tree.leaves(tree.tree_zip(lambda a, b: (a != b).reshape(len(a), -1).any(1), value, second[key]))
    ]
    return torch.stack(found).any(0).nonzero().flatten()
