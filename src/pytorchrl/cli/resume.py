"""pytorchrl resume"""

from __future__ import annotations

import argparse

from pytorchrl.cli.main import whole_number
from pytorchrl.console import complain
from pytorchrl.run import resume
from pytorchrl.signals import Interrupted


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    steps = None if options.steps is None else whole_number(options.steps, "--steps", 1)
    try:
        resume(options.run, steps=steps, env=options.env, quiet=options.quiet)
    except Interrupted as stop:
        complain(f"pytorchrl: {stop}")
        return stop.exit_code
    return 0
