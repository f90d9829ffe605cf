"""The page of a run: one self-contained HTML file."""

from __future__ import annotations

import base64
import html
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytorchrl.atomic import write_bytes
from pytorchrl.console import duration
from pytorchrl.report.curves import Line, Points, chart
from pytorchrl.report.data import SECONDS, STEPS, WINDOW, RunData, moving_mean, points_of, thinned
from pytorchrl.report.document import CHOICES, document, figure, listing, tiles
from pytorchrl.run_folder import RunFolder

HALF = 460  # width of a chart that shares a line
LOSS_WINDOW = 10
LARGEST_VIDEO = 20_000_000
VIDEO_TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
# Units of time, and from how many of them on.
UNITS = ((3600.0, 2, "hours of training"), (60.0, 2, "minutes of training"), (1.0, 0, "seconds of training"))


def write_report(folder: RunFolder) -> Path:
    """Draw the page from the run's files; returns its path."""
    write_bytes(folder.report, page(RunData.read(folder)).encode(errors="replace"))
    return folder.report


def page(run: RunData) -> str:
    """The page of a run as HTML."""
    status = run.status
    losses = "".join(
        part
        for name in loss_names(run)
        for part in views(name[6:], run.progress, (STEPS, SECONDS), name, LOSS_WINDOW, HALF)
    )
    returns = f"Return (mean and spread of {WINDOW} episodes)"
    return document(
        run.name,
        f"<h1>{html.escape(run.name)}</h1>",
        f'<p class="muted">{html.escape(status["state"])} · {html.escape(shlex.join(status.get("command", [])))}</p>',
        listing(str(status["error"]), "Error") if "error" in status else "",
        tiles(summary(run)),
        CHOICES,
        *views(returns, run.episodes, ("steps", "seconds"), "return", WINDOW),
        *views("Evaluation (deterministic)", run.progress, (STEPS, SECONDS), "eval/mean_reward", 1),
        video(run.folder.path),
        f'<h2>Losses</h2><div class="pairs">{losses}</div>' if losses else "",
        scheme(run),
        "<h2>Repeat it</h2>",
        listing(commands(run), "Commands that repeat the run"),
        "<h2>Configuration</h2>",
        listing(run.folder.config.read_text("utf-8"), "Configuration"),
        "<h2>Machine and versions</h2>",
        listing(json.dumps(_machine(status), indent=2), "Machine and versions"),
    )


def figures(run: RunData) -> dict[str, str]:
    """The page's main figures, each by itself, with its title."""
    title, losses = f"Return (mean and spread of {WINDOW} episodes)", loss_names(run)
    curve, band = moving_mean(run.returns)
    found = {"returns": chart(title, [Line(curve, band)], "environment steps")}
    found["evaluation"] = chart("Evaluation (deterministic)", [Line(run.evaluations)], "environment steps")
    for name in losses:
        smooth, _ = moving_mean(run.logged(STEPS, name), LOSS_WINDOW)
        found[name[6:]] = chart(name[6:], [Line(smooth)], "environment steps")
    return found


def loss_names(run: RunData) -> list[str]:
    """The columns of the log that are losses."""
    return sorted({key for row in run.progress for key in row if key.startswith("train/")} - {"train/n_updates"})


def summary(run: RunData) -> dict[str, str]:
    """The figures that a run is known by."""
    figures = {"steps": f"{run.status['steps']:,}", "episodes": f"{len(run.episodes):,}"}
    curve, _ = moving_mean(run.returns)
    if curve:
        figures[f"return (last {min(len(run.returns), WINDOW)})"] = f"{curve[-1][1]:,.1f}"
    if run.evaluations:
        figures["best evaluation"] = f"{max(mean for _, mean in run.evaluations):,.1f}"
    if run.progress:
        figures["training"] = duration(run.progress[-1].get(SECONDS, 0.0))
        figures["steps/s"] = f"{run.progress[-1].get('time/fps', 0.0):,.0f}"
    return figures


def views(
    title: str, rows: list[dict[str, float]], axes: tuple[str, str], column: str, window: int, width: int = 720
) -> Iterator[str]:
    """A column over steps and over time, smoothed and raw; the page's choices show one of the four."""
    size = "half" if width == HALF else "wide"
    for x, kind in zip(axes, ("by-steps", "by-time"), strict=True):
        logged = points_of(rows, x, column)
        points, unit = in_units(logged) if kind == "by-time" else (logged, "environment steps")
        if window == 1:
            yield figure(title, chart(title, [Line(points)], unit, width, heading=False), kind, size)
            continue
        curve, band = moving_mean(points, window)
        smooth = [Line(curve, band if window == WINDOW else ())]
        yield figure(title, chart(title, smooth, unit, width, heading=False), kind, "smoothed", size)
        raw = chart(title, [Line(thinned(points), dots=window == WINDOW)], unit, width, heading=False)
        yield figure(f"{title.partition(' (mean and')[0]}", raw, kind, "raw", size)


def in_units(points: Points) -> tuple[Points, str]:
    """Points over seconds as points over the largest unit that fits, and its name."""
    last = max((x for x, _ in points), default=0.0)
    size, _, name = next(unit for unit in UNITS if last >= unit[0] * unit[1])
    return [(x / size, y) for x, y in points], name


def scheme(run: RunData) -> str:
    """How old policies and gradients were, where they were not always fresh."""
    columns = {"Policy lag (updates)": "scheme/policy_lag", "Gradient asynchrony": "scheme/gradient_asynchrony"}
    parts = [
        part
        for title, name in columns.items()
        if any(value > 0 for _, value in run.logged(STEPS, name))
        for part in views(title, run.progress, (STEPS, SECONDS), name, LOSS_WINDOW, HALF)
    ]
    return f'<h2>Scheme</h2><div class="pairs">{"".join(parts)}</div>' if parts else ""


def commands(run: RunData) -> str:
    """The command that was given, and the one that repeats the run from its configuration alone."""
    given = shlex.join(run.status.get("command", []))
    versions = run.status.get("versions", {})
    wanted = " ".join(
        f"{name}=={str(versions[name]).partition('+')[0]}"
        for name in ("torch", "numpy", "gymnasium")
        if name in versions
    )
    return "\n".join(
        [
            *([f"# as it was given\n{given}"] if given else []),
            *([f"# under these versions\npip install {wanted}"] if wanted else []),
            f"# the same again, from its configuration\npytorchrl train --config {shlex.quote(str(run.folder.config))}",
        ]
    )


def video(folder: Path) -> str:
    """The latest video of a run, inside the page."""
    files = [path for path in folder.glob("videos/*") if path.suffix in VIDEO_TYPES]
    files = sorted(
        (path for path in files if path.stat().st_size <= LARGEST_VIDEO), key=lambda path: path.stat().st_mtime
    )
    if not files:
        return ""
    file = files[-1]
    kind = VIDEO_TYPES[file.suffix]
    source = f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"
    label = html.escape(f"The policy playing: {file.stem}")
    shown = (
        f'<video controls muted loop playsinline aria-label="{label}" src="{source}"></video>'
        if kind == "video/mp4"
        else f'<img class="video" alt="{label}" src="{source}">'
    )
    return f"<h2>Video</h2>{shown}"


def _machine(status: dict[str, Any]) -> dict[str, Any]:
    return {key: status[key] for key in ("versions", "commit", "machine", "seed") if key in status}
