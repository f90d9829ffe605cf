"""Shell completion: the shells themselves finish what we finish."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytorchrl.cli import main
from pytorchrl.cli.main import MODULES, build_parser, flags_of
from pytorchrl.registry import ALGORITHMS


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("", [*MODULES, "--version", "--help"]),
        ("rep", ["report"]),
        ("train s", ["sac"]),
        ("train ppo CartPole-v1 --eva", ["--eval-every"]),
        ("list pre", ["presets"]),
        ("export runs/x --format o", ["onnx"]),
        ("evaluate runs/x --ch", ["--checkpoint"]),
    ],
)
def test_bash_finishes_words(typed: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["pytorchrl", *typed.split(" ")]
    (tmp_path / "script").write_text(
        f"{script('bash', capsys)}\nCOMP_WORDS=({' '.join(word or repr('') for word in line)})\n"
        f'COMP_CWORD={len(line) - 1}\n_pytorchrl\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
    )
    done = subprocess.run(["bash", str(tmp_path / "script")], capture_output=True, text=True, timeout=20)
    assert done.stderr == ""
    assert sorted(done.stdout.split()) == sorted(words)


def test_every_flag_and_algorithm_is_in_each(capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser()
    for shell in ("bash", "zsh", "fish"):
        text = script(shell, capsys)
        for command in MODULES:
            for flag in flags_of(parser, command):
                assert not flag.startswith("--") or flag[2:] in text
        assert all(name.lower() in text for name in ALGORITHMS)
        assert ("bashcompinit" in text) == (shell == "zsh")
