"""The planners of the model-based algorithms: a pure planner each, and the settings that travel with the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pytorchrl.functional.planning import (
    Score,
    categorical_cross_entropy,
    cross_entropy,
    random_shooting,
    reward_weighted,
    shifted,
)

# Standard deviation of the noise on actions, in [−1, 1] units.
ACTION_NOISE = 0.005


class Planner(nn.Module):
    """Plans anew from the plan of the step before. A policy that is loaded alone must plan as it did in training, so
    ``settings`` are part of the state dict.

    Parameters
        discrete: whether a plan holds scores of choices.
    """

    defaults: ClassVar[Mapping[str, float]] = {}

    def __init__(self, discrete: bool = False) -> None:
        super().__init__()
        self.discrete = discrete
        self.settings: dict[str, Any] = {"action_noise": False, **self.defaults}

    def get_extra_state(self) -> Tensor:
        return torch.tensor([float(value) for value in self.settings.values()], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        values = state.tolist()
        if len(values) != len(self.settings) or not all(map(math.isfinite, values)):
            raise RuntimeError(f"{type(self).__name__} needs {', '.join(self.settings)}, got {values}")
        for (name, old), value in zip(list(self.settings.items()), values, strict=True):
            self.settings[name] = type(old)(value)

    def search(
        self, score: Score, plan: Tensor, previous: Tensor, generator: torch.Generator, candidates: int
    ) -> tuple[Tensor, Tensor]:
        """(plan, what it seems to be worth `[N]`) from a first guess and the action before it."""
        raise NotImplementedError

    def forward(
        self, score: Score, last: Tensor, generator: torch.Generator, candidates: int, explores: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(action `[N, A]`, plan, what it seems to be worth `[N]`) after the ``last`` plan, zeros at first."""
        plan, value = self.search(score, shifted(last), last[:, 0], generator, candidates)
        action = plan[:, 0]
        if explores and self.settings["action_noise"]:
            noise = ACTION_NOISE * torch.randn(action.shape, generator=generator)
            action = (action + noise.to(action)).clamp(-1, 1)
        return action, plan, value


class RandomShooting(Planner):
    """The best of random plans."""

    def search(
        self, score: Score, plan: Tensor, previous: Tensor, generator: torch.Generator, candidates: int
    ) -> tuple[Tensor, Tensor]:
        return random_shooting(score, plan, generator, candidates)


class CrossEntropy(Planner):
    """Gaussians over plans, or frequencies of choices, fitted to the best again and again."""

    defaults: ClassVar = {
        "lb": -1.0,
        "ub": 1.0,
        "k_best": 5,
        "iter_update_steps": 3,
        "epsilon": 0.001,
        "update_alpha": 0.0,
    }

    def search(
        self, score: Score, plan: Tensor, previous: Tensor, generator: torch.Generator, candidates: int
    ) -> tuple[Tensor, Tensor]:
        named = {"iterations": "iter_update_steps", **{key: key for key in ("k_best", "epsilon", "update_alpha")}}
        chosen = {key: self.settings[name] for key, name in named.items()}
        if self.discrete:
            return categorical_cross_entropy(score, plan, generator, candidates, **chosen)
        bounds = {key: self.settings[key] for key in ("lb", "ub")}
        return cross_entropy(score, plan, generator, candidates, **bounds, **chosen)


class RewardWeighted(Planner):
    """Smooth noise on the last plan, averaged by what it earns."""

    defaults: ClassVar = {"gamma": 1.0, "beta": 0.5}

    def search(
        self, score: Score, plan: Tensor, previous: Tensor, generator: torch.Generator, candidates: int
    ) -> tuple[Tensor, Tensor]:
        chosen = {name: self.settings[name] for name in self.defaults}
        return reward_weighted(score, plan, previous, generator, candidates, **chosen)


# By the algorithm that plans with it.
PLANNERS: dict[str, type[Planner]] = {"MPC_RS": RandomShooting, "MPC_CEM": CrossEntropy, "MPC_PDDM": RewardWeighted}
