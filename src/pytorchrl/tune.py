"""Searching hyper-parameters with Optuna, around the values that a run would have."""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pytorchrl.atomic import write_bytes
from pytorchrl.errors import ConfigError, RLError, suggestion
from pytorchrl.learner import Learner, mean
from pytorchrl.options import RunConfig
from pytorchrl.parameters import Parameter, Range
from pytorchrl.registry import load_class
from pytorchrl.run import train_config
from pytorchrl.scheme.scheme import Round
from pytorchrl.seeding import derived_seed
from pytorchrl.signals import Interrupted

SECTIONS = ("algorithm", "storage")
# What says how a run is measured, not how it learns.
NOT_SEARCHED = {"test_every", "num_test_episodes", "eps"}
EVALUATIONS = 5
STARTUP_TRIALS = 5  # trials that no trial is given up against
LARGEST_SIZE = 10_000  # storages beyond that are memory, not something to search


@dataclass(frozen=True)
class Dimension:
    """Where a parameter is searched: numbers between ``low`` and ``high``, or ``choices``.

    ``log`` spreads numbers evenly by ratio; ``below_one`` spreads what is missing to 1 so: discounts.
    """

    path: str
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    log: bool = False
    below_one: bool = False
    choices: tuple[Any, ...] = ()

    def suggest(self, trial: Any) -> Any:
        """A value of an Optuna trial."""
        if self.choices:
            return trial.suggest_categorical(self.path, list(self.choices))
        if self.whole:
            return trial.suggest_int(self.path, int(self.low), int(self.high), log=self.log)
        if self.below_one:
            return 1.0 - trial.suggest_float(f"1 - {self.path}", self.low, self.high, log=True)
        return trial.suggest_float(self.path, self.low, self.high, log=self.log)

    def __str__(self) -> str:
        if self.choices:
            return f"{self.path}: {' or '.join(map(str, self.choices))}"
        low, high = (1 - self.high, 1 - self.low) if self.below_one else (self.low, self.high)
        return f"{self.path}: {low:.4g} to {high:.4g}{' by ratio' if self.log else ''}"


