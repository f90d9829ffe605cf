"""pytorchrl train"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Mapping
from typing import Any

from pytorchrl.cli.main import RUN_FLAGS, Parser, command_parser
from pytorchrl.config import parse_override, resolve, scheme_parameters
from pytorchrl.console import complain, say
from pytorchrl.options import OPTIONS, RunConfig
from pytorchrl.parameters import Node, Parameter, Problems, check, parameters_of
from pytorchrl.registry import COMPANIONS, KINDS, NAMES, canonical_name, load_class


def run(options: argparse.Namespace, parser: Parser) -> int:
    if options.help:
        say(command_parser(parser, "train").format_help().rstrip())
        if options.algorithm is not None:
            show_parameters(options)
        return 0
    config = resolved(options)
    from pytorchrl.run import train_config
    from pytorchrl.signals import Interrupted

    try:
        train_config(config, run=options.run, quiet=options.quiet)
    except Interrupted as stop:
        complain(f"pytorchrl: {stop}")
        return stop.exit_code
    return 0


def resolved(options: argparse.Namespace) -> RunConfig:
    """The configuration that the words of the command line ask for."""
    overrides = [*flags(options), *(parse_override(text) for text in options.set)]
    return resolve(options.algorithm, options.env, preset=options.preset, config=options.config, overrides=overrides)


def flags(options: argparse.Namespace) -> list[tuple[str, Node]]:
    """The flags that stand for a path of the configuration; ``ConfigError`` names the flag that is wrong."""
    found, problems = [], Problems()
    for flag, (path, _, _) in RUN_FLAGS.items():
        text = getattr(options, flag[2:].replace("-", "_"))
        if text is not None:
            section, _, name = path.partition(".")
            words = [Node(word, text=True) for word in text.split(",")]
            node = Node(words) if flag == "--logger" else Node(text, text=True)
            if section in OPTIONS:  # the others' classes are known once all layers are
                check(node, parameters_of(OPTIONS[section])[name], flag, problems)
            found.append((path, node))
    problems.raise_any()
    return found


def show_parameters(options: argparse.Namespace) -> None:
    """Every ``--set`` path of an algorithm: with its value in the environment that was named, else its default."""
    name = canonical_name("algorithm", options.algorithm)
    actor, storage = COMPANIONS[name]
    names = {"algorithm": name, "storage": storage, "actor": actor, "scheme": "single"}
    values: dict[str, Mapping[str, Any]] = {}
    if options.env is not None:
        config = resolved(options)
        choices = {kind: getattr(config, kind) for kind in NAMES}
        names = {kind: choice.name for kind, choice in choices.items()}
        values = {kind: choice.config for kind, choice in choices.items()}
        values |= {"env": vars(config.env), "run": vars(config.run), "anneal": config.anneal}
    sections = {kind: load_class(kind, names[kind]).configurable() for kind in KINDS}
    sections["scheme"] = scheme_parameters()
    sections |= {section: parameters_of(owner) for section, owner in OPTIONS.items()}
    width = max(len(f"{section}.{path}=null") for section, parameters in sections.items() for path in parameters) + 4
    for section, parameters in sections.items():
        say(f"\n{section}{f' ({names[section]})' if section in names else ''}:")
        for item in parameters.values():
            default = "…" if item.required else item.default
            value = values.get(section, {}).get(item.name, default)
            show_row(f"{section}.{item.name}={as_typed(value)}", explained(item), width)
    say("\nanneal:")
    for path, value in values.get("anneal", {"NAME": "VALUE"}).items():
        text = "value at the end of the run, reached linearly (float)"
        show_row(f"anneal.{path}={as_typed(value)}", text, width)


def explained(item: Parameter) -> str:
    kind = f"{item.type_name}, required" if item.required else item.type_name
    return f"{item.doc.rstrip('.')} ({kind})".strip()


def show_row(left: str, right: str, width: int) -> None:
    """Two columns; the right one is wrapped, and begins a line of its own where the left one is long."""
    columns = max(shutil.get_terminal_size().columns, width + 40)
    lines = textwrap.wrap(right, columns - width - 2)
    if len(left) + 2 > width:
        say(f"  {left}")
    else:
        say(f"  {left:<{width}}{lines.pop(0)}")
    for line in lines:
        say(f"  {'':<{width}}{line}")


def as_typed(value: Any) -> str:
    """A value as ``--set`` takes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(as_typed, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {as_typed(item)}' for key, item in value.items())}}}"
    return "{}" if "factory" in str(value) else str(value)
