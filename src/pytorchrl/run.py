"""The short way in: train, resume, evaluate, and what a finished run offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from pytorchrl.agent.env.vec_env import Episode, VecEnv
from pytorchrl.build import EnvMaker
from pytorchrl.config import check_env_id, resolve
from pytorchrl.console import duration, say
from pytorchrl.envs.gymnasium import env_maker
from pytorchrl.errors import ConfigError
from pytorchrl.learner import Callback, mean
from pytorchrl.options import RunConfig
from pytorchrl.parameters import Node
from pytorchrl.policy import Policy, load_policy
from pytorchrl.run_folder import RunFolder
from pytorchrl.scheme.collection import play
from pytorchrl.seeding import derived_seed
from pytorchrl.trainer import Trainer

EnvLike = str | type[gym.Env[Any, Any]] | EnvMaker


class Run:
    """A finished run: where it lies, what it reached, and its policy."""

    def __init__(self, folder: RunFolder, scores: list[float], seconds: float) -> None:
        self.path = folder.path
        self.scores = scores
        self.seconds = seconds
        self._folder = folder

    @property
    def policy(self) -> Policy:
        """The trained policy."""
        return load_policy(self.path)

    def report(self) -> Path:
        """The run's page, written anew."""
        from pytorchrl.report.page import write_report

        return write_report(self._folder)


def train(
    algorithm: str | None = None,
    env: EnvLike | None = None,
    *,
    steps: int | None = None,
    seed: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    preset: str | None = None,
    config: str | Path | None = None,
    run: str | Path | None = None,
    quiet: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train an agent and return the finished run.

    Parameters
        algorithm: its name, in any case.
        env: a Gymnasium id, an Env class, or a function that makes one.
        steps: environment steps to train for.
        seed: root of every random stream.
        overrides: parameters by path, as ``--set`` takes them: {"algorithm.gamma": 0.98}.
        preset: a preset of the zoo, or "none"; by default the one for the environment.
        config: a configuration file, such as the config.yaml of another run.
        run: the run's folder; by default a new one under ``runs``.
        quiet: whether to show nothing.
        callbacks: functions of the learner and its last round, called after every round; True ends the run.
    """
    stated = {"run.steps": steps, "run.seed": seed, **(overrides or {})}
    nodes = [(path, Node.of(value)) for path, value in stated.items() if value is not None]
    resolved = resolve(algorithm, _id_of(env), preset=preset, config=config, overrides=nodes)
    return train_config(resolved, env_fn=env if callable(env) else None, run=run, quiet=quiet, callbacks=callbacks)


def train_config(
    config: RunConfig,
    *,
    env_fn: EnvMaker | None = None,
    run: str | Path | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train what a resolved configuration says. Nothing is written until the agent is built."""
    trainer = Trainer(config, env_fn, callbacks)
    name = f"{config.algorithm.name}__{_plain(config.env.id)}__seed{config.run.seed}"
    try:
        folder = RunFolder.create(name, run)
    except ConfigError:
        trainer.learner.stop()
        raise
    return _lead(trainer, folder, quiet, resume=False)


def resume(run: str | Path, *, steps: int | None = None, env: EnvLike | None = None, quiet: bool = True) -> Run:
    """Continue a run where its newest whole checkpoint left it.

    Parameters
        run: its folder.
        steps: environment steps to train to, if not those of its configuration.
        env: the environment of a run that was started with a class, with a function or with a module:Env-v0.
        quiet: whether to show nothing.
    """
    folder = RunFolder.open(run)
    overrides = [] if steps is None else [("run.steps", Node(steps))]
    config = resolve(None, _id_of(env), config=folder.config, overrides=overrides)
    done = folder.read_status()
    if done["state"] == "done" and done["steps"] >= config.run.steps:
        raise ConfigError(
            f"{folder.path}: this run is done, with {done['steps']:,} steps", "Give --steps N to train it further."
        )
    return _lead(Trainer(config, env if callable(env) else None), folder, quiet, resume=True)


def _lead(trainer: Trainer, folder: RunFolder, quiet: bool, resume: bool) -> Run:
    progress = trainer.run(folder, quiet, resume)
    run = Run(folder, [episode.ret for episode in trainer.learner.recent], progress.elapsed)
    try:
        report: Path | str = run.report()
    except OSError as error:
        report = f"none: {folder.report} cannot be written ({error.strerror})"
    if not quiet:
        if run.scores:
            say(f"Mean return of the last {len(run.scores)} episodes: {mean(run.scores):,.1f}")
        say(f"{trainer.learner.steps:,} steps in {duration(run.seconds)}. Next:")
        say(f"  look at the report    {report}")
        say(f"  score the policy      pytorchrl evaluate {folder.path}")
        say(f"  use it from Python    policy = pytorchrl.load('{folder.path}')")
        say(f"  train it further      pytorchrl resume {folder.path} --steps N")
    return run


def _id_of(env: EnvLike | None) -> str | None:
    """The id of an environment; for a class or function, its name."""
    if env is None or isinstance(env, str):
        return env
    return str(getattr(env, "__name__", type(env).__name__)).strip("<>")


def _plain(env_id: str) -> str:
    """An environment id as part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in env_id)


def evaluate(policy: Policy, num_episodes: int, seed: int = 0, env: EnvLike | None = None) -> list[Episode]:
    """Deterministic episodes of a policy in its own environment, or in the one given."""
    maker, kwargs = _maker_of(policy, env)
    envs = VecEnv(maker, min(num_episodes, 10), env_kwargs=kwargs, mode="test", masked=policy.actor.is_masked)
    try:
        seeds = [derived_seed(seed, "episodes", i) for i in range(envs.num_envs)]
        return play(policy.act, envs, policy.actor.initial_rhs(envs.num_envs), num_episodes, seeds)
    finally:
        envs.close()


def enjoy(
    policy: Policy,
    num_episodes: int = 1,
    seed: int = 0,
    env: EnvLike | None = None,
    video: str | Path | None = None,
) -> tuple[list[Episode], Path | None]:
    """Deterministic episodes to be looked at, in a window or in a video.

    Returns the episodes and the video's file, which is a GIF where mp4 cannot be written.
    """
    from pytorchrl.report.film import film

    maker, kwargs = _maker_of(policy, env)
    path = None if video is None else Path(video)
    masked = policy.actor.is_masked
    return film(maker, kwargs, policy.act, policy.actor.initial_rhs(1), path, num_episodes, seed, masked=masked)


def _maker_of(policy: Policy, env: EnvLike | None) -> tuple[EnvMaker, dict[str, Any]]:
    """What makes a policy's environment, or the one given, and with which arguments."""
    if env is None:
        check_env_id(str(policy.info["env"]))
        env = str(policy.info["env"])
    return (env_maker(env), dict(policy.info["env_kwargs"])) if isinstance(env, str) else (env, {})
