"""Demonstrations recorded from runs and from functions load where they were recorded for, and hold what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.storages.demo_files import read_demo
from pytorchrl.keys import ACT, OBS, REW


class Countdown(gym.Env[Any, Any]):
    """The observation says what to do: 7, 6, 5 … down to the seed's remainder; the rewards are the actions."""

    observation_space: gym.Space[Any] = spaces.Dict(
        {"n": spaces.Discrete(8), "image": spaces.Box(0, 255, (6, 6, 3), np.uint8)}
    )
    action_space: gym.Space[Any] = spaces.Discrete(8, start=1)

    def __init__(self, frame_skip: int = 0, mode: str = "train") -> None:
        assert mode == "test"
        self.closed = False

    def _observation(self) -> Any:
        return {"n": self.n, "image": np.full((6, 6, 3), self.n, np.uint8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n, self.last = 7, int(self.np_random.integers(1, 7))
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        assert action == self.n + 1
        self.n -= 1
        return self._observation(), float(action), self.n == self.last, False, {}


def test_a_function_that_acts(tmp_path: Path) -> None:
    paths = prl.record(Countdown, tmp_path / "new" / "demos", lambda obs: obs["n"] + 1, 4, env_kwargs={"frame_skip": 3})
    assert [path.name for path in paths] == ["demo_0001.npz", "demo_0002.npz", "demo_0003.npz", "demo_0004.npz"]
    lengths = set()
    for path in paths:
        demo = read_demo(path)
        length = len(demo[REW])
        lengths.add(length)
        assert demo[OBS]["n"].argmax(1).tolist() == list(range(7, 7 - length, -1))  # one-hot
        assert demo[OBS]["image"].shape == (length, 3, 6, 6)
        assert demo[OBS]["image"].dtype == np.uint8
        assert demo[OBS]["image"][:, 0, 0, 0].tolist() == list(range(7, 7 - length, -1))
        assert demo[ACT].dtype == np.int64
        assert demo[ACT].flatten().tolist() == list(range(7, 7 - length, -1))  # choices count from 0
        assert demo[REW].flatten().tolist() == list(range(8, 8 - length, -1))
        assert (demo["FrameSkip"], demo["FrameStack"]) == (3, 1)
    assert len(lengths) > 1  # every episode has its own seed
    again = prl.record(Countdown, tmp_path / "again", lambda obs: obs["n"] + 1, 4, seed=0)
    assert all(
        np.array_equal(read_demo(one)[REW], read_demo(other)[REW]) for one, other in zip(paths, again, strict=True)
    )
    more = prl.record(Countdown, tmp_path / "new" / "demos", lambda obs: obs["n"] + 1, 1)
    assert [path.name for path in more] == ["demo_0005.npz"]


def test_frames_of_a_stack_are_recorded_once(tmp_path: Path) -> None:
    kwargs = {"frame_stack": 4, "frame_skip": 4, "screen_size": 32, "noop_max": 0}
    seen: list[Any] = []

    def acting(obs: Any) -> int:
        seen.append(obs)
        return len(seen) % 6

    class Short(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            observation, reward, _, _, info = self.env.step(action)
            return observation, reward, len(seen) == 20, False, info

    from pytorchrl.envs.gymnasium import env_maker

    (path,) = prl.record(lambda **kw: Short(env_maker("ALE/Pong-v5")(**kw)), tmp_path, acting, 1, env_kwargs=kwargs)
    frames = read_demo(path)[OBS]
    assert frames.shape == (20, 1, 32, 32)
    for t, stack in enumerate(seen):
        for back in range(4):
            np.testing.assert_array_equal(stack[3 - back], frames[max(t - back, 0), 0])


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (lambda obs: 0, "chose 0, which is not in"),
        (lambda obs: 2.5, "chose 2.5, which is not in"),
        (lambda obs: [1, 2], r"chose \[1, 2\], which is not in"),
    ],
)
def test_actions_that_are_none(policy: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(prl.ConfigError, match=told):
        prl.record(Countdown, tmp_path, policy, 1)
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(prl.EnvError, match=r"Countdown.*step on action 1 raised AssertionError"):
        prl.record(Countdown, tmp_path, lambda obs: 1, 1)


def test_episodes_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytorchrl.recording.LONGEST_EPISODE", 3)
    with pytest.raises(prl.RLError, match="did not end within 3 steps"):
        prl.record(Countdown, tmp_path, lambda obs: obs["n"] + 1, 6)
