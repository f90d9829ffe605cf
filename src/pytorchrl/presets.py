"""The zoo: presets of each algorithm, and which one an environment gets.

A preset is named after the environment that it serves, or after a family whose ids (with wildcards) it lists under
``envs``; "default" serves every other environment.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib import resources

from pytorchrl.parameters import Node
from pytorchrl.strict_yaml import parse_yaml


def presets_of(algorithm: str) -> dict[str, Node]:
    """The settings of an algorithm's presets, by name."""
    return {name: node.value["config"] for name, node in _entries(algorithm).items()}


def preset_for(algorithm: str, env_id: str) -> str | None:
    """The preset of an environment: its own, its family's, or the general one; None if there is none."""
    known = served_by(algorithm)
    if env_id in known:
        return env_id
    for name, patterns in known.items():
        if any(fnmatchcase(env_id, pattern) for pattern in patterns):
            return name
    return "default" if "default" in known else None


def served_by(algorithm: str) -> dict[str, list[str]]:
    """The environments that an algorithm's presets are for, by name of the preset; wildcards stand for families."""
    entries = _entries(algorithm)
    listed = {name: node.value["envs"].value for name, node in entries.items() if "envs" in node.value}
    return {name: [item.value for item in listed[name]] if name in listed else [name] for name in entries}


def _entries(algorithm: str) -> dict[str, Node]:
    file = resources.files("pytorchrl") / "zoo" / f"{algorithm.lower()}.yaml"
    return parse_yaml(file.read_text("utf-8"), f"zoo/{file.name}").value if file.is_file() else {}
