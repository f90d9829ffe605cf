"""What every page has in common: the document, its look, and the pieces that it is put together from."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #57606a; --paper: #fff; --panel: #f6f8fa; --edge: #d0d7de;
  --accent: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --paper: #0d1117; --panel: #161b22;
  --edge: #30363d; --accent: #6cb0ff; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; color: var(--ink);
  background: var(--paper); max-width: 900px; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .4rem 0; }
a { color: var(--accent); }
.muted { color: var(--soft); overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1.2rem 0; }
.figures div { background: var(--panel); border: 1px solid var(--edge); border-radius: 8px; padding: .5rem .8rem;
  color: var(--soft); font-size: .85rem; }
.figures b { display: block; font-size: 1.35rem; line-height: 1.3; color: var(--ink);
  font-variant-numeric: tabular-nums; }
.choices { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; margin: 1rem 0; }
fieldset { border: 1px solid var(--edge); border-radius: 8px; padding: .15rem .8rem .4rem; margin: 0; }
legend { color: var(--soft); font-size: .85rem; padding: 0 .3rem; }
label { margin-right: .8rem; white-space: nowrap; }
input { accent-color: var(--accent); }
figure { margin: 1rem 0; min-width: 0; }
figcaption { font-weight: 600; margin-bottom: .2rem; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; font-weight: 400; font-size: .88rem; color: var(--soft); }
.legend svg { width: 28px; height: 8px; margin-right: .4rem; vertical-align: middle; }
.pairs { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 360px), 1fr)); gap: 0 1.5rem; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
.legend svg { display: inline-block; }
polyline { vector-effect: non-scaling-stroke; }
pre, .scroll { overflow-x: auto; background: var(--panel); border: 1px solid var(--edge); border-radius: 8px; }
pre { padding: .8rem 1rem; font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .55rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--edge); }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
tr:last-child td { border-bottom: 0; }
video, .video { width: 100%; max-width: 640px; border-radius: 8px; border: 1px solid var(--edge); display: block; }
summary { cursor: pointer; font-weight: 600; margin: .6rem 0; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
body:has(#by-steps:checked) .by-time, body:has(#by-time:checked) .by-steps { display: none; }
body:has(#smoothed:checked) .raw, body:has(#raw:checked) .smoothed { display: none; }
@media (max-width: 600px) { .wide text { font-size: 19px; } .half text { font-size: 14px; } }
"""

# Two pairs of radio buttons; what they choose is shown and hidden by the style sheet, without a script.
CHOICES = """<div class="choices">
<fieldset><legend>Horizontal axis</legend>
<label><input type="radio" name="axis" id="by-steps" checked> steps</label>
<label><input type="radio" name="axis" id="by-time"> time</label></fieldset>
<fieldset><legend>Curves</legend>
<label><input type="radio" name="curves" id="smoothed" checked> smoothed</label>
<label><input type="radio" name="curves" id="raw"> raw</label></fieldset>
</div>"""


def document(title: str, *parts: str, before: str = "") -> str:
    """A whole page; ``before`` stands outside of what a live page replaces."""
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>\n{before}<main>\n{body}\n</main>\n</body></html>\n"
    )


def figure(title: str, drawing: str, *classes: str, legend: str = "") -> str:
    """A drawing below its title; nothing if nothing was drawn."""
    if not drawing:
        return ""
    return (
        f'<figure class="{" ".join(classes)}"><figcaption>{html.escape(title)}{legend}</figcaption>{drawing}</figure>'
    )


def tiles(figures: Mapping[str, str]) -> str:
    """Numbers, large, with what they are below."""
    inner = "".join(f"<div><b>{html.escape(value)}</b>{html.escape(label)}</div>" for label, value in figures.items())
    return f'<div class="figures">{inner}</div>'


def listing(text: str, label: str) -> str:
    """Text as it is; it can be scrolled by keyboard too."""
    return f'<pre tabindex="0" role="region" aria-label="{html.escape(label)}">{html.escape(text)}</pre>'


def table(label: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls by itself where the page is narrow."""
    top = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(label)}">'
        f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
