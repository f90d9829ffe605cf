"""pytorchrl list"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from pytorchrl.config import presets_of
from pytorchrl.console import say
from pytorchrl.errors import ConfigError, suggestion
from pytorchrl.registry import ACTORS, ALGORITHMS, SCHEMES, STORAGES


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.what not in LISTS:
        raise ConfigError(f"nothing to list under '{options.what}'", suggestion(options.what, LISTS))
    for line in LISTS[options.what]():
        say(line)
    return 0


def _envs() -> list[str]:
    import gymnasium

    return sorted(gymnasium.registry)


def _presets() -> list[str]:
    return [f"{name.lower()}/{preset}" for name in ALGORITHMS for preset in presets_of(name)]


LISTS: dict[str, Callable[[], list[str]]] = {
    "algorithms": lambda: list(ALGORITHMS),
    "storages": lambda: list(STORAGES),
    "actors": lambda: list(ACTORS),
    "envs": _envs,
    "presets": _presets,
    "schemes": lambda: [f"{name}  {text}" for name, text in SCHEMES.items()],
}
