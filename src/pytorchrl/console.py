"""What people see on the terminal: the only file that writes to it."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TextIO

BARS = "▁▂▃▄▅▆▇█"
REFRESH_SECONDS = 0.2
PANEL_WIDTH = 96
CURVE_WIDTH = 64


def say(text: str) -> None:
    """One line on standard output, at once."""
    _write(sys.stdout, text)


def complain(text: str) -> None:
    """One line on standard error."""
    _write(sys.stderr, text)


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    with _reader_may_leave(stream):
        # A letter that the stream lacks is no reason to stop.
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()


@contextlib.contextmanager
def _reader_may_leave(stream: TextIO) -> Iterator[None]:
    """A closed pipe or terminal is no reason to stop: from then on the stream leads nowhere."""
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


class Display(Protocol):
    """Shows a run while it goes."""

    def say(self, text: str) -> None: ...

    def update(self, figures: dict[str, float], row: bool) -> None:
        """The latest figures; ``row`` says that they also went to the log."""
        ...

    def close(self) -> None: ...


def display(title: str, target_steps: int, quiet: bool) -> Display:
    """The live panel on a terminal, plain lines elsewhere."""
    if quiet:
        return Silence()
    able = os.environ.get("TERM") != "dumb" and "utf" in sys.stdout.encoding.lower()
    return Panel(title, target_steps) if able and sys.stdout.isatty() else Lines(target_steps)


class Silence:
    """Shows nothing."""

    def say(self, text: str) -> None:
        pass

    def update(self, figures: dict[str, float], row: bool) -> None:
        pass

    def close(self) -> None:
        pass


class Lines:
    """One plain line per log row, at most two a second."""

    def __init__(self, target_steps: int) -> None:
        self.target_steps = target_steps
        self._next = 0.0

    def say(self, text: str) -> None:
        say(text)

    def update(self, figures: dict[str, float], row: bool) -> None:
        now = time.monotonic()
        steps = figures["time/total_timesteps"]
        if not row or (now < self._next and steps < self.target_steps):
            return
        self._next = now + 0.5
        say(
            f"{steps:>12,.0f} steps {percent(steps, self.target_steps):>4}  {figures['time/fps']:>7,.0f}/s"
            f"  ETA {eta(figures, self.target_steps):<11} return {shown(figures.get('rollout/ep_rew_mean')):>9}"
            f"  length {shown(figures.get('rollout/ep_len_mean')):>8}"
        )

    def close(self) -> None:
        pass


class Panel:
    """A live table with the learning curve so far."""

    def __init__(self, title: str, target_steps: int) -> None:
        from rich.live import Live

        self.title = title
        self.target_steps = target_steps
        self._latest: dict[str, float] = {}
        self._curve: list[float] = []
        self._next = 0.0
        self._live = Live(auto_refresh=False)
        with _reader_may_leave(sys.stdout):
            self._live.start()

    def say(self, text: str) -> None:
        with _reader_may_leave(sys.stdout):
            console = self._live.console
            # Sentences are wrapped; a path that is longer than a line stays in one piece.
            lines = textwrap.wrap(text, console.width, break_long_words=False, break_on_hyphens=False)
            console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)

    def update(self, figures: dict[str, float], row: bool) -> None:
        self._latest |= figures  # losses come with log rows only, and stay until the next
        if row and "rollout/ep_rew_mean" in figures:
            self._curve.append(figures["rollout/ep_rew_mean"])
        now = time.monotonic()
        if now < self._next and figures["time/total_timesteps"] < self.target_steps:
            return
        self._next = now + REFRESH_SECONDS
        with _reader_may_leave(sys.stdout):
            self._live.update(self._render(self._latest), refresh=True)

    def _render(self, figures: dict[str, float]) -> Any:
        from rich.panel import Panel as Frame
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        steps = figures["time/total_timesteps"]
        done = f"{steps:,.0f} of {self.target_steps:,}  ({percent(steps, self.target_steps)})"
        losses = {name[6:]: value for name, value in figures.items() if name.startswith("train/")}
        updates = losses.pop("n_updates", 0.0)
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", min_width=10)
        table.add_row("steps", done)
        table.add_row("", ProgressBar(self.target_steps, min(steps, self.target_steps), width=CURVE_WIDTH))
        table.add_row("speed", f"{figures['time/fps']:,.0f} steps/s   ETA {eta(figures, self.target_steps)}")
        table.add_row("return", f"{shown(figures.get('rollout/ep_rew_mean'))}  (mean of the last 100 episodes)")
        table.add_row("", sparkline(self._curve, CURVE_WIDTH))
        table.add_row("length", shown(figures.get("rollout/ep_len_mean")))
        if "eval/mean_reward" in figures:
            table.add_row("evaluation", shown(figures["eval/mean_reward"]))
        table.add_row("updates", f"{updates:,.0f}")
        table.add_row("losses", "   ".join(f"{name} {value:.3g}" for name, value in losses.items()))
        width = min(self._live.console.width, PANEL_WIDTH)
        return Frame(table, title=Text(self.title), title_align="left", width=width)

    def close(self) -> None:
        with _reader_may_leave(sys.stdout):
            self._live.stop()


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as a row of bars, thinned to ``width``; the last one is always there."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    count = min(width, len(finite))
    thinned = [finite[-1 - i * len(finite) // count] for i in reversed(range(count))]
    low, high = min(thinned), max(thinned)
    span = (high - low) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in thinned)


def percent(steps: float, target_steps: int) -> str:
    """How much of a run is done; the last round may go beyond its target."""
    return f"{min(steps / target_steps, 1.0):.0%}"


def eta(figures: dict[str, float], target_steps: int) -> str:
    """Time to go at the present speed."""
    left = max(target_steps - figures["time/total_timesteps"], 0)
    if figures["time/fps"] <= 0:
        return "?"
    return duration(left / figures["time/fps"])


def duration(seconds: float) -> str:
    """Seconds as people read them."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
