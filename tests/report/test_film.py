"""Videos of a policy: every frame is there, a GIF stands in for mp4, and what cannot be drawn is said."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

import pytorchrl as prl
from pytorchrl.cli import main
from pytorchrl.report import film, video
from pytorchrl.run import enjoy, evaluate

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
TINY = {"env.num_envs": 2, "storage.size": 32, "algorithm.num_epochs": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> prl.Run:
    folder = tmp_path_factory.mktemp("film") / "run"
    overrides = {**TINY, "run.video_every": 128, "run.eval_every": 0}
    return prl.train("PPO", "CartPole-v1", steps=256, seed=1, overrides=overrides, run=folder)


def frames_of(path: Path) -> tuple[tuple[int, int], list[np.ndarray]]:
    """(width and height, frames) of an mp4, as another program reads them."""
    reader = imageio_ffmpeg.read_frames(str(path))
    size = next(reader)["size"]
    return size, [np.frombuffer(frame, np.uint8).reshape(size[1], size[0], 3) for frame in reader]


class TestEnjoy:
    def test_every_step_is_a_frame(self, run: prl.Run, tmp_path: Path) -> None:
        episodes, file = enjoy(run.policy, 2, seed=3, video=tmp_path / "x.mp4")
        assert file == tmp_path / "x.mp4"
        size, frames = frames_of(file)
        assert size == (600, 400)
        assert len(frames) == sum(episode.length + 1 for episode in episodes)
        assert np.abs(frames[0].astype(int) - frames[episodes[0].length]).max() > 100  # the pole has moved
        assert list(tmp_path.iterdir()) == [file]

    def test_it_plays_what_evaluate_plays(self, run: prl.Run, tmp_path: Path) -> None:
        episodes, _ = enjoy(run.policy, 1, seed=7, video=tmp_path / "x.gif")
        assert episodes == evaluate(run.policy, 1, seed=7)

    def test_a_gif_stands_in_for_mp4(
        self, run: prl.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setitem(video.PACKAGES, ".mp4", "a_package_that_is_not_there")
        assert main(["enjoy", str(run.path), "--video", str(tmp_path / "x.mp4"), "--episodes", "2"]) == 0
        told = capsys.readouterr().out.splitlines()
        assert told[0].startswith("episode 1: return ")
        assert told[2].startswith("mean return ")
        assert told[3] == f"{tmp_path / 'x.gif'} (a GIF: mp4 needs the extra `video`)"
        with Image.open(tmp_path / "x.gif") as image:
            assert image.n_frames > 5  # type: ignore[attr-defined]
            assert image.size == (320, 213)

    def test_without_any_package_it_is_said(
        self, run: prl.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for suffix in (".mp4", ".gif"):
            monkeypatch.setitem(video.PACKAGES, suffix, "a_package_that_is_not_there")
        assert main(["enjoy", str(run.path), "--video", str(tmp_path / "x.mp4")]) == 2
        assert "pip install 'pytorchrl[video]'" in capsys.readouterr().err

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems always have a display")
    def test_without_a_display_there_is_no_window(
        self, run: prl.Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name in ("DISPLAY", "WAYLAND_DISPLAY"):
            monkeypatch.delenv(name, raising=False)
        assert main(["enjoy", str(run.path)]) == 2
        assert "Give --video FILE.mp4" in capsys.readouterr().err

    def test_a_video_that_breaks_off_leaves_no_file(self, tmp_path: Path) -> None:
        def break_off(path: Path) -> None:
            with video.VideoWriter(path, 30) as writer:
                writer.add(np.zeros((20, 30, 3), np.uint8))
                raise KeyError

        for name in ("x.mp4", "x.gif"):
            with pytest.raises(KeyError):
                break_off(tmp_path / name)
        assert list(tmp_path.iterdir()) == []


class TestTraining:
    def test_a_run_leaves_videos_and_its_page_shows_the_last(self, run: prl.Run) -> None:
        assert sorted(file.name for file in (run.path / "videos").iterdir()) == ["128.mp4", "256.mp4"]
        text = (run.path / "report.html").read_text()
        assert text.count("<video") == 1
        assert 'aria-label="The policy playing: 256"' in text

    def test_filming_leaves_the_run_as_it_is(self, run: prl.Run, tmp_path: Path) -> None:
        plain = prl.train("PPO", "CartPole-v1", steps=256, seed=1, overrides=TINY, run=tmp_path / "plain")
        weights = [(path / "policy" / "policy.safetensors").read_bytes() for path in (plain.path, run.path)]
        assert weights[0] == weights[1]

    def test_what_cannot_be_drawn_stops_nobody(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        overrides = {**TINY, "run.video_every": 64}
        with caplog.at_level(logging.WARNING, logger="pytorchrl"):
            run = prl.train("PPO", Unseen, steps=256, overrides=overrides, run=tmp_path / "x")
        assert json.loads((run.path / "status.json").read_text())["state"] == "done"
        assert [record.message.partition(":")[0] for record in caplog.records] == ["no videos"]
        assert not (run.path / "videos").exists()


class Unseen(gym.Env[Any, Any]):
    """An environment that draws nothing."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return np.zeros(2, np.float32), 1.0, self.count >= 10, False, {}

    def render(self) -> None:
        return None


@pytest.mark.skipif(sys.platform != "linux", reason="EGL is Linux's way")
@pytest.mark.parametrize(("found", "choice"), [({"EGL"}, "egl"), ({"OSMesa"}, "osmesa"), (set(), None)])
def test_mujoco_is_told_what_to_draw_with(found: set[str], choice: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    environment = dict(film.os.environ)
    monkeypatch.setattr(film.os, "environ", environment)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: name if name in found else None)
    film.prepare_headless()
    assert environment.get("MUJOCO_GL") == choice
    assert environment["SDL_VIDEODRIVER"]
