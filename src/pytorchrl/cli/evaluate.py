"""pytorchrl evaluate"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from pytorchrl.checkpoint import checkpoints_in, pointer, read_checkpoint
from pytorchrl.cli.main import whole_number
from pytorchrl.console import say
from pytorchrl.errors import ConfigError
from pytorchrl.policy import Policy, load_policy
from pytorchrl.run import evaluate


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    num_episodes = whole_number(options.episodes, "--episodes", 1)
    seed = whole_number(options.seed, "--seed")
    policy = policy_of(options.run, options.checkpoint)
    episodes = evaluate(policy, num_episodes, seed, options.env)
    returns = [episode.ret for episode in episodes]
    figures = {
        "env": options.env or policy.info["env"],
        "algorithm": policy.info["algorithm"],
        "steps": policy.info["steps"],
        "episodes": len(returns),
        "mean_return": statistics.fmean(returns),
        "std_return": statistics.pstdev(returns),
        "mean_length": statistics.fmean(episode.length for episode in episodes),
        "returns": returns,
    }
    if options.json:
        say(json.dumps(figures))
    else:
        say(
            f"{figures['algorithm']} on {figures['env']} after {figures['steps']:,} steps: mean return"
            f" {figures['mean_return']:,.1f} ± {figures['std_return']:,.1f} over {len(returns)} episodes"
            f" of {figures['mean_length']:,.1f} steps"
        )
    return 0


def policy_of(run: str, checkpoint: str | None) -> Policy:
    """The final policy of a run's folder, or that of the checkpoint which ``--checkpoint`` names."""
    folder = Path(run)
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such run folder", "`ls runs` shows the runs of this folder.")
    if not (folder / "policy").is_dir() and not (folder / "checkpoints").is_dir():
        raise ConfigError(f"{folder}: this is not a run folder")
    wanted = checkpoint or ("final" if (folder / "policy").is_dir() else "latest")
    return load_policy(folder if wanted == "final" else find_checkpoint(folder / "checkpoints", wanted))


def find_checkpoint(folder: Path, wanted: str) -> Path:
    """The checkpoint that ``--checkpoint`` names, whole."""
    known = [path.name for path in checkpoints_in(folder)]
    name = pointer(folder, wanted) if wanted in ("latest", "best") else wanted
    if not name and wanted == "latest" and known:
        name = known[0]
    if name not in known:
        raise ConfigError(f"{folder}: no checkpoint '{wanted}'", f"There are: {', '.join(known) or 'none'}.")
    read_checkpoint(folder / name)
    return folder / name
