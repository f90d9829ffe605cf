"""Rewards and ends of well-known environments as functions of a transition, for planning with a learned model.

Each takes rows of (observation, action, next observation), ``[B, …]``, and gives ``[B, 1]``. They equal what the
environments give; where a velocity is averaged over a step there, it is the one at its end here, which is what an
observation holds. The environment's own reward is told by family: "Pendulum" for Pendulum-v1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from pytorchrl.errors import ConfigError, suggestion

OfTransition = Callable[[Tensor, Tensor, Tensor], Tensor]


def _effort(action: Tensor) -> Tensor:
    return action.square().sum(1, keepdim=True)


def _truth(condition: Tensor) -> Tensor:
    return condition.to(torch.float32).unsqueeze(1)


# Ends


def cartpole_fell(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    """The cart is further than 2.4 from the center, or the pole more than 12° from upright."""
    return _truth((s2[:, 0].abs() > 2.4) | (s2[:, 2].abs() > 12 * 2 * math.pi / 360))


def inverted_pendulum_fell(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    """The pole is more than 0.2 from upright."""
    return _truth(s2[:, 1].abs() > 0.2)


def acrobot_is_up(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    """−cos θ₁ − cos(θ₁ + θ₂) > 1."""
    cos1, sin1, cos2, sin2 = s2[:, :4].unbind(1)
    return _truth(-cos1 - (cos1 * cos2 - sin1 * sin2) > 1.0)


def mountain_is_climbed(s: Tensor, a: Tensor, s2: Tensor, goal: float) -> Tensor:
    """The car is at the goal and not on its way back."""
    return _truth((s2[:, 0] >= goal) & (s2[:, 1] >= 0))


def hopper_fell(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    """Too low, leaning too far, or a state out of bounds."""
    fine = (s2[:, 0] > 0.7) & (s2[:, 1].abs() < 0.2) & (s2[:, 1:].abs() < 100.0).all(1)
    return _truth(~fine)


def walker_fell(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    """Too low or too high, or leaning too far."""
    fine = (s2[:, 0] > 0.8) & (s2[:, 0] < 2.0) & (s2[:, 1].abs() < 1.0)
    return _truth(~fine)


# Rewards


def one_per_step(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    """1 for every step, the last included."""
    return torch.ones(len(s), 1, device=s.device)


def pendulum(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    """−(θ² + 0.1·θ̇² + 0.001·u²), of the state before the step."""
    theta = torch.atan2(s[:, 1], s[:, 0])
    cost = theta.square() + 0.1 * s[:, 2].square()
    return -(cost.unsqueeze(1) + 0.001 * _effort(a))


def cartpole_angle(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    """cos θ − 0.01·x² (arXiv 1907.02057): tells more than one per step about what comes."""
    return (s2[:, 2].cos() - 0.01 * s2[:, 0].square()).unsqueeze(1)


def inverted_pendulum_angle(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    """−θ² (arXiv 1907.02057)."""
    return -s2[:, 1:2].square()


def unless(end: OfTransition, s: Tensor, a: Tensor, s2: Tensor, alive: float, over: float) -> Tensor:
    """``alive`` where the episode goes on, ``over`` where it ends."""
    return torch.where(end(s, a, s2) > 0, over, alive)


def mountain_car_continuous(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    """100 at the goal, less the effort."""
    return 100.0 * mountain_is_climbed(s, a, s2, 0.45) - 0.1 * _effort(a)


def reacher(s: Tensor, a: Tensor, s2: Tensor) -> Tensor:
    """−‖fingertip − target‖ − ‖a‖²."""
    distance = s2[:, 8:10].square().sum(1, keepdim=True).sqrt()
    return -distance - _effort(a)


def forward(
    s: Tensor, a: Tensor, s2: Tensor, speed: int, effort: float, end: OfTransition | None = None, healthy: float = 1.0
) -> Tensor:
    """Forward speed less the effort, and a bonus for not having fallen."""
    reward = s2[:, speed : speed + 1] - effort * _effort(a)
    return reward if end is None else reward + healthy * (1.0 - end(s, a, s2))


climbed = partial(mountain_is_climbed, goal=0.5)
climbed_continuous = partial(mountain_is_climbed, goal=0.45)

REWARDS: dict[str, OfTransition] = {
    "CartPole": one_per_step,
    "CartPoleAngle": cartpole_angle,
    "Pendulum": pendulum,
    "Acrobot": partial(unless, acrobot_is_up, alive=-1.0, over=0.0),
    "MountainCar": partial(unless, climbed, alive=-1.0, over=-1.0),
    "MountainCarContinuous": mountain_car_continuous,
    "InvertedPendulum": partial(unless, inverted_pendulum_fell, alive=1.0, over=0.0),
    "InvertedPendulumAngle": inverted_pendulum_angle,
    "Reacher": reacher,
    "HalfCheetah": partial(forward, speed=8, effort=0.1),
    "HalfCheetahBulletEnv": partial(forward, speed=3, effort=0.1),
    "Swimmer": partial(forward, speed=3, effort=1e-4),
    "Hopper": partial(forward, speed=5, effort=1e-3, end=hopper_fell),
    "Walker2d": partial(forward, speed=8, effort=1e-3, end=walker_fell),
}

TERMINALS: dict[str, OfTransition] = {
    "CartPole": cartpole_fell,
    "Acrobot": acrobot_is_up,
    "MountainCar": climbed,
    "MountainCarContinuous": climbed_continuous,
    "InvertedPendulum": inverted_pendulum_fell,
    "Hopper": hopper_fell,
    "Walker2d": walker_fell,
}


def get_reward_function(env_id: str) -> OfTransition | None:
    """The reward of an environment, whatever its version; None if it is not known."""
    return REWARDS.get(_family(env_id))


def get_terminal_function(env_id: str) -> OfTransition | None:
    """What says where an environment's episodes truly end; None if they do not, or if it is not known."""
    return TERMINALS.get(_family(env_id))


def _family(env_id: str) -> str:
    """The id without what stands before it and without its version."""
    return re.sub(r"-v\d+$", "", env_id.rpartition("/")[2].rpartition(":")[2])


def find_function(
    choice: str | OfTransition | None, known: dict[str, OfTransition], kind: str, *also: str
) -> OfTransition | None:
    """The function of a name in ``known``, or the user's own, which is known by its name from then on."""
    if choice is None or not isinstance(choice, str):
        if choice is not None:
            known[function_name(choice, kind)] = choice
        return choice
    if choice not in known:
        raise ConfigError(
            f"unknown {kind} '{choice}'", f"{suggestion(choice, [*known, *also])} A function of your own can be given."
        )
    return known[choice]


def function_name(function: OfTransition, kind: str) -> str:
    """What files call a user's function."""
    if not callable(function):
        raise ConfigError(f"a {kind} is a name or a function of (obs, action, next_obs), got {function!r}")
    name = str(getattr(function, "__name__", ""))
    if not name.isidentifier() or name in OURS:
        raise ConfigError(f"a {kind} needs a name of its own, got '{name}'", "Define it with def.")
    return name


# Names that a user's function cannot have.
OURS = frozenset({*REWARDS, *TERMINALS})
