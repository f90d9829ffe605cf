"""ModelBasedPlannerActor: a world model, and a planner that acts by it."""

from __future__ import annotations

import zlib
from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.base import Actor, Rhs
from pytorchrl.agent.actors.distributions import BoxScale
from pytorchrl.agent.actors.planners import PLANNERS
from pytorchrl.agent.actors.world_model import OfTransition, Propagation, WorldModel
from pytorchrl.errors import ConfigError, SpaceError, suggestion
from pytorchrl.parameters import PositiveInt
from pytorchrl.tree import Tree

# By name; a class of the user's joins when it is given.
WORLD_MODELS: dict[str, type[WorldModel]] = {"WorldModel": WorldModel}


class ModelBasedPlannerActor(Actor):
    """Acts by planning: what its world model says that action sequences earn, the planner searches for the best.

    The plan stands where other actors have their hidden states: the next call begins with it, one step on, and from
    nothing where Done is 1. In a plan a continuous action is in [−1, 1] units, a discrete one the largest of n scores.
    Deterministic planning draws numbers that its inputs determine. Until the model is fitted, actions are random.

    Parameters
        horizon: steps that are looked ahead.
        n_planner: action sequences that are tried at a time.
        world_model_class: name or subclass of WorldModel.
        world_model_kwargs: its parameters.
        reward_function: the family of an environment whose reward it is (Pendulum for Pendulum-v1), or
            f(obs, action, next_obs) -> [B, 1]; null to learn it.
        terminal_function: likewise for the end of the MDP; "learned" to learn it, null if there is none.
        particles: how many futures of each sequence are averaged.
        propagation: whether a future keeps to one member of the model (TSinf) or changes at each step (TS1).
    """

    def __init__(
        self,
        device: torch.device | str,
        input_space: gym.Space[Any],
        action_space: gym.Space[Any],
        algorithm_name: str,
        horizon: PositiveInt = 15,
        n_planner: PositiveInt = 500,
        restart_model: str | None = None,
        world_model_class: str | type[WorldModel] = "WorldModel",
        world_model_kwargs: dict[str, Any] | None = None,
        *,
        reward_function: str | OfTransition | None = None,
        terminal_function: str | OfTransition | None = None,
        particles: PositiveInt = 1,
        propagation: Propagation = "TSinf",
    ) -> None:
        super().__init__(device, input_space, action_space, algorithm_name)
        if algorithm_name not in PLANNERS:
            raise ConfigError(
                f"ModelBasedPlannerActor does not know '{algorithm_name}'", suggestion(algorithm_name, PLANNERS)
            )
        if not isinstance(input_space, spaces.Box) or len(input_space.shape) == 3:
            raise SpaceError(f"{algorithm_name} cannot model observation space {input_space}", "Supported: vectors.")
        self.horizon = horizon
        self.n_planner = n_planner
        self.particles = particles
        self.propagation: Propagation = propagation
        if isinstance(action_space, spaces.Discrete):
            self.scale, self.action_size = None, int(action_space.n)
        else:
            self.scale = BoxScale(action_space)
            self.action_size = len(self.scale.low)
        self.planner = PLANNERS[algorithm_name](discrete=self.scale is None)
        model = _find_model(world_model_class)
        functions = {"reward_function": reward_function, "terminal_function": terminal_function}
        spaces_ = {"input_space": input_space, "action_space": action_space}
        self.dynamics_model = model(**model.complete({**spaces_, **functions, **(world_model_kwargs or {})}))
        self._ready(restart_model)

    def initial_rhs(self, num_envs: int) -> Rhs:
        return {"plan": torch.zeros(num_envs, self.horizon * self.action_size, device=self.device)}

    def decoded(self, u: Tensor) -> Tensor:
        """Actions as environments take them and storages keep them, of a plan's."""
        return u.argmax(-1, keepdim=True) if self.scale is None else self.scale.to_box(u)

    @torch.no_grad()
    def plan(self, obs: Tree, rhs: Rhs, done: Tensor, deterministic: bool = False) -> tuple[Tensor, Rhs, Tensor | None]:
        """(action, the plan it begins, what that seems to earn over the horizon ``[N, 1]``; None of random actions)."""
        N = len(done)
        if not self.dynamics_model.fitted:
            return self.random_action(N, obs), {"plan": torch.zeros_like(rhs["plan"])}, None
        rows = obs.flatten(1).float()  # type: ignore[union-attr]
        last = (rhs["plan"] * (1 - done)).view(N, self.horizon, self.action_size)
        # The same numbers in every step would mislead in the same way in every step.
        generator = torch.Generator().manual_seed(_checksum(rows, last)) if deterministic else self.generator

        def score(candidates: Tensor) -> Tensor:
            actions = self.decoded(candidates)
            return self.dynamics_model.returns(rows, actions, self.particles, self.propagation, generator)

        u, plan, value = self.planner(score, last, generator, self.n_planner, not deterministic)
        return self.decoded(u), {"plan": plan.flatten(1)}, value.unsqueeze(1)

    def get_action(
        self, obs: Tree, rhs: Rhs, done: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, Rhs, Tensor, Any]:
        """(action, the same action, zeros, the plan, zeros, None): a planner has no distribution of actions."""
        action, rhs, _ = self.plan(obs, rhs, done, deterministic)
        zeros = torch.zeros_like(done)
        return action, action, zeros, rhs, zeros, None

    def get_value(self, obs: Tree, rhs: Rhs, done: Tensor) -> dict[str, Any]:
        """{"value_net1": what the plan seems to earn over the horizon ``[B, 1]``, "rhs": the plan}."""
        _, rhs, value = self.plan(obs, rhs, done, True)
        return {"value_net1": torch.zeros_like(done) if value is None else value, "rhs": rhs}


def _checksum(*parts: Tensor) -> int:
    """A number that numbers determine."""
    return zlib.crc32(torch.cat([part.flatten() for part in parts]).cpu().numpy().tobytes())


def _find_model(choice: str | type[WorldModel]) -> type[WorldModel]:
    if isinstance(choice, str):
        if choice not in WORLD_MODELS:
            known = suggestion(choice, WORLD_MODELS)
            raise ConfigError(f"unknown world model '{choice}'", f"{known} A subclass of WorldModel can be given.")
        return WORLD_MODELS[choice]
    if not (isinstance(choice, type) and issubclass(choice, WorldModel)):
        raise ConfigError(f"a world model is a name or a subclass of WorldModel, got {choice!r}")
    if choice.__name__ in ("WorldModel",) and choice is not WorldModel:
        raise ConfigError("'WorldModel' is the name of a world model of pytorchrl", "Give your class another name.")
    WORLD_MODELS[choice.__name__] = choice
    return choice
