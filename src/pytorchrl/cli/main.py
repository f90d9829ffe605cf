"""Command line: parses, calls, and turns errors into messages and exit codes. Heavy imports wait for their command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from pytorchrl.console import complain
from pytorchrl.errors import ConfigError, RLError, suggestion

EXIT_BAD_REQUEST = 2


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, with the nearest known flag."""

    def error(self, message: str) -> NoReturn:
        prefix = "unrecognized arguments: "
        if message.startswith(prefix):
            name = message.removeprefix(prefix).split()[0].partition("=")[0]
            known = [option for action in self._all_actions() for option in action.option_strings]
            message = f"unknown argument '{name}'. {suggestion(name, known) if name.startswith('-') else ''}".strip()
        complain(f"pytorchrl: {message}")
        sys.exit(EXIT_BAD_REQUEST)

    def _all_actions(self) -> list[argparse.Action]:
        """Its own actions and those of its commands."""
        actions = list(self._actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                actions += [inner for parser in action.choices.values() for inner in parser._actions]
        return actions


def build_parser() -> Parser:
    """The commands and their flags."""
    parser = Parser(prog="pytorchrl", description="Reinforcement learning in PyTorch.", allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    train = commands.add_parser(
        "train",
        help="train an agent",
        allow_abbrev=False,
        add_help=False,
        usage="pytorchrl train ALGO ENV [options]",
        epilog="`pytorchrl train ALGO --help` lists every parameter that --set takes.",
    )
    train.add_argument("algorithm", nargs="?", metavar="ALGO", help="algorithm, in any case: ppo, …")
    train.add_argument("env", nargs="?", metavar="ENV", help="a Gymnasium id, or module:Env-v0")
    train.add_argument("-h", "--help", action="store_true", help="show this help and exit")
    for flag, (_, metavar, text) in RUN_FLAGS.items():
        train.add_argument(flag, metavar=metavar, help=text)
    train.add_argument("--config", metavar="FILE", help="a configuration file, such as a run's config.yaml")
    train.add_argument("--preset", metavar="NAME", help="a preset of the zoo, or none")
    train.add_argument("--set", metavar="PATH=VALUE", action="append", default=[], help="any parameter, by path")
    train.add_argument("--run", metavar="DIR", help="the run's folder")
    train.add_argument("--quiet", action="store_true", help="show nothing")

    resume = commands.add_parser("resume", help="continue a run where its last checkpoint left it", allow_abbrev=False)
    resume.add_argument("run", metavar="RUN", help="a run's folder")
    resume.add_argument("--steps", metavar="N", help="environment steps to train to")
    resume.add_argument("--quiet", action="store_true", help="show nothing")

    evaluate = commands.add_parser("evaluate", help="score a trained policy", allow_abbrev=False)
    evaluate.add_argument("run", metavar="RUN", help="a run's folder")
    evaluate.add_argument("--episodes", metavar="N", default="10", help="episodes to play (10)")
    evaluate.add_argument("--seed", metavar="S", default="0", help="seed of the episodes (0)")
    evaluate.add_argument("--checkpoint", metavar="latest|best|STEP", help="instead of the final policy")
    evaluate.add_argument("--json", action="store_true", help="one JSON object on standard output")

    report = commands.add_parser("report", help="draw the page of a run", allow_abbrev=False)
    report.add_argument("run", metavar="RUN", help="a run's folder")

    listing = commands.add_parser("list", help="what there is", allow_abbrev=False)
    listing.add_argument("what", metavar="WHAT", help="algorithms, storages, actors, envs, presets or schemes")
    return parser


# Flags of `train` that stand for a path of the configuration.
RUN_FLAGS = {
    "--steps": ("run.steps", "N", "environment steps to train for"),
    "--seed": ("run.seed", "S", "root of every random stream (1)"),
    "--envs": ("env.num_envs", "N", "environments stepped together"),
    "--device": ("run.device", "DEVICE", "auto, cpu or cuda"),
    "--threads": ("run.threads", "N", "intra-op threads (1)"),
    "--eval-every": ("run.eval_every", "N", "environment steps between evaluations; 0 for none"),
    "--checkpoint-every": ("run.checkpoint_every", "N", "environment steps between checkpoints"),
    "--logger": ("run.logger", "NAMES", "csv,tensorboard"),
}

MODULES = {
    "train": "pytorchrl.cli.train",
    "resume": "pytorchrl.cli.resume",
    "evaluate": "pytorchrl.cli.evaluate",
    "report": "pytorchrl.cli.report",
    "list": "pytorchrl.cli.listing",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.version:
        from pytorchrl import __version__
        from pytorchrl.console import say

        say(f"pytorchrl {__version__}")
        return 0
    if options.command is None:
        parser.print_help()
        return 0
    import importlib

    try:
        command: Any = importlib.import_module(MODULES[options.command])
        return int(command.run(options, parser))
    except RLError as error:
        if error.exit_code != EXIT_BAD_REQUEST and error.__cause__ is not None:
            import traceback

            complain("".join(traceback.format_exception(error.__cause__)).rstrip())
        complain(f"pytorchrl: {error}")
        return error.exit_code


def whole_number(text: str, flag: str, low: int = 0) -> int:
    """A flag's number; ``ConfigError`` names the flag."""
    if not text.replace("_", "").isdecimal() or int(text) < low:
        raise ConfigError(f"{flag}: expected a whole number of at least {low}, got '{text}'")
    return int(text)


def entry_point() -> NoReturn:
    """The installed program."""
    sys.exit(main())
