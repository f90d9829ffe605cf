"""pytorchrl train"""

from __future__ import annotations

import argparse

from pytorchrl.cli.main import RUN_FLAGS
from pytorchrl.config import parse_override, resolve
from pytorchrl.console import complain, say
from pytorchrl.options import OPTIONS
from pytorchrl.parameters import Node, Parameter, parameters_of
from pytorchrl.registry import COMPANIONS, canonical_name, load_class


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.help:
        show_help(options, parser)
        return 0
    overrides = []
    for flag, (path, _, _) in RUN_FLAGS.items():
        text = getattr(options, flag[2:].replace("-", "_"))
        if text is not None:
            node = (
                Node([Node(word, text=True) for word in text.split(",")])
                if flag == "--logger"
                else Node(text, text=True)
            )
            overrides.append((path, node))
    overrides += [parse_override(text) for text in options.set]
    config = resolve(options.algorithm, options.env, preset=options.preset, config=options.config, overrides=overrides)
    from pytorchrl.run import train_config
    from pytorchrl.signals import Interrupted

    try:
        train_config(config, run=options.run, quiet=options.quiet)
    except Interrupted as stop:
        complain(f"pytorchrl: {stop}")
        return stop.exit_code
    return 0


def show_help(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """The flags, and every ``--set`` path of an algorithm that was named."""
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    say(commands.choices["train"].format_help().rstrip())
    if options.algorithm is None:
        return
    name = canonical_name("algorithm", options.algorithm)
    actor, storage = COMPANIONS[name]
    for kind, chosen in {"algorithm": name, "storage": storage, "actor": actor}.items():
        show_parameters(f"{kind} {chosen}", kind, load_class(kind, chosen).configurable())
    for section, owner in OPTIONS.items():
        show_parameters(section, section, parameters_of(owner))


def show_parameters(title: str, section: str, parameters: dict[str, Parameter]) -> None:
    say(f"\n{title}:")
    for name, item in parameters.items():
        default = "required" if item.required else f"{item.default!r}".replace("<factory>", "{}")
        say(f"  {section}.{name:<32} {item.type_name:<18} {default:<12} {item.doc}")
