"""pytorchrl export"""

from __future__ import annotations

import argparse
from pathlib import Path

from pytorchrl.cli.evaluate import policy_of
from pytorchrl.console import say
from pytorchrl.errors import ConfigError, suggestion
from pytorchrl.export import FORMATS, export


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.format not in FORMATS:
        raise ConfigError(f"--format: unknown format '{options.format}'", suggestion(options.format, FORMATS))
    folder = Path(options.run)
    policy = policy_of(options.run, options.checkpoint)
    out = folder / "export" / options.format if options.out is None else Path(options.out)
    say(str(export(policy, options.format, out)))
    return 0