def dimension_of(path: str, parameter: Parameter, value: Any) -> Dimension | None:
    """Where to search around ``value``, from the parameter's own type and range; None if it cannot be searched."""
    annotation, limits = parameter.annotation, Range()
    if get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)
        limits = next((extra for extra in extras if isinstance(extra, Range)), limits)
    if annotation is bool:
        return Dimension(path, choices=(False, True))
    if get_origin(annotation) is Literal:
        return Dimension(path, choices=get_args(annotation))
    if get_origin(annotation) in (Union, UnionType) or annotation not in (int, float) or value is None:
        return None
    if annotation is int:
        low, high = max(limits.low, value // 4, 1 if value else 0), min(limits.high, max(value, 1) * 4)
        return Dimension(path, low, high, whole=True, log=low > 0)
    if limits.high == 1 and 0.9 <= value < 1:
        return Dimension(path, max((1 - value) / 5, 1e-4), min((1 - value) * 5, 0.5), below_one=True)
    if value <= 0:
        return Dimension(path, 0.0, min(limits.high, 0.1))
    if limits.high == 1 and value > 0.3:
        return Dimension(path, 0.0 if not limits.above else 1e-6, 1.0)
    return Dimension(path, value / 10, min(value * 10, limits.high), log=True)


def search_space(config: RunConfig, paths: Sequence[str] = ()) -> list[Dimension]:
    """The dimensions of a search: those of the given paths, or all that can be searched."""
    found = {}
    for section in SECTIONS:
        choice = getattr(config, section)
        for name, parameter in load_class(section, choice.name).configurable().items():
            path, value = f"{section}.{name}", choice.config.get(name)
            large = section == "storage" and isinstance(value, int) and value > LARGEST_SIZE
            dimension = dimension_of(path, parameter, value)
            if dimension is not None and (path in paths or (name not in NOT_SEARCHED and not large)):
                found[path] = dimension
    for path in paths:
        if path not in found:
            raise ConfigError(f"--search {path}: nothing to search", suggestion(path, found))
    return [found[path] for path in paths] if paths else list(found.values())


def with_values(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """The configuration with other values at some paths."""
    changed = {section: replace(getattr(config, section)) for section in SECTIONS}
    for path, value in values.items():
        section, _, name = path.partition(".")
        changed[section].config = {**changed[section].config, name: value}
    return replace(config, **changed)


@dataclass(frozen=True)
class Tuning:
    """A search: what is tried, and the folder where its study, its runs and its best lie."""

    config: RunConfig
    space: list[Dimension]
    folder: Path

    def study(self, offset: int = 0) -> Any:
        """The Optuna study in the folder, begun or gone on with."""
        import optuna
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(self.folder / "study.log")))
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS)
        study = optuna.create_study(
            study_name="tune", storage=storage, pruner=pruner, direction="maximize", load_if_exists=True
        )
        # A study that goes on does not begin with the same draws again.
        branch = derived_seed(self.config.run.seed, "tune", len(study.trials), offset) % 2**32
        study.sampler = optuna.samplers.TPESampler(seed=branch, multivariate=True, constant_liar=True)
        return study

    def try_out(self, trial: Any) -> float:
        """One trial: a run with the suggested values; its last evaluation is what counts."""
        import optuna

        values = {dimension.path: dimension.suggest(trial) for dimension in self.space}
        config = with_values(self.config, values)
        steps = config.run.steps
        config.run = replace(config.run, eval_every=max(steps // EVALUATIONS, 1))
        scores: list[float] = []

        def judge(learner: Learner, result: Round) -> bool:
            if learner.last_evaluation:
                scores.append(mean(episode.ret for episode in learner.last_evaluation))
                trial.report(scores[-1], len(scores))
            return bool(learner.last_evaluation) and learner.steps < steps and trial.should_prune()

        train_config(config, run=self.folder / f"trial-{trial.number}", quiet=True, callbacks=[judge])
        if not scores:
            raise ConfigError("no evaluation took place", "Give --steps more of them.")
        if len(scores) < EVALUATIONS and trial.should_prune():
            raise optuna.TrialPruned
        return scores[-1]

    def work(self, trials: int, offset: int = 0) -> None:
        """Try until the study has so many finished trials, whoever finished them."""
        import optuna
        from optuna.study import MaxTrialsCallback
        from optuna.trial import TrialState

        logging.getLogger("optuna").setLevel(logging.CRITICAL)
        finished = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
        study = self.study(offset)
        if len(study.get_trials(states=finished)) < trials:
            limit = MaxTrialsCallback(trials, states=finished)
            study.optimize(self.try_out, callbacks=[limit], catch=(RLError, optuna.TrialPruned))

    def help_out(self, trials: int, offset: int) -> None:
        """``work`` in a process of its own: an interruption is told once, by the first one."""
        with contextlib.suppress(Interrupted, KeyboardInterrupt):
            self.work(trials, offset)

    def run(self, trials: int, jobs: int = 1) -> Any:
        """Try ``trials`` in all, ``jobs`` at a time; returns the study."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.study()  # it is there before anybody joins it
        context = multiprocessing.get_context("spawn")
        others = [context.Process(target=self.help_out, args=(trials, job)) for job in range(1, jobs)]
        for process in others:
            process.start()
        try:
            self.work(trials)
        finally:
            for process in others:
                process.join()
        return self.study()

    def write_best(self, study: Any) -> Path:
        """The best trial's configuration as a file for ``train --config``."""
        values = {d.path: d.suggest(_Replay(study.best_trial.params)) for d in self.space}
        path = self.folder / "best.yaml"
        write_bytes(path, with_values(self.config, values).to_yaml().encode())
        return path


class _Replay:
    """A trial that suggests what another one was given."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def suggest_float(self, name: str, *_: Any, **__: Any) -> Any:
        return self.params[name]

    suggest_int = suggest_categorical = suggest_float


def best_value(study: Any) -> float:
    """The best score so far; NaN if no trial has finished."""
    done = [trial.value for trial in study.trials if trial.value is not None and trial.state.name == "COMPLETE"]
    return max(done, default=math.nan)
