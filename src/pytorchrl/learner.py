"""Learner: runs a scheme to a number of environment steps, and keeps the score."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pytorchrl.agent.env.vec_env import Episode
from pytorchrl.console import say
from pytorchrl.errors import ConfigError
from pytorchrl.keys import ALGORITHM, EPISODES, SCHEME, TIME
from pytorchrl.scheme.scheme import Round, Scheme

# (learner, its last round) -> True to end the run.
Callback = Callable[["Learner", Round], "bool | None"]

# The window of "mean return" in logs and panels.
RECENT_EPISODES = 100


class Learner:
    """Steps a scheme until ``target_steps`` environment steps.

    Parameters
        scheme: what collects and learns.
        target_steps: environment steps to run for.
        log_dir: where ``save_model`` writes.
        anneal: algorithm parameters that move linearly from their value to the given one over the run.
        eval_every: environment steps between evaluations; None leaves it to the algorithm's ``test_every`` updates.
        callbacks: functions of the learner and its last round, called after every round; one that returns True ends
            the run there.
    """

    def __init__(
        self,
        scheme: Scheme,
        target_steps: int,
        log_dir: str | Path | None = None,
        *,
        anneal: Mapping[str, float] | None = None,
        eval_every: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.scheme = scheme
        self.target_steps = target_steps
        self.log_dir = None if log_dir is None else Path(log_dir)
        self.eval_every = eval_every
        self.callbacks = list(callbacks)
        self.ended = False
        self.steps = 0
        self.updates = 0
        self.recent: deque[Episode] = deque(maxlen=RECENT_EPISODES)
        self.last_round: Round | None = None
        self.last_evaluation: list[Episode] = []
        self._anneal = {name: (float(getattr(scheme.algorithm, name)), end) for name, end in (anneal or {}).items()}
        self._started = time.monotonic()
        self._closed = False

    def step(self) -> Round:
        """One round of the scheme; evaluates when an interval has passed."""
        for name, (start, end) in self._anneal.items():
            fraction = min(self.steps / self.target_steps, 1.0)
            self.scheme.algorithm.update_algorithm_parameter(name, start + fraction * (end - start))
        result = self.scheme.step()
        before = (self.steps, self.updates)
        self.steps += result.env_steps
        self.updates += result.updates
        self.recent.extend(episode for _, episode in result.episodes)
        self.last_round = result
        self.last_evaluation = self.scheme.evaluate() if self._evaluation_is_due(*before) else []
        for callback in self.callbacks:
            self.ended |= callback(self, result) is True
        return result

    def _evaluation_is_due(self, steps: int, updates: int) -> bool:
        if self.eval_every is not None:
            return self.eval_every > 0 and self.steps // self.eval_every > steps // self.eval_every
        every = self.scheme.algorithm.test_every
        return every > 0 and self.updates // every > updates // every

    def get_state(self) -> dict[str, Any]:
        """The scheme's state and the score so far."""
        recent = [tuple(episode) for episode in self.recent]
        return {
            "steps": self.steps,
            "updates": self.updates,
            "recent": recent,
            "scheme": self.scheme.get_state(self.steps),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; the actor's weights are loaded before."""
        self.steps, self.updates = state["steps"], state["updates"]
        self.recent.extend(Episode(*episode) for episode in state["recent"])
        self.scheme.set_state(state["scheme"])

    def done(self) -> bool:
        """Whether the target is reached, or a callback ended the run; closes the environments then."""
        reached = self.ended or self.steps >= self.target_steps
        if reached:
            self.stop()
        return reached

    def stop(self) -> None:
        """Close the environments; may be called more than once."""
        if not self._closed:
            self._closed = True
            self.scheme.close()

    def get_metrics(
        self,
        add_algo_metrics: bool = True,
        add_episodes_metrics: bool = False,
        add_scheme_metrics: bool = False,
        add_time_metrics: bool = False,
    ) -> dict[str, float]:
        """The last round's figures under ``Section/name``."""
        metrics: dict[str, float] = {}
        if add_algo_metrics and self.last_round is not None:
            metrics |= {f"{ALGORITHM}/{name}": value.item() for name, value in self.last_round.losses.items()}
        if add_episodes_metrics and self.recent:
            metrics[f"{EPISODES}/TrainReward"] = mean(episode.ret for episode in self.recent)
            metrics[f"{EPISODES}/TrainLength"] = mean(episode.length for episode in self.recent)
        if add_episodes_metrics and self.last_evaluation:
            metrics[f"{EPISODES}/TestReward"] = mean(episode.ret for episode in self.last_evaluation)
        if add_scheme_metrics:
            metrics[f"{SCHEME}/NumberSamples"] = self.steps
            metrics[f"{SCHEME}/NumberUpdates"] = self.updates
        if add_time_metrics:
            elapsed = time.monotonic() - self._started
            metrics[f"{TIME}/Elapsed"] = elapsed
            metrics[f"{TIME}/FramesPerSecond"] = self.steps / max(elapsed, 1e-9)
        return metrics

    def print_info(self) -> None:
        """One line about the last round."""
        metrics = self.get_metrics(add_episodes_metrics=True, add_time_metrics=True)
        figures = "  ".join(f"{name.split('/')[1]} {value:.4g}" for name, value in metrics.items())
        say(f"{self.steps:,} of {self.target_steps:,} steps  {figures}")

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: Any) -> None:
        """Change a parameter of the running algorithm."""
        self.scheme.algorithm.update_algorithm_parameter(parameter_name, new_parameter_value)

    def save_model(self, fname: str = "model.state_dict") -> Path:
        """The actor's weights alone, as a state dict under ``log_dir``."""
        if self.log_dir is None:
            raise ConfigError("save_model needs a folder", "Give the Learner a log_dir.")
        self.log_dir.mkdir(parents=True, exist_ok=True)
        path = self.log_dir / fname
        torch.save(self.scheme.actor.state_dict(), path)
        return path


def mean(values: Any) -> float:
    """The mean of a non-empty iterable."""
    numbers = list(values)
    return float(sum(numbers) / len(numbers))
