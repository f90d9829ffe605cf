"""pytorchrl record"""

from __future__ import annotations

import argparse
from pathlib import Path

from pytorchrl.cli.evaluate import policy_of
from pytorchrl.cli.main import whole_number
from pytorchrl.console import say
from pytorchrl.errors import ConfigError
from pytorchrl.keys import REW
from pytorchrl.recording import recordings


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    num_episodes = whole_number(options.episodes, "--episodes", 1)
    seed = whole_number(options.seed, "--seed")
    if options.run is None:
        raise ConfigError(
            "record needs --run RUN, whose policy plays",
            "From Python, pytorchrl.record also takes a function that acts.",
        )
    policy = policy_of(options.run, options.checkpoint)
    for path, demo in recordings(options.env, options.out, policy, num_episodes, seed=seed):
        say(f"{path}  {len(demo[REW]):,} steps, return {demo[REW].sum():,.4g}")
    say(
        f"Train with them: pytorchrl train ppod {options.env} --set storage.initial_human_demos_dir={Path(options.out)}"
    )
    return 0
