"""pytorchrl list"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Mapping

from pytorchrl.console import say
from pytorchrl.errors import ConfigError, suggestion
from pytorchrl.presets import presets_of
from pytorchrl.registry import ALGORITHMS, KINDS, SCHEMES, load_class


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.what not in LISTS:
        raise ConfigError(f"nothing to list under '{options.what}'", suggestion(options.what, LISTS))
    rows = LISTS[options.what]()
    width = max(map(len, rows))
    for name, text in rows.items():
        say(f"{name:<{width}}  {text}")
    return 0


def _components(kind: str) -> dict[str, str]:
    return {name: (inspect.getdoc(load_class(kind, name)) or "").partition("\n")[0] for name in KINDS[kind]}


def _envs() -> dict[str, str]:
    """Families first, with the command that installs a missing one; then every id that is there."""
    import gymnasium

    from pytorchrl.envs.gymnasium import ENVPOOL, SUITES

    rows = {}
    missing = {
        suite.name: f"missing; pip install 'pytorchrl[{suite.extra}]'" for suite in SUITES if not suite.is_installed
    }
    for suite in SUITES:
        if suite.is_installed and suite.registers:
            suite.require(suite.name)
    entry_points = {env_id: spec.entry_point for env_id, spec in sorted(gymnasium.registry.items())}
    # Ids that are gone have a function there, which says so.
    present = {env_id: entry.partition(":")[0] for env_id, entry in entry_points.items() if isinstance(entry, str)}
    families = {env_id: next((suite.name for suite in SUITES if suite.has(env_id)), "") for env_id in present}
    for suite in SUITES:
        count = sum(name == suite.name for name in families.values())
        rows[f"family {suite.name}"] = missing.get(suite.name, f"installed, {count} environments")
    if ENVPOOL.is_installed:
        rows["family envpool"] = "installed: --backend envpool runs many of these in C++"
    else:
        rows["family envpool"] = f"missing; pip install 'pytorchrl[{ENVPOOL.extra}]'"
    return rows | {env_id: missing.get(families[env_id], entry) for env_id, entry in present.items()}


def _presets() -> dict[str, str]:
    rows = {}
    for algorithm in ALGORITHMS:
        for name, preset in presets_of(algorithm).items():
            told = [f"{int(preset.value['run'].value['steps'].value):,} steps"]
            env = preset.value["env"].value if "env" in preset.value else {}
            if "num_envs" in env:
                told.append(f"{env['num_envs'].value} environments")
            rows[f"{algorithm.lower()}/{name}"] = ", ".join(told)
    return rows


LISTS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "algorithms": lambda: _components("algorithm"),
    "storages": lambda: _components("storage"),
    "actors": lambda: _components("actor"),
    "envs": _envs,
    "presets": _presets,
    "schemes": lambda: SCHEMES,
}
