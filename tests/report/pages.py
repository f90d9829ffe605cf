"""Run folders made by hand, and a reader of pages, for the tests of reports."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

from pytorchrl.run_folder import RunFolder


def folder_with(path: Path, progress: str = "", episodes: str = "", **status: object) -> RunFolder:
    folder = RunFolder(path)
    folder.config.write_text("a: '<b>&'\n")
    folder.status.write_text(json.dumps({"state": "done", "steps": 3, "command": ["x", "a b"], **status}))
    folder.progress.write_text(progress)
    folder.episodes.write_text(episodes)
    return folder


VOID = ("meta", "line", "circle", "polygon", "polyline", "input", "img")


class Tags(HTMLParser):
    """Counts what is opened and not closed, and collects what is referred to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attributes if name in ("src", "href", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag
