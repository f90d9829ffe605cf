"""Shared by the tests of the numerics: published fixtures."""

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    """Numbers that other projects publish in their tests, by file; the header of the JSON states the conventions."""
    path = Path(__file__).parents[1] / "data" / "oracles.json"
    return json.loads(path.read_text(encoding="utf-8"))["published"]
