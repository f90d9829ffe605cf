"""Environments by id: one entry for Gymnasium's registry and the suites that belong to it."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from pytorchrl.errors import ConfigError, suggestion


@dataclass(frozen=True)
class Suite:
    """A family of environments that needs a package: how to know its ids, and what installs it."""

    name: str
    package: str
    extra: str
    ids: str  # a regular expression
    entry_point: str = " "  # how the entry points of its registered ids begin

    @property
    def is_installed(self) -> bool:
        """Whether its package is there."""
        return importlib.util.find_spec(self.package) is not None

    @property
    def registers(self) -> bool:
        """Whether it is the package that registers the ids, not Gymnasium."""
        return self.ids != "$"

    def has(self, env_id: str) -> bool:
        """Whether the id belongs here."""
        spec = gym.registry.get(env_id)
        entry_point = "" if spec is None or not isinstance(spec.entry_point, str) else spec.entry_point
        return re.match(self.ids, env_id) is not None or entry_point.startswith(self.entry_point)

    def require(self, env_id: str) -> None:
        """Import what registers the ids; ``ConfigError`` says how to install it."""
        if not self.is_installed:
            raise ConfigError(f"'{env_id}' needs {self.name}", f"Install it: pip install 'pytorchrl[{self.extra}]'")
        importlib.import_module(self.package)


ATARI = Suite("ale-py", "ale_py", "atari", r"ALE/|.*(NoFrameskip|Deterministic)-v\d+$", "ale_py.")
MINIGRID = Suite("minigrid", "minigrid", "minigrid", "(MiniGrid|BabyAI)-", "minigrid.")
MUJOCO = Suite("mujoco", "mujoco", "mujoco", "$", "gymnasium.envs.mujoco")
BOX2D = Suite("box2d", "Box2D", "box2d", "$", "gymnasium.envs.box2d")
ENVPOOL = Suite("envpool", "envpool", "envpool", "$")
SUITES = (ATARI, MINIGRID, MUJOCO, BOX2D)


@dataclass(frozen=True)
class EnvMaker:
    """Makes the environments of one id: call it for one, or ask for a vector of them."""

    env_id: str

    def __call__(self, **kwargs: Any) -> gym.Env[Any, Any]:
        """One environment. Gymnasium's per-step checks are left out: ours are made at the border."""
        suite = require_suite(self.env_id)
        if suite is ATARI:
            from pytorchrl.envs import atari

            return atari.make(self.env_id, **kwargs)
        if suite is MINIGRID:
            from pytorchrl.envs import minigrid

            return minigrid.make(self.env_id, **kwargs)
        return gym.make(self.env_id, disable_env_checker=True, **kwargs)

    def vector(self, num_envs: int, **kwargs: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
        """The environment's own vector implementation, if there is one."""
        if require_suite(self.env_id) is ATARI:
            from pytorchrl.envs import atari

            return atari.make_vector(self.env_id, num_envs, **kwargs)
        from pytorchrl.envs import cartpole

        if gym.spec(self.env_id).vector_entry_point is None:
            raise ConfigError(f"'{self.env_id}' has no vector implementation", "Use --backend sync or async.")
        vector = gym.make_vec(self.env_id, num_envs, vectorization_mode="vector_entry_point", **kwargs)
        return cartpole.with_partial_reset(vector)

    def envpool(self, num_envs: int, **kwargs: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
        """The environment in an EnvPool."""
        ENVPOOL.require(self.env_id)
        from pytorchrl.envs import envpool

        if require_suite(self.env_id) is ATARI:
            return envpool.make_atari(self.env_id, num_envs, **kwargs)
        return envpool.make(self.env_id, num_envs, **kwargs)


def env_maker(env_id: str) -> EnvMaker:
    """A maker of the environment; ``ConfigError`` names what is missing, or the nearest id if there is none."""
    if ":" in env_id:
        return EnvMaker(env_id)
    require_suite(env_id)
    if env_id not in gym.registry:
        known = _current_ids()
        bare = re.sub(r"-v\d+$", "", env_id)
        same = [candidate for candidate in known if re.sub(r"-v\d+$", "", candidate) == bare]
        hint = f"Did you mean '{same[-1]}'?" if same else suggestion(env_id, known)
        raise ConfigError(f"unknown environment '{env_id}'", hint)
    return EnvMaker(env_id)


def require_suite(env_id: str) -> Suite | None:
    """The suite of an id, its package imported; None if it needs none."""
    suite = next((suite for suite in SUITES if suite.has(env_id)), None)
    if suite is not None:
        suite.require(env_id)
    return suite


def _current_ids() -> list[str]:
    return [env_id for env_id in gym.registry if not env_id.startswith(("phys2d", "tabular", "GymV"))]
