"""Shared by the tests of the numerics: published fixtures, and hypothesis without chance or clock."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("deterministic", derandomize=True, deadline=None)
settings.load_profile("deterministic")


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    """Numbers that other projects publish in their tests, by file; the header of the JSON states the conventions."""
    path = Path(__file__).parents[1] / "data" / "oracles.json"
    return json.loads(path.read_text(encoding="utf-8"))["published"]
