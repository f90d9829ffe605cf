"""The page that compares runs: by algorithm and preset, over seeds."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytorchrl.console import duration
from pytorchrl.options import flat
from pytorchrl.report.curves import Line, chart, intervals
from pytorchrl.report.data import SECONDS, WINDOW, RunData
from pytorchrl.report.document import document, figure, table
from pytorchrl.report.statistics import Interval, Scores, curve_of, interval_of, profile_of

GRID = 100
NAMED = 3  # settings that a label names
# What may differ between runs that are called the same.
INCIDENTAL = {
    "run.seed",
    "run.log_every",
    "run.eval_every",
    "run.checkpoint_every",
    "run.video_every",
    "run.device",
    "run.threads",
    "run.logger",
    "env.id",
    "env.backend",
}


@dataclass
class Group:
    """Runs of one algorithm under one configuration, by environment."""

    label: str
    rank: int = 0
    runs: dict[str, list[RunData]] = field(default_factory=lambda: defaultdict(list))


class Comparison:
    """Runs in their groups, and how each of them is scored."""

    def __init__(self, runs: Sequence[RunData]) -> None:
        self.runs = [run for run in runs if run.returns or run.evaluations]
        self.left_out = [run.name for run in runs if run not in self.runs]
        self.by_evaluation = bool(self.runs) and all(run.evaluations for run in self.runs)
        self.groups = grouped(self.runs)
        self.envs = sorted({env_of(run) for run in self.runs})

    @property
    def measure(self) -> str:
        """What a run's final score is."""
        last = f"mean return of the last {WINDOW} training episodes"
        return "the last evaluation" if self.by_evaluation else last

    def final(self, run: RunData) -> float:
        if self.by_evaluation:
            return run.evaluations[-1][1]
        returns = [value for _, value in run.returns[-WINDOW:]]
        return sum(returns) / len(returns)

    def scores(self, group: Group) -> dict[str, Scores]:
        """A group's final scores by environment, ``[runs]`` each."""
        return {env: np.array([self.final(run) for run in runs]) for env, runs in group.runs.items()}

    def scaled(self, group: Group) -> list[Scores]:
        """The same on one scale: as they are in one environment, else 0 for the lowest and 1 for the highest run."""
        if len(self.envs) == 1:
            return list(self.scores(group).values())
        bounds = {}
        for env in self.envs:
            every = [self.final(run) for run in self.runs if env_of(run) == env]
            bounds[env] = (min(every), (max(every) - min(every)) or 1.0)
        return [(scores - bounds[env][0]) / bounds[env][1] for env, scores in self.scores(group).items()]

    @property
    def scale(self) -> str:
        return "return" if len(self.envs) == 1 else "score (0 lowest, 1 highest run of each environment)"

    def figures(self) -> dict[str, dict[str, Any]]:
        """Every figure by the name of its file: title, lines or rows, label of the horizontal axis."""
        found: dict[str, dict[str, Any]] = {}
        for env in self.envs:
            lines = [self.curve(group, env) for group in self.groups if env in group.runs]
            title = f"{env}: interquartile mean over seeds"
            found[f"curves-{plain(env)}"] = {"title": title, "lines": lines, "x_label": "environment steps"}
        rows = [(group.label, *interval_of(self.scaled(group))) for group in self.groups]
        found["scores"] = {"title": "Final score: interquartile mean", "rows": rows, "x_label": self.scale}
        found["profile"] = {
            "title": "Share of runs that score above",
            "lines": self.profiles(),
            "x_label": self.scale,
            "from_zero": False,
        }
        return found

    def curve(self, group: Group, env: str) -> Line:
        """The learning curve of a group in an environment, up to where its shortest run ends."""
        curves = [self.learning(run) for run in group.runs[env]]
        first, last = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
        grid = np.linspace(min(first, last), last, GRID)
        values = np.stack([np.interp(grid, *np.array(curve).T) for curve in curves])
        return line(grid, curve_of(values), group)

    def learning(self, run: RunData) -> Sequence[tuple[float, float]]:
        """(steps, score so far) of a run."""
        if self.by_evaluation:
            return run.evaluations
        steps, returns = np.array(run.returns).T
        sums = np.cumsum(np.insert(returns, 0, 0.0))
        ends = np.arange(1, len(returns) + 1)
        starts = np.maximum(ends - WINDOW, 0)
        return list(zip(steps, (sums[ends] - sums[starts]) / (ends - starts), strict=True))

    def profiles(self) -> list[Line]:
        every = np.concatenate([scores for group in self.groups for scores in self.scaled(group)])
        pad = 0.02 * ((every.max() - every.min()) or 1.0)
        levels = np.linspace(every.min() - pad, every.max() + pad, GRID)
        return [line(levels, profile_of(self.scaled(group), levels), group) for group in self.groups]

    def rows(self) -> list[list[str]]:
        """The table of final scores."""
        rows = []
        for env in self.envs:
            for group in self.groups:
                if env in group.runs:
                    scores = self.scores(group)[env]
                    low, center, high = interval_of([scores])
                    told = [f"{center:,.1f}", f"{low:,.1f} to {high:,.1f}", f"{scores.mean():,.1f}"]
                    told += [f"{scores.std():,.1f}", f"{scores.min():,.1f}", f"{scores.max():,.1f}"]
                    rows.append([group.label, env, str(len(scores)), *told, *spent(group.runs[env])])
        return rows


