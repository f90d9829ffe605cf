"""Hindsight experience replay (HER, arXiv 1707.01495)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.base import Sample
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.errors import ConfigError
from pytorchrl.keys import DONE2, OBS, OBS2, REW, RHS, RHS2, TERMINAL
from pytorchrl.parameters import NonNegativeInt, PositiveInt
from pytorchrl.tree import Tree

# (o, rhs, o2, rhs2, r, initial_state, final_state) → (o, rhs, o2, rhs2, r), all of them batches of rows.
HERFunction = Callable[..., Any]


class GoalRelabelling:
    """The ``her_function`` of an environment with Gymnasium's goal interface.

    Observations are dicts with ``observation``, ``achieved_goal`` and ``desired_goal``. The goal becomes what the final
    state achieved, and the reward ``compute_reward(achieved_goal, desired_goal, info)`` of whole batches says what it
    is worth; ``compute_terminated``, where there is one, whether the MDP ends there.
    """

    def __init__(
        self, compute_reward: Callable[..., Any], compute_terminated: Callable[..., Any] | None = None
    ) -> None:
        self.compute_reward = compute_reward
        self.compute_terminated = compute_terminated

    def __call__(
        self, o: Any, rhs: Tree, o2: Any, rhs2: Tree, r: Tensor, initial_state: Any, final_state: Any
    ) -> tuple[Tree, Tree, Tree, Tree, Tensor]:
        goal = final_state["achieved_goal"]
        o, o2 = {**o, "desired_goal": goal}, {**o2, "desired_goal": goal}
        return o, rhs, o2, rhs2, self._column(self.compute_reward, o2, r)

    def terminal(self, o2: Any, terminal: Tensor) -> Tensor:
        """NextTerminal of relabelled transitions; as it was if the environment does not say."""
        return terminal if self.compute_terminated is None else self._column(self.compute_terminated, o2, terminal)

    @staticmethod
    def _column(function: Callable[..., Any], o2: Any, like: Tensor) -> Tensor:
        achieved, desired = (o2[key].cpu().numpy() for key in ("achieved_goal", "desired_goal"))
        values = np.asarray(function(achieved, desired, {}), np.float32)
        if values.size != len(achieved):
            raise ConfigError(f"{function} gave {values.size} values for a batch of {len(achieved)} goals")
        return torch.from_numpy(values.reshape(-1, 1)).to(like)


class HERBuffer(ReplayBuffer):
    """Replay in which most transitions are seen with a goal that their own episode reached.

    For every transition with its own goal, ``num_goals`` are drawn with another one. They are made when they are drawn:
    that takes no room, any number of environments and episodes of any length, and goals are new in every draw. Only
    episodes that ended are relabelled; of one that is partly written over, what is left.

    Parameters
        her_function: (o, rhs, o2, rhs2, r, initial_state, final_state) -> (o, rhs, o2, rhs2, r) on batches of rows;
            null: the ``compute_reward`` of the environments.
        strategy: where final_state comes from: the "final" state of the episode, a "future" one from the transition
            on, or any of the "episode".
        num_goals: relabelled draws per draw with the goal that was pursued.
    """

    # Two int64 per transition: where its episode began, and ended.
    overhead = 16

    def __init__(
        self,
        size: PositiveInt,
        device: torch.device | str,
        actor: Actor,
        algorithm: Algorithm | None,
        envs: VecEnv | None,
        her_function: HERFunction | None = None,
        *,
        strategy: Literal["future", "final", "episode"] = "future",
        num_goals: NonNegativeInt = 4,
        memmap: str | None = None,
    ) -> None:
        super().__init__(size, device, actor, algorithm, envs, memmap=memmap)
        if self.ring.recurrent:
            raise ConfigError("HERBuffer has no sequences for actors with memory", "Take a feed-forward actor.")
        self.her_function: HERFunction = _relabelling_of(envs) if her_function is None else her_function
        self.strategy = strategy
        self.num_goals = num_goals
        self._begins = self._ends = self._began = torch.empty(0, dtype=torch.int64)

    def insert_transition(self, sample: Sample) -> None:
        """Store one step; an episode that ended, or was cut off, becomes one to learn goals from."""
        t = self.ring.steps
        fresh = self.ring.length == 0
        super().insert_transition(sample)
        if fresh:
            self._forget_episodes()
            self._began[:] = t
        begins = self.ring.begins.cpu()
        self._close((begins & (self._began < t)).nonzero().flatten(), t - 1)
        self._began[begins] = t
        row = t % self.ring.rows
        self._begins[row], self._ends[row] = self._began, -1
        ended = (sample[DONE2].flatten().cpu() > 0).nonzero().flatten()
        self._close(ended, t)
        self._began[ended] = t + 1

    def _forget_episodes(self) -> None:
        shape = (self.ring.rows, self.ring.num_envs)
        self._begins, self._ends = torch.zeros(shape, dtype=torch.int64), torch.full(shape, -1)
        self._began = torch.zeros(self.ring.num_envs, dtype=torch.int64)

    def _close(self, envs: Tensor, last: int) -> None:
        """The episodes of these environments ended with step ``last``."""
        for env in envs.tolist():
            first = max(int(self._began[env]), self.ring.steps - self.ring.length)
            self._ends[torch.arange(first, last + 1) % self.ring.rows, env] = last

    def _assembled(self, ids: Tensor) -> dict[str, Tree]:
        batch = super()._assembled(ids)
        ids = ids.cpu()
        slots = ids % self.ring.slots
        end = self._ends.flatten()[slots]
        share = self.num_goals / (1 + self.num_goals)
        chosen = (torch.rand(len(ids), generator=self.generator) < share) & (end >= 0)
        rows = chosen.nonzero().flatten()
        if len(rows):
            env, now = ids[rows] % self.ring.num_envs, ids[rows] // self.ring.num_envs
            oldest = self.ring.steps - self.ring.length
            begin = self._begins.flatten()[slots[rows]].clamp(min=oldest)
            goal = self._goal_steps(begin, now, end[rows])
            self._relabel(batch, rows, *(self._at(step, env) for step in (begin, goal)))
        return batch

    def _goal_steps(self, begin: Tensor, now: Tensor, end: Tensor) -> Tensor:
        """The steps whose successors are the final states."""
        if self.strategy == "final":
            return end
        first = now if self.strategy == "future" else begin
        u = torch.rand(len(end), dtype=torch.float64, generator=self.generator)
        return first + (u * (end + 1 - first)).long()

    def _at(self, step: Tensor, env: Tensor) -> dict[str, Tree]:
        return self.ring.transitions((step * self.ring.num_envs + env).to(self.ring.device))

    def _relabel(
        self, batch: dict[str, Tree], rows: Tensor, begin: Mapping[str, Tree], goal: Mapping[str, Tree]
    ) -> None:
        rows = rows.to(self.ring.device)
        done, terminal = (tree.first_leaf(batch[key])[rows] for key in (DONE2, TERMINAL))
        constants = self.ring.constants
        keys = (OBS, RHS, OBS2, RHS2, REW)
        parts = [batch[key] if key in constants else tree.index(batch[key], rows) for key in keys]
        made = dict(zip(keys, self.her_function(*parts, begin[OBS], goal[OBS2]), strict=True))
        if isinstance(self.her_function, GoalRelabelling):
            made[TERMINAL] = self.her_function.terminal(made[OBS2], terminal)
            made[DONE2] = torch.maximum(done, made[TERMINAL])
        for key, value in made.items():
            if key not in constants:
                batch[key] = tree.copy(batch[key], self.ring.device)  # stacks and their successors share frames
                tree.copy_into(batch[key], rows, value)

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {
            "episodes": {"begins": self._begins, "ends": self._ends, "began": self._began},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        episodes = {name: value.clone() for name, value in state["episodes"].items()}
        self._begins, self._ends, self._began = episodes["begins"], episodes["ends"], episodes["began"]

    def _set_parameter(self, name: str, value: Any) -> None:
        """A new ``size`` moves rows."""
        before = self.ring.rows
        super()._set_parameter(name, value)
        if name == "size" and self.size:
            steps = torch.arange(self.ring.steps - self.ring.length, self.ring.steps)
            begins, ends, began = self._begins[steps % before], self._ends[steps % before], self._began
            self._forget_episodes()
            self._begins[steps % self.ring.rows], self._ends[steps % self.ring.rows] = begins, ends
            self._began = began


def _relabelling_of(envs: VecEnv | None) -> GoalRelabelling:
    """What the environments of this process say about goals themselves."""
    env = next((env.unwrapped for env in getattr(getattr(envs, "backend", None), "envs", ())), None)
    compute_reward = getattr(env, "compute_reward", None)
    if compute_reward is None:
        raise ConfigError(
            "her_function: there are no environments in this process with compute_reward(achieved_goal, desired_goal, "
            "info)",
            "Give one, GoalRelabelling(compute_reward) for example; or take a goal environment, with backend sync.",
        )
    return GoalRelabelling(compute_reward, getattr(env, "compute_terminated", None))
