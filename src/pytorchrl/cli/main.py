"""Command line: parses, calls, and turns errors into messages and exit codes. Heavy imports wait for their command."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

from pytorchrl.console import complain, say
from pytorchrl.errors import ConfigError, RLError, suggestion
from pytorchrl.parameters import LARGEST_SEED, Node, Parameter, Problems, Range, check

EXIT_BAD_REQUEST = 2
EXIT_INTERRUPTED = 130
SEE_HELP = "`{} --help` shows what it takes."


class Parser(argparse.ArgumentParser):
    """Raises what is wrong, instead of printing a usage and leaving."""

    def error(self, message: str) -> NoReturn:
        choice = re.match(r"argument (COMMAND): invalid choice: '?([^']*)'?", message)
        if choice:
            raise ConfigError(f"unknown command '{choice[2]}'", suggestion(choice[2], MODULES))
        raise ConfigError(message, SEE_HELP.format(self.prog))


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
        epilog="`pytorchrl train ALGO [ENV] --help` lists every parameter that --set takes, with its value.",
    )
    train.add_argument("algorithm", nargs="?", metavar="ALGO", help="algorithm, in any case: ppo, …")
    train.add_argument("env", nargs="?", metavar="ENV", help="a Gymnasium id, or module:Env-v0")
    train.add_argument("-h", "--help", action="store_true", help="show this help and exit")
    for flag, (_, metavar, text) in RUN_FLAGS.items():
        train.add_argument(flag, metavar=metavar, help=text)
    train.add_argument("--config", metavar="FILE", help="a configuration file, such as a run's config.yaml")
    train.add_argument("--preset", metavar="NAME", help="a preset of `pytorchrl list presets`, or none")
    train.add_argument("--set", metavar="PATH=VALUE", action="append", default=[], help="any parameter, by path")
    train.add_argument("--run", metavar="DIR", help="the run's folder")
    train.add_argument("--quiet", action="store_true", help="show nothing")

    resume = commands.add_parser("resume", help="continue a run where its last checkpoint left it", allow_abbrev=False)
    resume.add_argument("run", metavar="RUN", help="a run's folder")
    resume.add_argument("--steps", metavar="N", help="environment steps to train to")
    resume.add_argument("--env", metavar="ENV", help="its environment, where a module:Env-v0 must be allowed by name")
    resume.add_argument("--quiet", action="store_true", help="show nothing")

    evaluate = commands.add_parser("evaluate", help="score a trained policy", allow_abbrev=False)
    evaluate.add_argument("run", metavar="RUN", help="a run's folder")
    evaluate.add_argument("--episodes", metavar="N", default="10", help="episodes to play (10)")
    evaluate.add_argument("--seed", metavar="S", default="0", help="seed of the episodes (0)")
    evaluate.add_argument("--checkpoint", metavar="latest|best|STEP", help="instead of the final policy")
    evaluate.add_argument("--env", metavar="ENV", help="another environment than the policy's own")
    evaluate.add_argument("--json", action="store_true", help="one JSON object on standard output")

    enjoy = commands.add_parser("enjoy", help="watch a trained policy, or film it", allow_abbrev=False)
    enjoy.add_argument("run", metavar="RUN", help="a run's folder")
    enjoy.add_argument("--episodes", metavar="N", default="1", help="episodes to play (1)")
    enjoy.add_argument("--video", metavar="FILE", help="an .mp4 or .gif file instead of a window")
    enjoy.add_argument("--seed", metavar="S", default="0", help="seed of the episodes (0)")
    enjoy.add_argument("--checkpoint", metavar="latest|best|STEP", help="instead of the final policy")
    enjoy.add_argument("--env", metavar="ENV", help="another environment than the policy's own")

    report = commands.add_parser("report", help="draw the page of a run, or compare runs", allow_abbrev=False)
    report.add_argument("runs", metavar="RUN", nargs="+", help="a run's folder; several are compared")
    report.add_argument("--out", metavar="FILE", help="the page (report.html of the run, or comparison.html)")
    report.add_argument("--live", action="store_true", help="serve the page on this machine and follow the run")
    report.add_argument("--port", metavar="N", default="0", help="port of --live (a free one)")

    record = commands.add_parser("record", help="record demonstrations for PPO+D", allow_abbrev=False)
    record.add_argument("env", metavar="ENV", help="a Gymnasium id, or module:Env-v0")
    record.add_argument("--out", metavar="DIR", required=True, help="the folder that they are added to")
    record.add_argument("--run", metavar="RUN", help="the run whose policy plays")
    record.add_argument("--episodes", metavar="N", default="5", help="episodes to record (5)")
    record.add_argument("--seed", metavar="S", default="0", help="seed of the episodes (0)")
    record.add_argument("--checkpoint", metavar="latest|best|STEP", help="instead of the run's final policy")

    tune = commands.add_parser("tune", help="search hyper-parameters", allow_abbrev=False)
    tune.add_argument("algorithm", nargs="?", metavar="ALGO", help="algorithm, in any case: ppo, …")
    tune.add_argument("env", nargs="?", metavar="ENV", help="a Gymnasium id")
    tune.add_argument(
        "--trials", metavar="N", default="50", help="trials in all, those of an earlier call included (50)"
    )
    tune.add_argument("--jobs", metavar="N", default="1", help="trials at a time, in processes of their own (1)")
    tune.add_argument("--steps", metavar="N", help="environment steps of each trial")
    tune.add_argument("--seed", metavar="S", default="1", help="root of every random stream (1)")
    tune.add_argument("--search", metavar="PATH,PATH", help="what to search; by default all that can be")
    tune.add_argument("--set", metavar="PATH=VALUE", action="append", default=[], help="any parameter, by path")
    tune.add_argument("--preset", metavar="NAME", help="the preset to search around")
    tune.add_argument("--config", metavar="FILE", help="the configuration file to search around")
    tune.add_argument("--out", metavar="DIR", help="where the search lies (tune/ALGO__ENV)")

    export = commands.add_parser("export", help="write a policy for other programs", allow_abbrev=False)
    export.add_argument("run", metavar="RUN", help="a run's folder")
    export.add_argument("--format", metavar="NAME", default="safetensors", help="safetensors (default), torch or onnx")
    export.add_argument("--out", metavar="DIR", help="where to write (export/NAME in the run's folder)")
    export.add_argument("--checkpoint", metavar="latest|best|STEP", help="instead of the final policy")

    listing = commands.add_parser("list", help="what there is", allow_abbrev=False)
    listing.add_argument("what", metavar="WHAT", help="algorithms, storages, actors, envs, presets or schemes")

    completion = commands.add_parser("completion", help="what finishes words in a shell", allow_abbrev=False)
    completion.add_argument("shell", metavar="SHELL", help="bash, zsh or fish")
    return parser


# Flags of `train` that stand for a path of the configuration.
RUN_FLAGS = {
    "--steps": ("run.steps", "N", "environment steps to train for"),
    "--seed": ("run.seed", "S", "root of every random stream (1)"),
    "--envs": ("env.num_envs", "N", "environments stepped together"),
    "--backend": ("env.backend", "NAME", "auto, sync, async, vector or envpool"),
    "--device": ("run.device", "DEVICE", "auto, cpu or cuda"),
    "--threads": ("run.threads", "N", "intra-op threads (1)"),
    "--precision": ("run.precision", "NAME", "auto, fp32, onednn or bf16 (auto: the faster exact one)"),
    "--eval-every": ("run.eval_every", "N", "environment steps between evaluations; 0 for none"),
    "--checkpoint-every": ("run.checkpoint_every", "N", "environment steps between checkpoints"),
    "--video-every": ("run.video_every", "N", "environment steps between videos; 0 for none (0)"),
    "--logger": ("run.logger", "NAMES", "of csv,tensorboard,wandb,mlflow"),
}

MODULES = {
    "train": "pytorchrl.cli.train",
    "resume": "pytorchrl.cli.resume",
    "evaluate": "pytorchrl.cli.evaluate",
    "enjoy": "pytorchrl.cli.enjoy",
    "report": "pytorchrl.cli.report",
    "record": "pytorchrl.cli.record",
    "tune": "pytorchrl.cli.tune",
    "export": "pytorchrl.cli.export",
    "list": "pytorchrl.cli.listing",
    "completion": "pytorchrl.cli.completion",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        return run_command(build_parser(), arguments)
    except RLError as error:
        if error.exit_code != EXIT_BAD_REQUEST and error.__cause__ is not None:
            import traceback

            complain("".join(traceback.format_exception(error.__cause__)).rstrip())
        complain(f"pytorchrl: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        complain("pytorchrl: interrupted")
        return EXIT_INTERRUPTED


def run_command(parser: Parser, arguments: Sequence[str] | None) -> int:
    """Parse, import the command's module, and call it."""
    options, unknown = parser.parse_known_args(arguments)
    command = f"pytorchrl {options.command or ''}".strip()
    if unknown:
        name = unknown[0].partition("=")[0]
        near = suggestion(name, flags_of(parser, options.command)) if name.startswith("-") else ""
        raise ConfigError(f"unknown argument '{name}'", near if near.startswith("Did") else SEE_HELP.format(command))
    if options.version:
        from pytorchrl import __version__

        say(f"pytorchrl {__version__}")
        return 0
    if options.command is None:
        say(parser.format_help().rstrip())
        return 0
    import importlib

    module: Any = importlib.import_module(MODULES[options.command])
    return int(module.run(options, parser))


def command_parser(parser: Parser, command: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    found: argparse.ArgumentParser = commands.choices[command]
    return found


def flags_of(parser: Parser, command: str | None) -> list[str]:
    """The flags of the program or of one of its commands."""
    actions = (parser if command is None else command_parser(parser, command))._actions
    return [option for action in actions for option in action.option_strings]


def whole_number(text: str, flag: str, low: int = 0, high: int = LARGEST_SEED) -> int:
    """A flag's number; ``ConfigError`` names the flag."""
    problems = Problems()
    parameter = Parameter(flag, Annotated[int, Range(low, high)], None, "")
    number = check(Node(text, text=True), parameter, flag, problems)
    problems.raise_any()
    return int(number)


def entry_point() -> NoReturn:
    """The installed program."""
    sys.exit(main())
