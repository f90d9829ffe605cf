"""Learning curves as SVG, drawn here so that a page needs nothing else."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

Points = Sequence[tuple[float, float]]

HEIGHT = 280
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 28, 36
COLOR = "#3b82f6"


def chart(
    title: str, points: Points, x_label: str, band: Sequence[tuple[float, float, float]] = (), width: int = 720
) -> str:
    """One line over x, with an optional band (x, low, high) behind it, as an SVG element."""
    points = [(x, y) for x, y in points if math.isfinite(y)]
    band = [(x, low, high) for x, low, high in band if math.isfinite(low) and math.isfinite(high)]
    if not points:
        return ""
    xs = [x for x, _ in points] + [x for x, _, _ in band]
    ys = [y for _, y in points] + [y for _, low, high in band for y in (low, high)]
    x_ticks, y_ticks = nice_ticks(min(0.0, *xs), max(xs)), nice_ticks(min(ys), max(ys))
    x0, x1, y0, y1 = min(x_ticks[0], *xs), max(xs), y_ticks[0], y_ticks[-1]

    def at(x: float, y: float) -> str:
        px = LEFT + (x - x0) / ((x1 - x0) or 1) * (width - LEFT - RIGHT)
        py = HEIGHT - BOTTOM - (y - y0) / ((y1 - y0) or 1) * (HEIGHT - TOP - BOTTOM)
        return f"{px:.1f},{py:.1f}"

    parts = [
        f'<svg viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{html.escape(title)}"'
        ' xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="12">',
        f'<text x="{LEFT}" y="16" font-size="14" font-weight="600" fill="currentColor">{html.escape(title)}</text>',
    ]
    for tick in y_ticks:
        x, y = at(x0, tick).split(",")
        parts.append(f'<line x1="{LEFT}" x2="{width - RIGHT}" y1="{y}" y2="{y}" stroke="currentColor" opacity=".15"/>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{float(y) + 4:.1f}" text-anchor="end" fill="currentColor">{short(tick)}</text>'
        )
    for tick in x_ticks:
        if tick <= x1:
            x = at(tick, y0).split(",")[0]
            y = str(HEIGHT - BOTTOM + 16)
            parts.append(f'<text x="{x}" y="{y}" text-anchor="middle" fill="currentColor">{short(tick)}</text>')
    parts.append(
        f'<text x="{width - RIGHT}" y="{HEIGHT - 4}" text-anchor="end" fill="currentColor" opacity=".7">'
        f"{html.escape(x_label)}</text>"
    )
    if band:
        outline = [at(x, high) for x, _, high in band] + [at(x, low) for x, low, _ in reversed(band)]
        parts.append(f'<polygon points="{" ".join(outline)}" fill="{COLOR}" opacity=".18"/>')
    line = " ".join(at(x, y) for x, y in points)
    if len(points) == 1:
        x, y = line.split(",")
        parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{COLOR}"/>')
    parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOR}" stroke-width="2"/></svg>')
    return "\n".join(parts)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that enclose [low, high]."""
    if high <= low:
        pad = max(abs(low) * 0.1, 0.5)
        low, high = low - pad, high + pad
    raw = (high - low) / count
    if not math.isfinite(raw):
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((factor * power for factor in (1, 2, 2.5, 5) if factor * power >= raw), 10 * power)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def short(value: float) -> str:
    """A tick label: 200k, 1.5M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"
