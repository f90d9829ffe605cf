"""Demonstrations that are replayed in the place of environment steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.storages.demos import ID, LENGTH, MAX_VALUE, Demo
from pytorchrl.keys import ACT, DONE2, LOGP, OBS, OBS2, REW, TERMINAL, VAL
from pytorchrl.tree import Tree

# What the rows of a replayed step take from the demo.
_FROM_DEMO = (ACT, REW, LOGP, OBS2, DONE2, TERMINAL)


@dataclass
class Replay:
    """A demo that is being replayed, up to step ``position``; ``max_value`` is the largest V(o) on the way."""

    demo: Demo
    position: int = 0
    max_value: float = -np.inf

    @property
    def at_last(self) -> bool:
        """Whether the step at ``position`` is the demo's last one."""
        return bool(self.position == self.demo[LENGTH] - 1)

    def observation(self, frame_stack: int, ahead: int = 0) -> Tree:
        """What is acted on: the frames up to ``position`` (+ ``ahead``), oldest first, the first one repeated."""
        last = min(self.position + ahead, self.demo[LENGTH] - 1)
        frames = np.maximum(np.arange(last - frame_stack + 1, last + 1), 0)

        def stacked(part: Any) -> Tensor:
            return torch.from_numpy(part[frames].reshape(-1, *part.shape[2:]))

        return tree.tree_map(stacked, self.demo[OBS])

    def action(self) -> Tensor:
        return torch.from_numpy(self.demo[ACT][self.position])

    def reward(self) -> float:
        return float(self.demo[REW][self.position, 0])


class Replays:
    """Which demo is replayed in which environment, and how far.

    Parameters
        frame_stack: frames that an observation is made of.
    """

    def __init__(self, frame_stack: int) -> None:
        self.frame_stack = frame_stack
        self.running: dict[int, Replay] = {}
        self.ended: list[int] = []  # environments whose replay has ended, and which have not gone on since

    def begin(self, env: int, demo: Demo | None) -> None:
        """Replay a demo from its start, or nothing."""
        self.running.pop(env, None)
        if demo is not None:
            self.running[env] = Replay(demo)

    def clear(self) -> None:
        self.running, self.ended = {}, []

    def inputs(self, obs: Tree, rhs: dict[str, Tensor], done: Tensor) -> tuple[Tree, dict[str, Tensor], Tensor]:
        """Copies of what to act on, with the demos' observations, and hidden states 0 where a demo begins."""
        obs, done = tree.tree_map(Tensor.clone, obs), done.clone()
        begun = [env for env, replay in self.running.items() if replay.position == 0]
        if begun:
            rhs = {key: state.index_fill(0, torch.tensor(begun, device=state.device), 0) for key, state in rhs.items()}
        for env, replay in self.running.items():
            tree.copy_into(obs, env, replay.observation(self.frame_stack))
            done[env] = float(replay.position == 0)
        return obs, rhs, done

    def written_over(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample with the demos' action, reward, successor and end, at log-probability 0: they are certain."""
        changed: dict[str, Any] = {key: tree.tree_map(Tensor.clone, sample[key]) for key in _FROM_DEMO if key in sample}
        values = tree.first_leaf(sample[VAL])
        for env, replay in self.running.items():
            tree.copy_into(changed[ACT], env, replay.action())
            tree.copy_into(changed[OBS2], env, replay.observation(self.frame_stack, ahead=1))
            tree.first_leaf(changed[REW])[env] = replay.reward()
            changed[DONE2][env] = changed[TERMINAL][env] = float(replay.at_last)
            if LOGP in changed:
                changed[LOGP][env] = 0.0
            replay.max_value = max(replay.max_value, float(values[env]))
        return {**sample, **changed}

    def go_on(self) -> None:
        """Every replay by one step; at its end, a value demo is worth what its replay showed."""
        for env, replay in list(self.running.items()):
            if replay.at_last:
                if MAX_VALUE in replay.demo:
                    replay.demo[MAX_VALUE] = replay.max_value
                del self.running[env]
                self.ended.append(env)
            else:
                replay.position += 1

    def demos(self) -> list[Demo]:
        """What is being replayed, perhaps no longer kept elsewhere."""
        return [replay.demo for replay in self.running.values()]

    def get_state(self) -> dict[str, Any]:
        running = [(env, r.demo[ID], r.position, r.max_value) for env, r in self.running.items()]
        return {"running": running, "ended": list(self.ended)}

    def set_state(self, state: Mapping[str, Any], demos: Mapping[int, Demo]) -> None:
        self.running = {env: Replay(demos[number], *rest) for env, number, *rest in state["running"]}
        self.ended = list(state["ended"])
