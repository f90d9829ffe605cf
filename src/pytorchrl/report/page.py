"""The page of a run: one self-contained HTML file."""

from __future__ import annotations

import csv
import html
import json
import math
from pathlib import Path
from typing import Any

from pytorchrl.atomic import write_bytes
from pytorchrl.report.curves import Points, chart
from pytorchrl.run_folder import RunFolder

WINDOW = 100
DRAWN_POINTS = 400

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 760px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.figures { display: flex; flex-wrap: wrap; gap: 2rem; margin: 1.5rem 0; }
.figures b { display: block; font-size: 1.6rem; line-height: 1.2; }
svg { width: 100%; height: auto; margin: .5rem 0; }
pre { overflow-x: auto; padding: 1rem; border: 1px solid #8884; border-radius: 6px; font-size: 13px; }
.muted { opacity: .7; }
"""


def write_report(folder: RunFolder) -> Path:
    """Draw the page from the run's files; returns its path."""
    status = folder.read_status()
    episodes = _rows(folder.episodes)
    progress = _rows(folder.progress)
    name = folder.path.resolve().name
    curve, band = moving_mean([(row["steps"], row["return"]) for row in episodes])
    charts = [chart(f"Return (mean and spread of the last {WINDOW} episodes)", curve, "environment steps", band)]
    evaluated = [
        (row["time/total_timesteps"], row["eval/mean_reward"]) for row in progress if "eval/mean_reward" in row
    ]
    charts.append(chart("Evaluation (deterministic)", evaluated, "environment steps"))
    losses = sorted({key for row in progress for key in row if key.startswith("train/")} - {"train/n_updates"})
    details = [
        chart(
            key.removeprefix("train/"),
            [(row["time/total_timesteps"], row[key]) for row in progress if key in row],
            "environment steps",
        )
        for key in losses
    ]
    figures = {"steps": f"{status['steps']:,}", "episodes": f"{len(episodes):,}"}
    if curve:
        figures["mean return at the end"] = f"{curve[-1][1]:,.1f}"
    if progress:
        figures["steps per second"] = f"{progress[-1]['time/fps']:,.0f}"
    command = " ".join(map(str, status.get("command", [])))
    body = [
        f"<h1>{html.escape(name)}</h1>",
        f'<p class="muted">{html.escape(status["state"])} · {html.escape(command)}</p>',
        '<div class="figures">'
        + "".join(f"<div><b>{value}</b>{label}</div>" for label, value in figures.items())
        + "</div>",
        *charts,
        "<h2>Losses</h2>" if details else "",
        *details,
        f"<h2>Configuration</h2><pre>{html.escape(folder.config.read_text('utf-8'))}</pre>",
        f"<h2>Machine</h2><pre>{html.escape(json.dumps(_machine(status), indent=2))}</pre>",
    ]
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(name)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>\n" + "\n".join(part for part in body if part) + "\n</body></html>\n"
    )
    write_bytes(folder.report, page.encode())
    return folder.report


def _machine(status: dict[str, Any]) -> dict[str, Any]:
    return {key: status[key] for key in ("versions", "commit", "machine", "seed") if key in status}


def _rows(path: Path) -> list[dict[str, float]]:
    """The numbers of a CSV file; empty cells are left out."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]


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