HEAD = ("algorithm", "environment", "seeds", "IQM", "95 % interval", "mean", "std", "worst", "best", "steps", "time")


def spent(runs: Sequence[RunData]) -> list[str]:
    """Steps and time of a typical run."""
    steps = sorted(run.status["steps"] for run in runs)[len(runs) // 2]
    seconds = sorted(run.progress[-1].get(SECONDS, 0.0) if run.progress else 0.0 for run in runs)[len(runs) // 2]
    return [f"{steps:,}", duration(seconds)]


def line(xs: Scores, values: Sequence[Interval], group: Group) -> Line:
    points = [(x, value.center) for x, value in zip(xs.tolist(), values, strict=True)]
    band = [(x, value.low, value.high) for x, value in zip(xs.tolist(), values, strict=True)]
    return Line(points, band, group.label, group.rank)


def draw(title: str, x_label: str, heading: bool, lines: Any = None, rows: Any = None, from_zero: bool = True) -> str:
    """One of the figures as SVG."""
    if rows is not None:
        return intervals(title, rows, x_label, heading=heading)
    return chart(title, lines, x_label, heading=heading, from_zero=from_zero)


def comparison_page(comparison: Comparison) -> str:
    """The comparison as HTML."""
    drawn = [
        figure(parts["title"], draw(**parts, heading=False), "wide", legend=legend(parts.get("lines", [])))
        for parts in comparison.figures().values()
    ]
    runs = len(comparison.runs)
    title = f"{' and '.join(comparison.envs)}: {', '.join(group.label for group in comparison.groups)}"
    return document(
        title,
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="muted">{runs} run{"s" if runs > 1 else ""}. A final score is {comparison.measure}. Bands and'
        " intervals hold 95 % of the stratified bootstrap over seeds; IQM is the mean of the middle half of the"
        " runs.</p>",
        f'<p class="muted">Left out, with nothing to show yet: {html.escape(", ".join(comparison.left_out))}.</p>'
        if comparison.left_out
        else "",
        *drawn[: len(comparison.envs)],
        "<h2>Final scores</h2>",
        *drawn[len(comparison.envs) :],
        table("Final scores", HEAD, comparison.rows()),
        "<h2>Runs</h2>",
        table("Runs", ("run", "group", "state", "seed", "score"), listed(comparison)),
    )


def listed(comparison: Comparison) -> list[list[str]]:
    return [
        [
            run.name,
            group.label,
            str(run.status["state"]),
            str(run.status.get("seed", "")),
            f"{comparison.final(run):,.1f}",
        ]
        for group in comparison.groups
        for runs in group.runs.values()
        for run in runs
    ]


def legend(lines: Sequence[Line]) -> str:
    """What the lines are, below a figure's title."""
    items = "".join(
        f'<span><svg viewBox="0 0 28 8" aria-hidden="true"><line x1="0" x2="28" y1="4" y2="4" stroke="{line.color}"'
        f' stroke-width="3" stroke-dasharray="{line.pattern or "none"}"/></svg>{html.escape(line.label)}</span>'
        for line in lines
    )
    return f'<div class="legend">{items}</div>' if items else ""


def grouped(runs: Sequence[RunData]) -> list[Group]:
    """Runs that differ in seed and environment alone belong together; a label says what tells groups apart."""
    settings = [flat(run.config) for run in runs]
    names = [own["algorithm.name"] for own in settings]
    presets = [str(run.status.get("preset") or "no preset") for run in runs]
    rivals = _alike(list(zip((own["env.id"] for own in settings), names, strict=True)))
    labels = [
        f"{name} · {preset}" if len({presets[i] for i in others}) > 1 else name
        for name, preset, others in zip(names, presets, rivals, strict=True)
    ]
    rivals = _alike(list(zip((own["env.id"] for own in settings), labels, strict=True)))
    groups: dict[tuple[str, str], Group] = {}
    for run, own, label, others in zip(runs, settings, labels, rivals, strict=True):
        keys = sorted({key for i in others for key in settings[i]} - INCIDENTAL)
        apart = [key for key in keys if len({settings[i].get(key) for i in others}) > 1]
        values = [f"{key.rpartition('.')[2]}={own.get(key, 'none')}" for key in apart]
        told = ", ".join(values[:NAMED]) + (f" and {len(values) - NAMED} more" if len(values) > NAMED else "")
        group = groups.setdefault(
            (label, "\n".join(values)), Group(f"{label} ({told})" if told else label, len(groups))
        )
        group.runs[env_of(run)].append(run)
    return list(groups.values())


def _alike(keys: Sequence[Any]) -> list[list[int]]:
    """For each key, where all keys that equal it stand."""
    return [[i for i, other in enumerate(keys) if other == key] for key in keys]


def env_of(run: RunData) -> str:
    return str(run.config["env"]["id"])


def plain(name: str) -> str:
    """A name as part of a file's."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
