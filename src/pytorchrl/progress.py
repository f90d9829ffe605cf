"""The figures of a run: averaged between log rows, written to its logs, saved with its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.env.vec_env import Episode
from pytorchrl.learner import Learner, mean
from pytorchrl.logs import RunLog
from pytorchrl.scheme.scheme import Round

Figures = dict[str, float]


class Progress:
    """What a run has shown so far.

    Parameters
        learner: whose steps are counted.
        log: where rows go.
        log_every: environment steps between rows.
    """

    def __init__(self, learner: Learner, log: RunLog, log_every: int) -> None:
        self.learner = learner
        self.log = log
        self.log_every = log_every
        self.best: float | None = None
        self.improved = False
        self._losses: dict[str, list[Tensor]] = {}
        self._evaluation: float | None = None
        self._before = 0.0
        self._started = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds of training, those before a resume included."""
        return self._before + time.monotonic() - self._started

    def note(self, before: int, result: Round) -> tuple[Figures, bool]:
        """Take over a round that began at step ``before``; the figures, and whether they went to the log."""
        for name, value in result.losses.items():
            self._losses.setdefault(name, []).append(value)
        self.log.finished([self._episode(before + offset, episode) for offset, episode in result.episodes])
        self.improved = False
        if self.learner.last_evaluation:
            self._evaluation = mean(episode.ret for episode in self.learner.last_evaluation)
            self.improved = self.best is None or self._evaluation > self.best
            self.best = self._evaluation if self.improved else self.best
        steps = self.learner.steps
        last = self.learner.ended or steps >= self.learner.target_steps
        due = last or steps // self.log_every > before // self.log_every
        figures = self.figures()
        if due:
            figures |= {f"train/{name}": torch.stack(values).mean().item() for name, values in self._losses.items()}
            self.log.row(figures)
            self._losses, self._evaluation = {}, None
        return figures, due

    def figures(self) -> Figures:
        """The columns of a log row, but the losses."""
        learner, elapsed = self.learner, self.elapsed
        figures = {
            "time/total_timesteps": learner.steps,
            "time/time_elapsed": round(elapsed, 3),
            "time/fps": round(learner.steps / max(elapsed, 1e-9), 1),
            "train/n_updates": learner.updates,
            "scheme/policy_lag": 0.0,
            "scheme/gradient_asynchrony": 0.0,
        }
        if learner.recent:
            figures["rollout/ep_rew_mean"] = mean(episode.ret for episode in learner.recent)
            figures["rollout/ep_len_mean"] = mean(episode.length for episode in learner.recent)
        if self._evaluation is not None:
            figures["eval/mean_reward"] = self._evaluation
        return figures

    def _episode(self, steps: int, episode: Episode) -> Figures:
        return {"steps": steps, "seconds": round(self.elapsed, 3), "return": episode.ret, "length": episode.length}

    def get_state(self) -> dict[str, Any]:
        return {
            "elapsed": self.elapsed,
            "best": self.best,
            "evaluation": self._evaluation,
            "losses": self._losses,
            "log": self.log.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._before = state["elapsed"]
        self.best, self._evaluation = state["best"], state["evaluation"]
        self._losses = state["losses"]
        self.log.set_state(state["log"])
