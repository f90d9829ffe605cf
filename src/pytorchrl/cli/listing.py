"""pytorchrl list"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Mapping

from pytorchrl.config import presets_of
from pytorchrl.console import say
from pytorchrl.errors import ConfigError, suggestion
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
    import gymnasium

    return {env_id: str(spec.entry_point).partition(":")[0] for env_id, spec in sorted(gymnasium.registry.items())}


def _presets() -> dict[str, str]:
    rows = {}
    for algorithm in ALGORITHMS:
        for name, preset in presets_of(algorithm).items():
            options = {**preset.value.get("env", preset).value, **preset.value["run"].value}
            steps, envs = int(options["steps"].value), options.get("num_envs")
            rows[f"{algorithm.lower()}/{name}"] = f"{steps:,} steps" + (f", {envs.value} environments" if envs else "")
    return rows


LISTS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "algorithms": lambda: _components("algorithm"),
    "storages": lambda: _components("storage"),
    "actors": lambda: _components("actor"),
    "envs": _envs,
    "presets": _presets,
    "schemes": lambda: SCHEMES,
}
