"""Figures as SVG, drawn here so that a page needs nothing else."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

Points = Sequence[tuple[float, float]]

HEIGHT = 290
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 28, 46
HEAD = 20  # of TOP, what only a title needs
ROW = 34  # height of a row of intervals
# Each stands out from white and from black; a line's pattern tells it apart without color.
COLORS = ("#3b82f6", "#d9480f", "#2b9348", "#a855f7", "#b7791f", "#0e8fa3", "#d6409f", "#6b7280")
PATTERNS = ("", "7 3", "2 3", "9 3 2 3")
COLOR = COLORS[0]


@dataclass(frozen=True)
class Line:
    """A line over x, with an optional band (x, low, high) behind it; ``rank`` decides what it looks like.

    ``dots`` draws the points by themselves.
    """

    points: Points
    band: Sequence[tuple[float, float, float]] = ()
    label: str = ""
    rank: int = 0
    dots: bool = False

    @property
    def color(self) -> str:
        return COLORS[self.rank % len(COLORS)]

    @property
    def pattern(self) -> str:
        return PATTERNS[self.rank % len(PATTERNS)]

    def finite(self) -> Line:
        """The line without what cannot be drawn."""
        points = [(x, y) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]
        band = [(x, low, high) for x, low, high in self.band if math.isfinite(low) and math.isfinite(high)]
        return replace(self, points=points, band=band)


class Axes:
    """Round ticks around the data, and where a value lies on the drawing."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], width: int, height: int) -> None:
        self.width, self.height = width, height
        self.x_ticks, self.y_ticks = nice_ticks(min(xs), max(xs)), nice_ticks(min(ys), max(ys))
        self.x0, self.x1 = min(xs), max(xs)
        self.y0, self.y1 = self.y_ticks[0], self.y_ticks[-1]

    def x(self, value: float) -> float:
        return LEFT + (value - self.x0) / ((self.x1 - self.x0) or 1) * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return self.height - BOTTOM - (value - self.y0) / ((self.y1 - self.y0) or 1) * (self.height - TOP - BOTTOM)

    def at(self, x: float, y: float) -> str:
        return f"{self.x(x):.1f},{self.y(y):.1f}"

    def x_labels(self, label: str) -> list[str]:
        """Numbers below, and what they count."""
        parts = [
            text(self.x(tick), self.height - BOTTOM + 18, short(tick), "middle")
            for tick in self.x_ticks
            if self.x0 <= tick <= self.x1
        ]
        return [*parts, text(self.width - RIGHT, self.height - 4, label, "end", ' opacity=".7"')]

    def y_labels(self) -> list[str]:
        """Numbers at the left, each with its line across."""
        parts = []
        for tick in self.y_ticks:
            y = f"{self.y(tick):.1f}"
            parts.append(
                f'<line x1="{LEFT}" x2="{self.width - RIGHT}" y1="{y}" y2="{y}" stroke="currentColor" opacity=".15"/>'
            )
            parts.append(text(LEFT - 8, self.y(tick) + 4, short(tick), "end"))
        return parts


