"""The page of a run: curves, configuration and machine, in one file that needs nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.report.pages import Tags, folder_with

import pytorchrl as prl
from pytorchrl.report.curves import Line, chart, intervals, nice_ticks, short
from pytorchrl.report.data import moving_mean, thinned
from pytorchrl.report.page import in_units, write_report

PROGRESS = "time/total_timesteps,time/time_elapsed,time/fps,eval/mean_reward,train/n_updates,train/loss\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> prl.Run:
    overrides = {"storage.size": 32, "env.num_envs": 2, "run.eval_every": 128, "algorithm.num_test_episodes": 1}
    return prl.train("ppo", "CartPole-v1", steps=512, overrides=overrides, run=tmp_path_factory.mktemp("page") / "x<y")


class TestPage:
    def test_what_it_shows(self, run: prl.Run) -> None:
        text = (run.path / "report.html").read_text()
        for title in (
            "Return (mean and spread of 100 episodes)",
            "Evaluation (deterministic)",
            ">loss<",
            ">value_loss<",
        ):
            assert title in text
        assert text.count("<svg") >= 4 + 2 + 4 * 3
        assert "<polygon" in text
        assert "name: GAEBuffer" in text
        assert f"pytorchrl train --config {run.path}".replace("<", "&lt;") in text.replace("&#x27;", "")
        assert "&quot;cores&quot;" in text
        assert "<b>512</b>steps" in text
        assert f"<b>{sum(run.scores) / len(run.scores):,.1f}</b>return (last {len(run.scores)})" in text

    def test_it_needs_nothing_else(self, run: prl.Run) -> None:
        text = (run.path / "report.html").read_text()
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg\")", text) == []
        assert re.findall(r"<(script|link|img|video|iframe|object)|@import|url\(", text) == []
        assert Tags(text).references == []

    def test_it_is_whole(self, run: prl.Run) -> None:
        assert Tags((run.path / "report.html").read_text()).open == []

    def test_names_are_escaped(self, run: prl.Run, tmp_path: Path) -> None:
        assert "<h1>x&lt;y</h1>" in (run.path / "report.html").read_text()
        evil = "<script>alert(1)</script>"
        folder = folder_with(tmp_path, command=["x", evil], error=evil, machine={"system": evil}, state=evil)
        folder.config.write_text(evil)
        text = write_report(folder).read_text()
        assert "<script" not in text
        assert text.count("&lt;script&gt;") == 6

    @pytest.mark.parametrize(
        ("progress", "episodes"),
        [
            ("", ""),
            (PROGRESS, "steps,seconds,return,length\n"),
            (PROGRESS + "64,1.0,64.0,,4,0.5\n", ""),
            (PROGRESS + "64,1.0,64.0,,,\n", "steps,seconds,return,length\n5,0.1,1.0,5\n"),
            (
                PROGRESS + "64,1.0,64.0,nan,4,inf\n128,2.0,64.0,1.0,8,nan\n",
                "steps,seconds,return,length\n5,1,1e300,5\n",
            ),
            (PROGRESS + "64,1.0,64.0,,4,1e-300\n128,1.0,64.0,,4,1e300\n", ""),
            (PROGRESS + "64,1.0,64.0,,4,7\n128,2.0", "steps,seconds,return,length\n5,0.1,1.0,5\n9,0."),
        ],
    )
    def test_runs_with_little_to_show(self, progress: str, episodes: str, tmp_path: Path) -> None:
        text = write_report(folder_with(tmp_path, progress, episodes)).read_text()
        assert Tags(text).open == []
        assert not re.search(r'[="\s,](nan|inf)[",\s]', text)
        assert "<h2>Configuration</h2>" in text

    def test_a_torn_line_is_left_out(self, tmp_path: Path) -> None:
        episodes = "steps,seconds,return,length\n5,0.1,1.0,5\n900,0.2,7"
        assert "<b>1</b>episodes" in write_report(folder_with(tmp_path, "", episodes)).read_text()

    def test_raw_episodes_are_dots_and_raw_losses_are_lines(self, run: prl.Run) -> None:
        text = (run.path / "report.html").read_text()
        raw = re.findall(r'<figure class="by-steps raw (wide|half)">(.*?)</figure>', text, re.DOTALL)
        assert [(size, "<polyline" in drawing) for size, drawing in raw[:2]] == [("wide", False), ("half", True)]
        assert raw[0][1].count("<circle") > 10

    @pytest.mark.parametrize("lag", [0.0, 1.5])
    def test_policy_lag_is_shown_where_there_is_one(self, lag: float, tmp_path: Path) -> None:
        rows = "".join(f"{steps},1.0,{lag}\n" for steps in (64, 128))
        folder = folder_with(tmp_path, "time/total_timesteps,time/time_elapsed,scheme/policy_lag\n" + rows)
        assert ("Policy lag" in write_report(folder).read_text()) == (lag > 0)

    def test_why_it_failed(self, tmp_path: Path) -> None:
        folder = folder_with(tmp_path, state="failed", error="EnvError: step raised")
        assert ">EnvError: step raised</pre>" in write_report(folder).read_text()

    def test_a_name_that_is_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "a\udcff"
        path.mkdir()
        assert "<h1>a?</h1>" in write_report(folder_with(path)).read_text()


class TestCurves:
    @pytest.mark.parametrize(
        ("low", "high", "ticks"),
        [
            (0, 100, [0, 20, 40, 60, 80, 100]),
            (-3, 3, [-4, -2, 0, 2, 4]),
            (0, 0.0012, [0, 0.00025, 0.0005, 0.00075, 0.001, 0.00125]),
            (5, 5, [4.4, 4.6, 4.8, 5, 5.2, 5.4, 5.6]),
            (2e-15, 6e-15, [2e-15, 3e-15, 4e-15, 5e-15, 6e-15]),
            (1e12, 1.00000001e12, None),
            (-1e308, 1e308, [0, 1]),
        ],
    )
    def test_ticks(self, low: float, high: float, ticks: list[float] | None) -> None:
        found = nice_ticks(low, high)
        if ticks is None:
            assert found[0] <= low < high <= found[-1]
            assert len(found) <= 8
        else:
            assert found == ticks

    @pytest.mark.parametrize(
        ("value", "text"), [(0, "0"), (0.025, "0.025"), (999, "999"), (2500, "2.5k"), (1e6, "1M"), (-3e9, "-3G")]
    )
    def test_labels(self, value: float, text: str) -> None:
        assert short(value) == text

    def test_a_line_goes_from_corner_to_corner(self) -> None:
        drawn = chart("t", [Line([(0, 0), (100, 100)])], "x")
        points = re.search(r'<polyline points="([^"]*)"', drawn)
        assert points is not None
        assert points[1] == "64.0,244.0 708.0,28.0"

    def test_a_single_point_is_seen(self) -> None:
        assert "<circle" in chart("t", [Line([(1, 1)])], "x")
        assert chart("t", [], "x") == chart("t", [Line([(1, float("nan"))])], "x") == ""
        assert intervals("t", [("a", 0.0, float("nan"), 1.0)], "x") == ""

    def test_lines_are_told_apart_without_color(self) -> None:
        drawn = chart("t", [Line([(0, 0), (1, 1)], label=f"line {rank}", rank=rank) for rank in range(4)], "x")
        ways = re.findall(r'<polyline [^>]*stroke="(#[0-9a-f]+)" stroke-width="2"( stroke-dasharray="[^"]+")?', drawn)
        assert len(set(ways)) == len({dashes for _, dashes in ways}) == 4
        assert all(f">line {rank}</text>" in drawn for rank in range(4))

    def test_intervals_lie_where_their_numbers_are(self) -> None:
        drawn = intervals("t", [("a", 0.0, 5.0, 10.0)], "x")
        assert 'x1="64.0" x2="708.0"' in drawn
        assert '<circle cx="386.0"' in drawn

    def test_the_window_moves(self) -> None:
        curve, band = moving_mean([(i, float(i >= 100)) for i in range(300)])
        assert curve[99] == (99, 0.0)
        assert curve[149] == (149, 0.5)
        assert curve[-1] == (299, 1.0)
        assert band[149] == (149, 0.0, 1.0)
        assert band[-1] == (299, 1.0, 1.0)

    def test_many_points_are_thinned_and_the_last_stays(self) -> None:
        curve, _ = moving_mean([(i, 1.0) for i in range(100_001)])
        assert len(curve) < 500
        assert curve[-1] == (100_000, 1.0)

    def test_thinning_keeps_the_extremes(self) -> None:
        points = [(float(i), float(i % 7)) for i in range(10_000)]
        points[4321] = (4321.0, -50.0)
        kept = thinned(points)
        assert len(kept) <= 500
        assert (4321.0, -50.0) in kept
        assert list(kept) == sorted(kept)
        assert thinned(points[:300]) == points[:300]

    @pytest.mark.parametrize(("seconds", "unit"), [(0, "seconds"), (119, "seconds"), (120, "minutes"), (7200, "hours")])
    def test_units_of_time(self, seconds: float, unit: str) -> None:
        points, name = in_units([(seconds, 1.0)])
        assert name == f"{unit} of training"
        assert points[0][0] == seconds / {"seconds": 1, "minutes": 60, "hours": 3600}[unit]
