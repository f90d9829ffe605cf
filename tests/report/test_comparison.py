"""Comparing runs: who belongs together, what they are called, and what is drawn of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from tests.report.pages import Tags, folder_with

from pytorchrl.report.comparison import Comparison, comparison_page, draw
from pytorchrl.report.data import RunData
from pytorchrl.report.picture import png, write_pictures
from pytorchrl.report.statistics import interval_of


def made_run(
    path: Path,
    seed: int = 1,
    algorithm: str = "PPO",
    env: str = "CartPole-v1",
    lr: float = 1e-3,
    score: float = 100.0,
    preset: str | None = None,
    evaluated: bool = False,
) -> RunData:
    """A run of 1,000 steps whose returns rise linearly to ``score``."""
    path.mkdir()
    steps = range(100, 1001, 100)
    episodes = "".join(f"{x},{x / 10},{score * x / 1000},9\n" for x in steps)
    evaluations = "".join(f"{x},{x / 10},{score + x}\n" for x in steps) if evaluated else ""
    folder = folder_with(
        path,
        "time/total_timesteps,time/time_elapsed,eval/mean_reward\n" + evaluations,
        "steps,seconds,return,length\n" + episodes,
        seed=seed,
        preset=preset,
    )
    folder.config.write_text(
        f"algorithm: {{name: {algorithm}, config: {{lr: {lr}}}}}\nenv: {{id: {env}}}\nrun: {{seed: {seed}}}\n"
    )
    return RunData.read(folder)


def labels(comparison: Comparison) -> dict[str, int]:
    return {group.label: sum(map(len, group.runs.values())) for group in comparison.groups}


class TestGroups:
    def test_seeds_belong_together(self, tmp_path: Path) -> None:
        runs = [made_run(tmp_path / f"{a}{s}", s, a) for a in ("PPO", "A2C") for s in (1, 2, 3)]
        assert labels(Comparison(runs)) == {"PPO": 3, "A2C": 3}

    def test_settings_tell_groups_apart(self, tmp_path: Path) -> None:
        runs = [made_run(tmp_path / f"{lr}{s}", s, lr=lr) for lr in (0.1, 0.2) for s in (1, 2)]
        assert labels(Comparison(runs)) == {"PPO (lr=0.1)": 2, "PPO (lr=0.2)": 2}

    def test_presets_tell_groups_apart(self, tmp_path: Path) -> None:
        runs = [made_run(tmp_path / f"{p}{s}", s, lr=len(p), preset=p) for p in ("default", "big") for s in (1, 2)]
        assert labels(Comparison(runs)) == {"PPO · default": 2, "PPO · big": 2}

    def test_a_group_spans_environments(self, tmp_path: Path) -> None:
        """A preset's settings differ from one environment to the next, and it is one algorithm all the same."""
        made: list[dict[str, Any]] = [
            {"env": "A-v0", "lr": 1, "preset": "A-v0"},
            {"env": "B-v0", "lr": 2, "preset": "B-v0"},
        ]
        comparison = Comparison([made_run(tmp_path / str(i), **options) for i, options in enumerate(made)])
        assert labels(comparison) == {"PPO": 2}
        assert comparison.envs == ["A-v0", "B-v0"]


