"""Every code block of the documentation works: Python is run, commands are understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from pytorchrl.cli.main import build_parser
from pytorchrl.config import parse_override

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, *languages: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [text for language, text in fenced if language in languages]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "", "bash")], ids=lambda page: page.stem)
def test_commands_are_understood(page: Path) -> None:
    for block in blocks(page, "", "bash"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] != ["pytorchrl"] or any("|" in word for word in words):
                continue
            options, unknown = build_parser().parse_known_args(words[1:])
            assert not unknown, line
            for override in getattr(options, "set", []):
                parse_override(override)


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").as_posix() in navigation
