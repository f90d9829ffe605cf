"""pytorchrl export: what it writes, and where."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytorchrl.cli import main


def test_the_command_writes_beside_the_run(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    assert main(["export", str(run), "--format", "torch"]) == 0
    file = run / "export" / "torch" / "policy.pt2"
    assert capsys.readouterr().out == f"{file}\n"
    info = json.loads(file.with_name("policy.json").read_text())
    assert info["inputs"] == [{"name": "obs", "shape": ["batch", 4], "dtype": "float32"}]
    assert info["outputs"] == [{"name": "action", "shape": ["batch", 1], "dtype": "int64"}]
