"""pytorchrl report"""

from __future__ import annotations

import argparse
from pathlib import Path

from pytorchrl.console import say
from pytorchrl.errors import ConfigError
from pytorchrl.report.page import write_report
from pytorchrl.run_folder import RunFolder


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    folder = RunFolder(Path(options.run))
    if not folder.status.is_file():
        raise ConfigError(f"{options.run}: this is not a run folder", "`ls runs` shows the runs of this folder.")
    say(str(write_report(folder)))
    return 0
