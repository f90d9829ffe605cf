"""A policy playing, to be looked at: in a window, or as a video."""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from torch import Tensor

from pytorchrl.agent.env.serial import SerialEnvs
from pytorchrl.agent.env.vec_env import Episode, VecEnv
from pytorchrl.errors import ConfigError, EnvError
from pytorchrl.report.video import Frame, VideoWriter, writable
from pytorchrl.scheme.collection import Acting, play
from pytorchrl.seeding import derived_seed

EnvFunction = Callable[..., Any]
LONGEST = 10_000  # frames of an episode; nobody looks at more


class Film(gym.Wrapper[Any, Any, Any, Any]):
    """Hands every picture of the episodes to ``sink``: the first one, and one per step."""

    def __init__(self, env: gym.Env[Any, Any], sink: Callable[[Frame], None]) -> None:
        super().__init__(env)
        self.sink = sink
        self.begins = True

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self.begins = True  # a picture is taken only if a step follows
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        if self.begins:
            self.sink(picture(self.env))
        self.begins = False
        result = self.env.step(action)
        self.sink(picture(self.env))
        return result


def picture(env: gym.Env[Any, Any]) -> Frame:
    """What the environment looks like now."""
    frame: Any = env.render()
    if isinstance(frame, list) and frame:
        frame = frame[-1]
    shape = np.shape(frame)
    if not isinstance(frame, np.ndarray) or len(shape) != 3 or shape[2] != 3:
        modes = ", ".join(map(str, env.metadata.get("render_modes", []))) or "none"
        raise TypeError(f"render returned no picture (the environment's render modes: {modes})")
    return frame.astype(np.uint8, copy=False)


def film(
    env_fn: EnvFunction,
    env_kwargs: Mapping[str, Any],
    acting: Acting,
    initial_rhs: Mapping[str, Tensor],
    path: Path | None,
    num_episodes: int,
    seed: int,
    device: Any = "cpu",
    masked: bool = False,
) -> tuple[list[Episode], Path | None]:
    """Play episodes in one environment: in a window, or into a video at ``path``.

    Returns the episodes and the file that was written, which is a GIF where mp4 cannot be written. ``ConfigError``
    says why the environment cannot be rendered.
    """
    target = None if path is None else writable(path)
    if target is None:
        require_display()
    else:
        prepare_headless()
    name = getattr(env_fn, "env_id", None) or getattr(env_fn, "__name__", "the environment")
    kwargs = {**env_kwargs, "render_mode": "human" if target is None else "rgb_array"}
    try:
        envs = VecEnv(env_fn, 1, device, kwargs, mode="test", backend="sync", masked=masked)
    except EnvError as error:
        raise ConfigError(f"{name} cannot be made to be rendered: {error.__cause__}", ADVICE) from error
    try:
        seeds = [derived_seed(seed, "episodes", 0)]
        if target is None:
            return play(acting, envs, dict(initial_rhs), num_episodes, seeds), None
        backend = envs.backend
        if not isinstance(backend, SerialEnvs):
            raise TypeError("films are made in this process")
        envs.reset(seeds)
        try:
            backend.guard(0, "render", lambda: picture(backend.envs[0]))
        except EnvError as error:
            raise ConfigError(f"{name} cannot be rendered here: {error.__cause__}", ADVICE) from error
        fps = backend.envs[0].metadata.get("render_fps") or 30
        with VideoWriter(target, fps) as video:
            limited: gym.Env[Any, Any] = gym.wrappers.TimeLimit(backend.envs[0], LONGEST)
            backend.envs[0] = Film(limited, video.add)
            episodes = play(acting, envs, dict(initial_rhs), num_episodes, seeds)
        return episodes, target
    finally:
        envs.close()


ADVICE = (
    "MuJoCo without a display needs EGL or OSMesa (`apt-get install libegl1 libgl1`); an environment of your own needs"
    " the argument render_mode."
)


def prepare_headless() -> None:
    """Choose what MuJoCo and SDL draw with where there is no display, unless their variables say so already."""
    if has_display():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if "MUJOCO_GL" not in os.environ:
        for library, choice in (("EGL", "egl"), ("OSMesa", "osmesa")):
            if ctypes.util.find_library(library) is not None:
                os.environ["MUJOCO_GL"] = choice
                return


def has_display() -> bool:
    """Whether a window can be opened."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def require_display() -> None:
    if not has_display():
        raise ConfigError("there is no display to show a window on", "Give --video FILE.mp4 to write a video instead.")