def chart(
    title: str,
    lines: Sequence[Line],
    x_label: str,
    width: int = 720,
    heading: bool = True,
    from_zero: bool = True,
) -> str:
    """Lines over x as an SVG element; nothing if there is nothing to draw. ``heading`` adds title and legend."""
    lines = [line for line in (line.finite() for line in lines) if line.points]
    if not lines:
        return ""
    xs = [x for line in lines for x, *_ in (*line.points, *line.band)]
    ys = [y for line in lines for _, *values in (*line.points, *line.band) for y in values]
    axes = Axes([min(0.0, *xs) if from_zero else min(xs), max(xs)], ys, width, HEIGHT)
    parts = [*axes.y_labels(), *axes.x_labels(x_label)]
    for line in lines:
        if line.band:
            outline = [axes.at(x, high) for x, _, high in line.band]
            outline += [axes.at(x, low) for x, low, _ in reversed(line.band)]
            parts.append(f'<polygon points="{" ".join(outline)}" fill="{line.color}" opacity=".18"/>')
    for line in lines:
        if line.dots or len(line.points) == 1:
            radius = 2 if line.dots else 3
            parts += [
                f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="{radius}" fill="{line.color}"/>'
                for x, y in line.points
            ]
            continue
        way = " ".join(axes.at(x, y) for x, y in line.points)
        dashes = f' stroke-dasharray="{line.pattern}"' if line.pattern else ""
        parts.append(f'<polyline points="{way}" fill="none" stroke="{line.color}" stroke-width="2"{dashes}/>')
    ends = "; ".join(f"{line.label} ends at {line.points[-1][1]:.4g}".strip() for line in lines)
    legend = [line for line in lines if line.label] if heading else []
    return _svg(title, f"{title}: {ends}", width, HEIGHT, parts, legend, heading)


def intervals(
    title: str, rows: Sequence[tuple[str, float, float, float]], x_label: str, width: int = 720, heading: bool = True
) -> str:
    """(label, low, center, high) by row: a mark at the center and a bar from low to high."""
    rows = [row for row in rows if all(map(math.isfinite, row[1:]))]
    if not rows:
        return ""
    height = TOP + BOTTOM + ROW * len(rows)
    axes = Axes([value for row in rows for value in row[1:]], [0, 1], width, height)
    axes.x0, axes.x1 = axes.x_ticks[0], axes.x_ticks[-1]
    parts = []
    for tick in axes.x_ticks:
        x = f"{axes.x(tick):.1f}"
        parts.append(f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{height - BOTTOM}" stroke="currentColor" opacity=".15"/>')
    parts += axes.x_labels(x_label)
    for rank, (label, low, center, high) in enumerate(rows):
        y, color = TOP + ROW * rank + 24, COLORS[rank % len(COLORS)]
        parts.append(text(LEFT + 4, y - 9, label, "start"))
        parts.append(
            f'<line x1="{axes.x(low):.1f}" x2="{axes.x(high):.1f}" y1="{y}" y2="{y}" stroke="{color}"'
            ' stroke-width="7" opacity=".4"/>'
        )
        parts.append(f'<circle cx="{axes.x(center):.1f}" cy="{y}" r="5" fill="{color}"/>')
    told = "; ".join(f"{label} {center:.4g}, {low:.4g} to {high:.4g}" for label, low, center, high in rows)
    return _svg(title, f"{title}: {told}", width, height, parts, [], heading)


def _svg(
    title: str, told: str, width: int, height: int, parts: Sequence[str], legend: Sequence[Line], heading: bool
) -> str:
    """The drawing; ``told`` is what a screen reader says of it."""
    rows = []
    for number, line in enumerate(legend):
        y = height + 8 + 20 * number
        dashes = f' stroke-dasharray="{line.pattern}"' if line.pattern else ""
        rows.append(
            f'<line x1="{LEFT}" x2="{LEFT + 28}" y1="{y}" y2="{y}" stroke="{line.color}" stroke-width="3"{dashes}/>'
        )
        rows.append(text(LEFT + 36, y + 4, line.label, "start"))
    head = [text(LEFT, 16, title, "start", ' font-size="14" font-weight="600"')] if heading else []
    top = 0 if heading else HEAD
    full = height + 20 * len(legend) - top
    return "\n".join(
        [
            f'<svg viewBox="0 {top} {width} {full}" role="img" aria-label="{html.escape(told)}"'
            ' xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="12">',
            *head,
            *parts,
            *rows,
            "</svg>",
        ]
    )


def text(x: float, y: float, words: str, anchor: str, extra: str = "") -> str:
    """A piece of text of the page's own color."""
    return (
        f'<text x="{_plain(x)}" y="{_plain(y)}" text-anchor="{anchor}" fill="currentColor"{extra}>'
        f"{html.escape(words)}</text>"
    )


def _plain(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


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
