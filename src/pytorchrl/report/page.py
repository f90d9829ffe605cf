"""The page of a run: one self-contained HTML file."""

from __future__ import annotations

import csv
import html
import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytorchrl.atomic import write_bytes
from pytorchrl.console import duration
from pytorchrl.report.curves import Points, chart
from pytorchrl.run_folder import RunFolder

WINDOW = 100
DRAWN_POINTS = 400
HALF = 460  # width of a chart that shares a line

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 860px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.figures { display: flex; flex-wrap: wrap; gap: 2rem; margin: 1.5rem 0; }
.figures b { display: block; font-size: 1.6rem; line-height: 1.2; }
.losses { display: grid; grid-template-columns: repeat(auto-fit, minmax(340px, 1fr)); gap: 0 1.5rem; }
svg { width: 100%; height: auto; margin: .5rem 0; }
pre { overflow-x: auto; padding: 1rem; border: 1px solid #8884; border-radius: 6px; font-size: 13px; }
.muted { opacity: .7; margin-top: .2rem; overflow-wrap: anywhere; }
"""
STEPS = "time/total_timesteps"


def write_report(folder: RunFolder) -> Path:
    """Draw the page from the run's files; returns its path."""
    write_bytes(folder.report, page(folder).encode(errors="replace"))
    return folder.report


def page(folder: RunFolder) -> str:
    """The page of a run as HTML."""
    status = folder.read_status()
    progress, episodes = _rows(folder.progress), _rows(folder.episodes)
    name = html.escape(folder.path.resolve().name)
    curve, band = moving_mean(_points(episodes, "steps", "return"))
    evaluated = _points(progress, STEPS, "eval/mean_reward")
    losses = sorted({key for row in progress for key in row if key.startswith("train/")} - {"train/n_updates"})
    figures = {"steps": f"{status['steps']:,}", "episodes": f"{len(episodes):,}"}
    if curve:
        figures[f"return (last {min(len(episodes), WINDOW)})"] = f"{curve[-1][1]:,.1f}"
    if evaluated:
        figures["best evaluation"] = f"{max(mean for _, mean in evaluated):,.1f}"
    if progress:
        figures["training"] = duration(progress[-1].get("time/time_elapsed", 0.0))
        figures["steps/s"] = f"{progress[-1].get('time/fps', 0.0):,.0f}"
    return _document(
        name,
        f"<h1>{name}</h1>",
        f'<p class="muted">{html.escape(status["state"])} · {html.escape(shlex.join(status.get("command", [])))}</p>',
        _error(status),
        '<div class="figures">',
        *(f"<div><b>{value}</b>{label}</div>" for label, value in figures.items()),
        "</div>",
        chart(f"Return (mean and spread of {WINDOW} episodes)", curve, "environment steps", band),
        chart("Evaluation (deterministic)", evaluated, "environment steps"),
        "<h2>Losses</h2>" if losses else "",
        '<div class="losses">',
        *(chart(key[6:], _points(progress, STEPS, key), "environment steps", width=HALF) for key in losses),
        "</div>",
        f"<h2>Configuration</h2><pre>{html.escape(folder.config.read_text('utf-8'))}</pre>",
        f"<h2>Machine</h2><pre>{html.escape(json.dumps(_machine(status), indent=2))}</pre>",
    )


def _document(title: str, *parts: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>\n" + "\n".join(part for part in parts if part) + "\n</body></html>\n"
    )


def _error(status: dict[str, Any]) -> str:
    return f"<pre>{html.escape(str(status['error']))}</pre>" if "error" in status else ""


def _machine(status: dict[str, Any]) -> dict[str, Any]:
    return {key: status[key] for key in ("versions", "commit", "machine", "seed") if key in status}


def _points(rows: Sequence[dict[str, float]], x: str, y: str) -> list[tuple[float, float]]:
    return [(row[x], row[y]) for row in rows if x in row and y in row]


def _rows(path: Path) -> list[dict[str, float]]:
    """The numbers of a CSV file; empty cells, and a last line that was torn by a kill, are left out."""
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    text = [line.decode(errors="replace") for line in lines if line.endswith(b"\n")]
    return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(text)]


def moving_mean(points: Points) -> tuple[list[tuple[float, float]], list[tuple[float, float, float]]]:
    """Mean, and mean ± standard deviation, of the last WINDOW values at each x, thinned for drawing."""
    curve, band = [], []
    total = squares = 0.0
    every = max(len(points) // DRAWN_POINTS, 1)
    for i, (x, y) in enumerate(points):
        total, squares = total + y, squares + y * y
        if i >= WINDOW:
            gone = points[i - WINDOW][1]
            total, squares = total - gone, squares - gone * gone
        if i % every == 0 or i == len(points) - 1:
            count = min(i + 1, WINDOW)
            center = total / count
            spread = math.sqrt(max(squares / count - center * center, 0.0))
            curve.append((x, center))
            band.append((x, center - spread, center + spread))
    return curve, band
