"""Simulators whose state lies outside of Python, and how it is saved and put back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import AtariPreprocessing


class Simulator(Protocol):
    """What a snapshot needs to know about environments of one kind."""

    def runs(self, env: gym.Env[Any, Any]) -> bool:
        """Whether the (unwrapped) environment is of this kind."""
        ...

    def support(self, env: Any, layers: Sequence[Any]) -> str | None:
        """None if the environment inside these wrappers can be saved exactly, else the reason why not."""
        ...

    def get_state(self, env: Any) -> dict[str, Any]: ...

    def set_state(self, env: Any, state: Mapping[str, Any]) -> None: ...


class MuJoCo:
    """Gymnasium's MuJoCo environments, version 5."""

    def runs(self, env: gym.Env[Any, Any]) -> bool:
        module = type(env).__module__
        return module.startswith("gymnasium.envs.mujoco.") and module.endswith("_v5")

    def support(self, env: Any, layers: Sequence[Any]) -> str | None:
        return None

    def get_state(self, env: Any) -> dict[str, Any]:
        import mujoco  # type: ignore[import-untyped]

        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        state = np.empty(mujoco.mj_stateSize(env.model, kind))
        mujoco.mj_getState(env.model, env.data, state, kind)
        # Positions of bodies are no part of MuJoCo's states, and rewards read them before a step computes them anew.
        return {"state": state, "xpos": env.data.xpos.copy(), "xipos": env.data.xipos.copy()}

    def set_state(self, env: Any, state: Mapping[str, Any]) -> None:
        import mujoco

        mujoco.mj_setState(env.model, env.data, state["state"], mujoco.mjtState.mjSTATE_INTEGRATION)
        env.data.xpos[:] = state["xpos"]
        env.data.xipos[:] = state["xipos"]


class Atari:
    """Atari through Gymnasium. The emulator's states hold neither its picture nor the action that its sticky actions
    repeat, so that only some ways of using it can be saved exactly; ``pytorchrl.envs.atari`` is one of them.
    """

    # The third frame after a restore is drawn anew, in every game but one.
    enough_frames = 4
    inexact_games = ("tic_tac_toe_3d",)

    def runs(self, env: gym.Env[Any, Any]) -> bool:
        return type(env).__module__ == "ale_py.env" and type(env).__name__ == "AtariEnv"

    def support(self, env: Any, layers: Sequence[Any]) -> str | None:
        if env.ale.getFloat("repeat_action_probability") > 0:
            return "the Atari emulator does not tell which action its own sticky actions repeat"
        if not any(
            isinstance(layer, AtariPreprocessing) and layer.frame_skip >= self.enough_frames for layer in layers
        ):
            return f"the Atari emulator saves no picture: AtariPreprocessing has to skip {self.enough_frames} frames"
        if env._game in self.inexact_games:
            return f"the Atari emulator does not restore {env._game} exactly"
        return None

    def get_state(self, env: Any) -> dict[str, Any]:
        return {"ale": env.ale.cloneState(include_rng=True).serialize()}

    def set_state(self, env: Any, state: Mapping[str, Any]) -> None:
        import ale_py

        env.ale.restoreState(ale_py.ALEState(state["ale"]))


SIMULATORS: tuple[Simulator, ...] = (MuJoCo(), Atari())


def simulator_of(env: gym.Env[Any, Any]) -> Simulator | None:
    """The simulator that an environment runs on, if it is one of these."""
    return next((simulator for simulator in SIMULATORS if simulator.runs(env)), None)