class TestScores:
    def test_one_environment_keeps_its_returns(self, tmp_path: Path) -> None:
        comparison = Comparison([made_run(tmp_path / str(s), s, score=100.0 * s) for s in (1, 2, 3)])
        scores = comparison.scaled(comparison.groups[0])[0]
        assert scores.tolist() == pytest.approx([55.0, 110.0, 165.0])  # the mean of ten returns
        row = comparison.rows()[0]
        low, center, high = interval_of([scores])
        assert row[:5] == ["PPO", "CartPole-v1", "3", f"{center:,.1f}", f"{low:,.1f} to {high:,.1f}"]
        assert row[5:9] == ["110.0", "44.9", "55.0", "165.0"]

    def test_several_environments_are_put_on_one_scale(self, tmp_path: Path) -> None:
        runs = [
            made_run(tmp_path / f"{e}{s}", s, env=e, score=f * s) for e, f in (("A", 10), ("B", 99)) for s in (1, 3)
        ]
        comparison = Comparison(runs)
        assert [scores.tolist() for scores in comparison.scaled(comparison.groups[0])] == [[0.0, 1.0], [0.0, 1.0]]
        assert "each environment" in comparison.scale

    def test_evaluations_count_where_every_run_has_them(self, tmp_path: Path) -> None:
        with_them = [made_run(tmp_path / str(s), s, evaluated=True) for s in (1, 2)]
        assert Comparison(with_them).final(with_them[0]) == 1100.0
        mixed = Comparison([*with_them, made_run(tmp_path / "x", 3)])
        assert mixed.final(with_them[0]) == pytest.approx(55.0)
        assert "training episodes" in mixed.measure

    def test_curves_end_where_the_shortest_ends(self, tmp_path: Path) -> None:
        long, short = made_run(tmp_path / "long", 1, score=200), made_run(tmp_path / "short", 2)
        short.episodes[:] = short.episodes[:5]
        comparison = Comparison([long, short])
        line = comparison.curve(comparison.groups[0], "CartPole-v1")
        assert (line.points[0][0], line.points[-1][0]) == (100, 500)
        assert line.points[0][1] == pytest.approx((20 + 10) / 2)
        assert all(low <= center <= high for (_, center), (_, low, high) in zip(line.points, line.band, strict=True))

    def test_a_run_without_a_score_is_left_out(self, tmp_path: Path) -> None:
        empty = made_run(tmp_path / "empty", 2)
        empty.episodes.clear()
        comparison = Comparison([made_run(tmp_path / "a", 1), empty])
        assert comparison.left_out == ["empty"]
        assert "nothing to show yet: empty" in comparison_page(comparison)


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    return Comparison([made_run(tmp_path / f"{a}{s}", s, a, score=50 * s) for a in ("<i>", "A2C") for s in (1, 2, 3)])


class TestPage:
    def test_it_is_whole_and_escaped(self, comparison: Comparison) -> None:
        text = comparison_page(comparison)
        page = Tags(text)
        assert page.open == []
        assert page.references == []
        assert "<i>" not in text
        assert text.count("<svg") == 3 + 2 * 2  # three figures, and two with a legend for two groups
        assert "&lt;i&gt;3" in text

    def test_every_figure_becomes_a_file(self, comparison: Comparison, tmp_path: Path) -> None:
        drawings = {name: draw(**parts, heading=True) for name, parts in comparison.figures().items()}
        assert list(drawings) == ["curves-CartPole-v1", "scores", "profile"]
        files = write_pictures(tmp_path / "figures", drawings)
        assert [file.name for file in files[:2]] == ["curves-CartPole-v1.svg", "curves-CartPole-v1.png"]
        assert ElementTree.parse(files[0]).getroot().tag.endswith("svg")
        picture = np.array(Image.open(files[1]).convert("RGB"))
        assert picture.shape == (2 * (290 + 2 * 20), 2 * 720, 3)
        for color in ((0x3B, 0x82, 0xF6), (0xD9, 0x48, 0x0F)):  # both lines are there
            assert (np.abs(picture.astype(int) - color).sum(-1) < 30).sum() > 500

    def test_a_picture_has_its_line_where_the_drawing_has_it(self) -> None:
        drawing = (
            '<svg viewBox="0 0 100 50" xmlns="http://www.w3.org/2000/svg">'
            '<polyline points="10,25 90,25" fill="none" stroke="#3b82f6" stroke-width="4"'
            ' stroke-dasharray="20 20"/></svg>'
        )
        picture = np.array(Image.open(io.BytesIO(png(drawing))).convert("RGB")).astype(int)
        blue = np.abs(picture[50] - (0x3B, 0x82, 0xF6)).sum(-1) < 30
        assert blue[24:56].all()
        assert not blue[64:96].any()
        assert blue[104:136].all()
        assert not blue[:18].any()
