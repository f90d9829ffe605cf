"""pytorchrl enjoy"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from pytorchrl.cli.evaluate import policy_of
from pytorchrl.cli.main import whole_number
from pytorchrl.console import say
from pytorchrl.errors import ConfigError
from pytorchrl.run import enjoy


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    num_episodes = whole_number(options.episodes, "--episodes", 1)
    seed = whole_number(options.seed, "--seed")
    policy = policy_of(options.run, options.checkpoint)
    try:
        episodes, file = enjoy(policy, num_episodes, seed, options.env, options.video)
    except OSError as error:
        raise ConfigError(f"{options.video}: cannot be written ({error.strerror or error})") from error
    for number, episode in enumerate(episodes, 1):
        say(f"episode {number}: return {episode.ret:,.1f} in {episode.length:,} steps")
    if len(episodes) > 1:
        returns = [episode.ret for episode in episodes]
        say(f"mean return {statistics.fmean(returns):,.1f} ± {statistics.pstdev(returns):,.1f}")
    if file is not None:
        unlike = file.suffix != Path(options.video).suffix
        say(f"{file}{' (a GIF: mp4 needs the extra `video`)' if unlike else ''}")
    return 0
