"""A world for replay storages: every observation is recognizable, and what happened is remembered as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from pytorchrl.keys import ACT, DONE, DONE2, OBS, OBS2, REW, RHS, RHS2, TERMINAL

GAMMA = 0.9


class Transition(NamedTuple):
    """One environment's step. ``obs`` and ``obs2`` are codes, or tuples of the codes of a stack's frames."""

    env: int
    obs: Any
    done: float
    action: int
    reward: float
    obs2: Any
    done2: float
    terminal: float
    begins: bool


def frame(code: int) -> Tensor:
    """One channel of 2 x 3 bytes that are a code."""
    return torch.tensor([code % 256, code // 256 % 256, code // 65536, 7, 7, 7], dtype=torch.uint8).view(1, 2, 3)


def code_of(pixels: Tensor) -> int:
    low, middle, high = pixels.flatten()[:3].tolist()
    return low + 256 * middle + 65536 * high


@dataclass
class World:
    """Hands out samples as a Collector does. ``kind``: vector, dict, image or, of ``stack`` frames, a stack."""

    kind: str = "vector"
    num_envs: int = 2
    seed: int = 0
    stack: int = 1
    ends: float = 0.25
    history: list[list[Transition]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.count = 0
        self.restart()

    def _new(self) -> int:
        self.count += 1
        return self.count * 37

    def _first(self) -> tuple[int, ...]:
        return (self._new(),) * self.stack

    def restart(self) -> None:
        """New episodes everywhere; the ones before had no end."""
        self.codes = [self._first() for _ in range(self.num_envs)]
        self.done, self.begins = [1.0] * self.num_envs, [True] * self.num_envs
        self.obs = self.encode(self.codes)

    def jump(self) -> None:
        """Into the middle of other episodes, as when another collector's steps are appended."""
        self.codes = [tuple(self._new() for _ in range(self.stack)) for _ in range(self.num_envs)]
        self.done, self.begins = [0.0] * self.num_envs, [True] * self.num_envs
        self.obs = self.encode(self.codes)

    def encode(self, codes: list[tuple[int, ...]]) -> Any:
        if self.kind == "image":
            return torch.stack([torch.cat([frame(code) for code in stack]) for stack in codes])
        vector = torch.tensor([[stack[-1], -stack[-1]] for stack in codes], dtype=torch.float32)
        return {"observation": vector, "other": vector[:, :1].long()} if self.kind == "dict" else vector

    def decode(self, obs: Any) -> list[tuple[int, ...]]:
        if self.kind == "image":
            return [tuple(code_of(pixels) for pixels in row.split(1)) for row in obs]
        obs = obs["observation"] if self.kind == "dict" else obs
        return [(int(value),) for value in obs[:, 0]]

    def sample(self, ended: Any = None, terminal: Any = None) -> dict[str, Any]:
        N = self.num_envs
        ended = self.random.random(N) < self.ends if ended is None else np.asarray(ended, bool)
        terminal = ended & (self.random.random(N) < 0.5) if terminal is None else np.asarray(terminal, bool)
        successors = [(*stack[1:], self._new()) for stack in self.codes]
        actions, rewards = self.random.integers(0, 5, N), self.random.integers(-3, 4, N)
        obs2 = self.encode(successors)
        sample = {
            OBS: self.obs,
            RHS: {"policy": torch.zeros(N, 1)},
            DONE: torch.tensor(self.done)[:, None],
            ACT: torch.from_numpy(actions)[:, None],
            REW: torch.from_numpy(rewards).float()[:, None],
            OBS2: obs2,
            RHS2: {"policy": torch.zeros(N, 1)},
            DONE2: torch.from_numpy(ended).float()[:, None],
            TERMINAL: torch.from_numpy(terminal).float()[:, None],
            "unknown": "ignored",
        }
        self.history.append(
            [
                Transition(
                    n,
                    self.codes[n],
                    self.done[n],
                    int(actions[n]),
                    float(rewards[n]),
                    successors[n],
                    float(ended[n]),
                    float(terminal[n]),
                    self.begins[n],
                )
                for n in range(N)
            ]
        )
        self.done = [float(e) for e in ended]
        self.begins = [bool(e) for e in ended]
        self.codes = [self._first() if ended[n] else successors[n] for n in range(N)]
        self.obs = self.encode(self.codes) if ended.any() else obs2
        return sample

    def build(self, cls: Any, size: int, **kwargs: Any) -> Any:
        """A storage for this world, with γ of GAMMA."""
        env_kwargs = {"frame_stack": self.stack} if self.stack > 1 else {}
        envs = None if not env_kwargs else SimpleNamespace(num_envs=self.num_envs, env_kwargs=env_kwargs, **SPACES)
        torch.manual_seed(self.seed)
        overlap = kwargs.pop("overlap", None)
        actor = SimpleNamespace(
            is_recurrent=overlap is not None,
            sequence_overlap=overlap,
            initial_rhs=lambda count: {"policy": torch.zeros(count, 1)},
        )
        return cls(size, "cpu", actor, SimpleNamespace(gamma=GAMMA), envs, **kwargs)

    def fill(self, storage: Any, steps: int) -> Any:
        for _ in range(steps):
            storage.insert_transition(self.sample())
        return storage

    def rows_of(self, batch: Any) -> list[tuple[Any, ...]]:
        """(obs, done, action, reward, obs2, done2, terminal) of each row of a batch, decoded."""
        columns = [batch[key].flatten().tolist() for key in (DONE, ACT, REW, DONE2, TERMINAL)]
        done, action, reward, done2, terminal = columns
        rows = zip(
            self.decode(batch[OBS]), done, action, reward, self.decode(batch[OBS2]), done2, terminal, strict=True
        )
        return list(rows)


SPACES = {"observation_space": Box(0, 255, (1, 2, 3), np.uint8), "action_space": Discrete(5)}


def window(history: list[list[Transition]], t: int, env: int, n: int) -> tuple[int, float, Transition]:
    """(m, Σ γᵏ r, last transition) of the n-step window from step t on, straight from the definition."""
    total, m = 0.0, 0
    while True:
        step = history[t + m][env]
        total += GAMMA**m * step.reward
        m += 1
        over = t + m >= len(history) or step.done2 or history[t + m][env].begins
        if m == n or over:
            return m, total, step
