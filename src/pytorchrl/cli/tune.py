"""pytorchrl tune"""

from __future__ import annotations

import argparse
import importlib.util
from collections import Counter
from pathlib import Path

from pytorchrl.cli.main import whole_number
from pytorchrl.config import parse_override, resolve
from pytorchrl.console import complain, say
from pytorchrl.errors import ConfigError
from pytorchrl.parameters import Node

MOST_JOBS = 1024


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    trials = whole_number(options.trials, "--trials", 1)
    jobs = whole_number(options.jobs, "--jobs", 1, MOST_JOBS)
    steps = [] if options.steps is None else [("run.steps", Node(whole_number(options.steps, "--steps", 1)))]
    overrides = [*steps, ("run.seed", Node(whole_number(options.seed, "--seed")))]
    overrides += [parse_override(text) for text in options.set]
    config = resolve(options.algorithm, options.env, preset=options.preset, config=options.config, overrides=overrides)
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("tune needs Optuna", "Install it: pip install 'pytorchrl[tune]'")
    from pytorchrl.signals import Interrupted
    from pytorchrl.tune import Tuning, best_value, search_space

    paths = [path for path in (options.search or "").split(",") if path]
    space = search_space(config, paths)
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in config.env.id)
    folder = Path(options.out or Path("tune") / f"{config.algorithm.name}__{name}")
    tuning = Tuning(config, space, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{folder}: cannot be written ({cause})", "Give --out another folder.") from error
    say(f"{trials} trials of {config.run.steps:,} steps, {jobs} at a time, in {folder}; searched are:")
    for dimension in space:
        say(f"  {dimension}")
    try:
        study = tuning.run(trials, jobs)
    except Interrupted as stop:
        complain("pytorchrl: interrupted; the same command goes on with the search")
        return stop.exit_code
    states = Counter(trial.state.name.lower() for trial in study.trials)
    say(f"{', '.join(f'{count} {state}' for state, count in states.items())}; best score {best_value(study):,.1f}")
    if not states["complete"]:
        complain("pytorchrl: no trial came to its end; their folders say why")
        return 1
    for path, value in study.best_trial.params.items():
        say(f"  {path} = {value:.4g}" if isinstance(value, float) else f"  {path} = {value}")
    say(f"Next: pytorchrl train --config {tuning.write_best(study)}")
    return 0
