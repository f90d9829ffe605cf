"""The public surface: what the package offers, and that nothing is imported before it is needed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl import keys, registry
from pytorchrl.cli.main import MODULES
from pytorchrl.component import Component

HEAVY = ["torch", "numpy", "ray", "matplotlib", "tensorboard", "gymnasium", "optuna", "wandb", "mlflow", "rich"]
OPTIONAL = ["ray", "matplotlib", "tensorboard", "optuna", "wandb", "mlflow", "rich", "onnx", "imageio", "ale_py"]


def imported_by(statement: str, names: list[str]) -> list[str]:
    """Which of the modules a fresh interpreter has after the statement."""
    code = f"import contextlib, json, os, sys\n{statement}\nprint(json.dumps([n for n in {names} if n in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def program(words: str) -> str:
    """The statement that runs the program without showing what it says."""
    return f"""
from pytorchrl.cli import main
with contextlib.redirect_stdout(open(os.devnull, 'w')), contextlib.redirect_stderr(open(os.devnull, 'w')):
    with contextlib.suppress(SystemExit):
        main({words.split()})
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import pytorchrl",
        program("--help"),
        program("train --help"),
        program("train ppo CartPole-v1 --seed -1"),
        program("list presets"),
    ],
)
def test_nothing_heavy_is_imported(statement: str) -> None:
    assert imported_by(statement, HEAVY) == []


def test_nothing_optional_is_imported_to_train() -> None:
    assert imported_by("import pytorchrl; pytorchrl.train; pytorchrl.load", OPTIONAL) == []


def test_every_name_is_there() -> None:
    assert len(set(prl.__all__)) == len(prl.__all__)
    for name in prl.__all__:
        assert getattr(prl, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = prl.trian  # type: ignore[attr-defined]


def test_the_names_of_the_interface() -> None:
    for name in ("train", "load", "Run", "Policy", "RLError", "ConfigError", "EnvError", "CheckpointError"):
        assert name in prl.__all__
    assert issubclass(prl.ConfigError, ValueError)
    assert prl.ASYNC
    vocabulary = [name for name in vars(keys) if name.isupper()]
    assert len(vocabulary) > 20
    assert all(getattr(prl, name) == getattr(keys, name) for name in vocabulary)


@pytest.mark.parametrize(
    "module", ["agent.algorithms", "agent.storages", "agent.actors", "agent.env", "scheme", "learner"]
)
def test_the_modules_of_the_interface(module: str) -> None:
    imported = importlib.import_module(f"pytorchrl.{module}")
    for name in getattr(imported, "__all__", []):
        assert getattr(imported, name) is not None


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in registry.KINDS.items() for name in names])
def test_every_registered_name_is_a_component_that_says_what_it_is(kind: str, name: str) -> None:
    component = registry.load_class(kind, name)
    assert component.__name__ == name
    assert issubclass(component, Component)
    assert (component.__doc__ or "").strip()
    assert all(item.doc for item in component.configurable().values()), "a parameter without a line of prose"


def test_every_algorithm_has_companions() -> None:
    assert set(registry.COMPANIONS) == set(registry.ALGORITHMS)
    for actor, storage in registry.COMPANIONS.values():
        assert actor in registry.ACTORS
        assert storage in registry.STORAGES


def test_every_command_has_a_module() -> None:
    for module in MODULES.values():
        assert callable(importlib.import_module(module).run)


def test_the_package_is_typed() -> None:
    assert (Path(prl.__file__).parent / "py.typed").is_file()
