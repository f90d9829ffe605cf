"""Saving an environment in the middle of an episode: wrappers, simulator and random stream, as plain values.

Supported are Gymnasium's classic control and toy text environments, its MuJoCo environments of version 5, Atari
through Gymnasium, and every environment with ``get_state`` and ``set_state`` of its own; around them, Gymnasium's
wrappers and those with the two methods, which then speak for the wrapper alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd

from pytorchrl.agent.env.simulators import simulator_of
from pytorchrl.errors import CheckpointError


@runtime_checkable
class Saveable(Protocol):
    """An environment, or a wrapper, that knows what it consists of."""

    def get_state(self) -> Any:
        """A tree of dicts, lists, tuples, numbers, text, bytes and arrays."""
        ...

    def set_state(self, state: Any) -> None:
        """Become what ``get_state`` returned, in this instance or another one."""
        ...


# What a class keeps from one step to the next; the random stream is saved for all of them.
WRAPPERS: dict[str, tuple[str, ...]] = {
    "TimeLimit": ("_elapsed_steps",),
    "OrderEnforcing": ("_has_reset",),
    "PassiveEnvChecker": ("checked_reset", "checked_step", "checked_render"),
    "Autoreset": ("autoreset",),
    "RecordEpisodeStatistics": (
        "episode_count",
        "episode_returns",
        "episode_lengths",
        "time_queue",
        "return_queue",
        "length_queue",
    ),
    "FrameStackObservation": ("obs_queue", "padding_value"),
    "DelayObservation": ("observation_queue",),
    "TimeAwareObservation": ("timesteps",),
    "NormalizeObservation": ("obs_rms",),
    "NormalizeReward": ("return_rms", "discounted_reward"),
    "StickyAction": ("last_action", "is_sticky_actions", "num_repeats", "repeats_taken"),
    "AtariPreprocessing": ("obs_buffer", "lives", "game_over"),
    **dict.fromkeys(
        (
            "ClipAction",
            "ClipReward",
            "DtypeObservation",
            "FilterObservation",
            "FlattenObservation",
            "GrayscaleObservation",
            "MaxAndSkipObservation",
            "RepeatAction",
            "RescaleAction",
            "RescaleObservation",
            "ReshapeObservation",
            "ResizeObservation",
            "TransformAction",
            "TransformObservation",
            "TransformReward",
        ),
        (),
    ),
}
ENVS: dict[str, tuple[str, ...]] = {
    "classic_control.cartpole:CartPoleEnv": ("state", "steps_beyond_terminated"),
    "classic_control.mountain_car:MountainCarEnv": ("state",),
    "classic_control.continuous_mountain_car:Continuous_MountainCarEnv": ("state",),
    "classic_control.pendulum:PendulumEnv": ("state", "last_u"),
    "classic_control.acrobot:AcrobotEnv": ("state",),
    "toy_text.frozen_lake:FrozenLakeEnv": ("s", "lastaction"),
    "toy_text.cliffwalking:CliffWalkingEnv": ("s", "lastaction"),
    "toy_text.taxi:TaxiEnv": ("s", "lastaction", "fickle_step", "taxi_orientation"),
    "toy_text.blackjack:BlackjackEnv": ("dealer", "player"),
}
SUITE = "gymnasium.envs."
GENERATORS: dict[str, type[np.random.BitGenerator]] = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


def snapshot_support(env: gym.Env[Any, Any]) -> str | None:
    """None if the environment can be saved, else the reason why not."""
    around = layers(env)
    for layer in around:
        if isinstance(layer, Saveable) or _attributes(layer) is not None:
            continue
        simulator = simulator_of(layer)
        if simulator is not None:
            return simulator.support(layer, around)
        kind = "wrapper" if isinstance(layer, gym.Wrapper) else "environment"
        return f"the {kind} {type(layer).__name__} has no get_state and set_state"
    return None


def get_state(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Everything that the environment is, wrappers included."""
    reason = snapshot_support(env)
    if reason is not None:
        raise CheckpointError(f"the environment cannot be saved: {reason}")
    base = env.unwrapped
    generator = base._np_random
    return {
        "layers": [[type(layer).__name__, _state_of(layer)] for layer in layers(env)],
        "random": None if generator is None else plain(generator.bit_generator.state),
        "random_seed": None if base._np_random_seed is None else int(base._np_random_seed),
    }


def set_state(env: gym.Env[Any, Any], state: Mapping[str, Any]) -> None:
    """Make the environment what another one of the same kind was."""
    names = [type(layer).__name__ for layer in layers(env)]
    if names != [name for name, _ in state["layers"]]:
        raise CheckpointError(f"the saved environment is not built like this one ({', '.join(names)})")
    for layer, (_, saved) in zip(layers(env), state["layers"], strict=True):
        _restore(layer, saved)
    base = env.unwrapped
    if state["random"] is None:
        base._np_random = None
    else:
        bits = GENERATORS[state["random"]["bit_generator"]]()
        bits.state = state["random"]
        base._np_random = np.random.Generator(bits)
    base._np_random_seed = state["random_seed"]


def layers(env: gym.Env[Any, Any]) -> list[gym.Env[Any, Any]]:
    """The wrappers from outside to inside, then the environment itself."""
    found = [env]
    while isinstance(env, gym.Wrapper):
        env = env.env
        found.append(env)
    return found


def plain(value: Any) -> Any:
    """A copy in values that a checkpoint can hold; NumPy's scalars become arrays without dimensions."""
    if isinstance(value, np.generic):
        return np.array(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, (list, deque)):
        return [plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, RunningMeanStd):
        return {"mean": plain(value.mean), "var": plain(value.var), "count": plain(value.count)}
    return value


def _back(saved: Any, present: Any) -> Any:
    """The saved value in the form that the attribute has."""
    if isinstance(saved, np.ndarray):
        return saved.copy() if saved.ndim or isinstance(present, np.ndarray) else saved[()]
    if isinstance(present, deque):
        return deque((_back(item, None) for item in saved), present.maxlen)
    if isinstance(present, RunningMeanStd):
        for name in ("mean", "var", "count"):
            setattr(present, name, _back(saved[name], getattr(present, name)))
        return present
    if isinstance(saved, list):
        return [_back(item, None) for item in saved]
    if isinstance(saved, tuple):
        return tuple(_back(item, None) for item in saved)
    if isinstance(saved, Mapping):
        return {key: _back(item, None) for key, item in saved.items()}
    return saved


def _state_of(layer: gym.Env[Any, Any]) -> Any:
    if isinstance(layer, Saveable):
        return layer.get_state()
    simulator = simulator_of(layer)
    if simulator is not None:
        return simulator.get_state(layer)
    return {name: plain(getattr(layer, name)) for name in _attributes(layer) or ()}


def _restore(layer: gym.Env[Any, Any], saved: Any) -> None:
    simulator = simulator_of(layer)
    if isinstance(layer, Saveable):
        layer.set_state(saved)
    elif simulator is not None:
        simulator.set_state(layer, saved)
    else:
        for name in _attributes(layer) or ():
            setattr(layer, name, _back(saved[name], getattr(layer, name)))


def _attributes(layer: gym.Env[Any, Any]) -> tuple[str, ...] | None:
    """What a class of Gymnasium keeps; None for all others, subclasses included."""
    kind = type(layer)
    if kind.__module__.startswith("gymnasium.wrappers."):
        return WRAPPERS.get(kind.__name__)
    return ENVS.get(f"{kind.__module__.removeprefix(SUITE)}:{kind.__name__}")
