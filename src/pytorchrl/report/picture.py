"""Figures as files of their own: SVG always, PNG where Pillow is installed."""

from __future__ import annotations

import importlib.util
import io
import itertools
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pytorchrl.atomic import write_bytes

INK, PAPER = "#24292f", "#ffffff"
SCALE = 2  # a drawing is made larger than its picture, and then reduced: that smooths its edges
WIDTH = 2  # of the picture, in units of the drawing


def write_pictures(folder: Path, drawings: dict[str, str]) -> list[Path]:
    """``NAME.svg`` of each drawing, and ``NAME.png`` if Pillow is there."""
    folder.mkdir(parents=True, exist_ok=True)
    able = importlib.util.find_spec("PIL") is not None
    written = []
    for name, drawing in drawings.items():
        if drawing:
            written.append(folder / f"{name}.svg")
            write_bytes(written[-1], standalone(drawing).encode())
            if able:
                written.append(folder / f"{name}.png")
                write_bytes(written[-1], png(drawing))
    return written


def standalone(drawing: str) -> str:
    """A drawing with colors of its own: a file has no page to inherit them from."""
    return drawing.replace("<svg ", f'<svg style="background:{PAPER};color:{INK}" ', 1)


def png(drawing: str) -> bytes:
    """A drawing of ours as a PNG: it consists of lines, polygons, polylines, circles and text."""
    from PIL import Image, ImageDraw, ImageFont

    root = ElementTree.fromstring(drawing)
    width, height = (int(float(side)) * WIDTH for side in root.attrib["viewBox"].split()[2:])
    factor = WIDTH * SCALE
    image = Image.new("RGB", (width * SCALE, height * SCALE), PAPER)
    for element in root:
        own, layer = element.attrib, image
        color: Any = own.get("fill", "none") if own.get("fill", "none") != "none" else own.get("stroke", INK)
        color = color.replace("currentColor", INK)
        opacity = float(own.get("opacity", 1))
        kind = element.tag.rpartition("}")[2]
        if opacity < 1 and kind != "polygon":  # thin things lie on paper
            shade = Image.blend(Image.new("RGB", (1, 1), PAPER), Image.new("RGB", (1, 1), color), opacity)
            color = shade.getpixel((0, 0))
        elif opacity < 1:
            layer = Image.new("L", image.size, 0)
        pen = ImageDraw.Draw(layer)
        points = [float(number) * factor for number in re.split(r"[ ,]", own.get("points", "")) if number]
        thick = round(float(own.get("stroke-width", 1)) * factor)
        if kind == "polygon":
            pen.polygon(points, fill=color if layer is image else round(255 * opacity))
        elif kind == "line":
            ends = [float(own[name]) * factor for name in ("x1", "y1", "x2", "y2")]
            dashed(pen, ends, color, thick, own.get("stroke-dasharray", ""), factor)
        elif kind == "polyline":
            dashed(pen, points, color, thick, own.get("stroke-dasharray", ""), factor)
        elif kind == "circle":
            x, y, r = (float(own[name]) * factor for name in ("cx", "cy", "r"))
            pen.ellipse([x - r, y - r, x + r, y + r], fill=color)
        else:
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[own["text-anchor"]]
            font = ImageFont.load_default(int(own.get("font-size", 12)) * factor)
            pen.text((float(own["x"]) * factor, float(own["y"]) * factor), element.text or "", color, font, anchor)
        if layer is not image:
            image.paste(color, mask=layer)
    data = io.BytesIO()
    image.resize((width, height), Image.Resampling.LANCZOS).save(data, "PNG")
    return data.getvalue()


def dashed(pen: Any, points: list[float], color: Any, thick: int, pattern: str, factor: int) -> None:
    """A line through the points, interrupted as an SVG's dash pattern says."""
    if not pattern:
        pen.line(points, fill=color, width=thick, joint="curve")
        return
    lengths = [float(length) * factor for length in pattern.split()]
    index, left = 0, lengths[0]
    corners = list(zip(points[::2], points[1::2], strict=True))
    for (x, y), (to_x, to_y) in itertools.pairwise(corners):
        length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
        done = 0.0
        while done < length:
            step = min(left, length - done)
            here, there = done / length, (done + step) / length
            if index % 2 == 0:
                ends = [x + (to_x - x) * here, y + (to_y - y) * here, x + (to_x - x) * there, y + (to_y - y) * there]
                pen.line(ends, fill=color, width=thick)
            done, left = done + step, left - step
            if left <= 0:
                index += 1
                left = lengths[index % len(lengths)]
