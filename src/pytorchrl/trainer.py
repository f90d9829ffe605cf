"""One run from a configuration to a run folder, and what is left when it is over."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from pytorchrl import state_tree
from pytorchrl.agent.env.vec_env import Episode, VecEnv
from pytorchrl.checkpoint import write_checkpoint
from pytorchrl.config import RunConfig, resolve
from pytorchrl.console import Display, display, duration
from pytorchrl.envs.gymnasium import env_maker
from pytorchrl.errors import CheckpointError, ConfigError, EnvError, RLError
from pytorchrl.learner import Learner, mean
from pytorchrl.logs import RunLog, TensorBoardLog
from pytorchrl.parameters import Node
from pytorchrl.policy import Policy, load_policy, policy_files, save_policy
from pytorchrl.registry import load_class
from pytorchrl.run_folder import CsvLog, RunFolder, surroundings
from pytorchrl.scheme.collection import play
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.seeding import derived_seed
from pytorchrl.tree import Tree

EnvLike = str | type[gym.Env[Any, Any]] | Callable[..., gym.Env[Any, Any]]


class Interrupted(Exception):  # noqa: N818  it is a request, not an error
    """A signal asked the run to stop; a checkpoint was saved."""

    def __init__(self, number: int, folder: Path) -> None:
        super().__init__(number, folder)
        self.exit_code = 128 + number
        self.folder = folder


class Run:
    """A finished run: where it lies, what it reached, and its policy."""

    def __init__(self, folder: RunFolder, scores: list[float]) -> None:
        self.folder = folder
        self.path = folder.path
        self.scores = scores

    @property
    def policy(self) -> Policy:
        """The trained policy."""
        return load_policy(self.path)

    def report(self) -> Path:
        """The run's page, written anew."""
        from pytorchrl.report.page import write_report

        return write_report(self.folder)


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
    """
    env_id = env if env is None or isinstance(env, str) else _name_of(env)
    stated = {"run.steps": steps, "run.seed": seed, **(overrides or {})}
    nodes = [(path, Node.of(value)) for path, value in stated.items() if value is not None]
    resolved = resolve(algorithm, env_id, preset=preset, config=config, overrides=nodes)
    maker = env if callable(env) else None
    return train_config(resolved, env_fn=maker, run=run, quiet=quiet)


def _name_of(env: Callable[..., Any]) -> str:
    return str(getattr(env, "__name__", type(env).__name__)).strip("<>")


def train_config(
    config: RunConfig,
    *,
    env_fn: Callable[..., gym.Env[Any, Any]] | None = None,
    run: str | Path | None = None,
    quiet: bool = False,
) -> Run:
    """Train what a resolved configuration says. Nothing is written until the agent is built."""
    trainer = Trainer(config, env_fn)
    name = f"{config.algorithm.name}__{_plain(config.env.id)}__seed{config.run.seed}"
    try:
        folder = RunFolder.create(name, run)
    except ConfigError:
        trainer.learner.stop()
        raise
    return trainer.run(folder, quiet)


def _plain(env_id: str) -> str:
    """An environment id as part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in env_id)


def device_of(wish: str) -> tuple[str, str]:
    """(device, why)."""
    if wish == "auto":
        return ("cuda", "the fastest there is") if torch.cuda.is_available() else ("cpu", "no GPU found")
    if wish == "cuda" and not torch.cuda.is_available():
        raise ConfigError("run.device: 'cuda' was asked for, and there is none", "Use auto or cpu.")
    return wish, "as asked"


def build_scheme(config: RunConfig, env_fn: Callable[..., gym.Env[Any, Any]] | None, device: str) -> Scheme:
    """The agent's parts, put together."""
    maker = env_fn or env_maker(config.env.id)
    try:
        envs_factory, action_space, observation_space = VecEnv.create_factory(
            maker, config.env.kwargs, config.env.num_envs
        )
    except EnvError as error:
        raise ConfigError(f"{config.env.id} cannot be made: {error.__cause__}") from error
    algo_factory, algo_name = load_class("algorithm", config.algorithm.name).create_factory(**config.algorithm.config)
    actor_factory = load_class("actor", config.actor.name).create_factory(
        observation_space, action_space, algo_name, **config.actor.config
    )
    storage_factory = load_class("storage", config.storage.name).create_factory(**config.storage.config)
    return Scheme(algo_factory, actor_factory, storage_factory, envs_factory, local_device=device, seed=config.run.seed)


class Trainer:
    """Builds a run's learner and leads it to the end, writing the run folder as it goes."""

    def __init__(self, config: RunConfig, env_fn: Callable[..., gym.Env[Any, Any]] | None = None) -> None:
        self.config = config
        self.device, self.device_reason = device_of(config.run.device)
        torch.set_num_threads(config.run.threads)
        scheme = build_scheme(config, env_fn, self.device)
        self.learner = Learner(scheme, config.run.steps, anneal=config.anneal, eval_every=config.run.eval_every)
        self.log_every = config.run.log_every or max(config.run.steps // 200, 1)
        self.checkpoint_every = config.run.checkpoint_every or max(config.run.steps // 10, 1)
        self.signal: int | None = None
        self._sums: dict[str, list[Tensor]] = {}
        self._best = float("-inf")
        self._last_evaluation: float | None = None

    def run(self, folder: RunFolder, quiet: bool) -> Run:
        """Train to the end; leaves a status that says how it ended."""
        self.folder = folder
        folder.write_config(self.config.to_yaml())
        self.facts = surroundings(sys.argv) | {"steps": 0, "seed": self.config.run.seed}
        folder.write_status("running", **self.facts)
        title = f"{self.config.algorithm.name} on {self.config.env.id}, seed {self.config.run.seed}"
        shown = display(title, self.config.run.steps, quiet)
        for line in self.opening():
            shown.say(line)
        tensorboard = TensorBoardLog(folder.path) if "tensorboard" in self.config.run.logger else None
        self.log = RunLog(CsvLog(folder.progress), CsvLog(folder.episodes), tensorboard)
        self.started = time.monotonic()
        state = "failed"
        try:
            with self.listening_to_signals():
                self.loop(shown)
            state = "done" if self.signal is None else "interrupted"
        finally:
            shown.close()
            self.learner.stop()
            self.log.close()
            folder.write_status(state, **self.facts | {"steps": self.learner.steps})
        if self.signal is not None:
            raise Interrupted(self.signal, folder.path)
        return self.finish(shown)

    def opening(self) -> list[str]:
        """What will happen, in plain units."""
        config, scheme = self.config, self.learner.scheme
        preset = f"preset {config.preset}" if config.preset else "no preset"
        rows = (scheme.algorithm.update_every or scheme.storage.max_size) * config.env.num_envs
        epochs, parts = scheme.algorithm.num_epochs, scheme.algorithm.num_mini_batch
        return [
            f"{config.algorithm.name} on {config.env.id} for {config.run.steps:,} steps, seed {config.run.seed}"
            f" ({preset}). The run lies in {self.folder.path}",
            f"{config.env.num_envs} environments; every {rows:,} steps {epochs * parts} updates"
            f" ({epochs} epochs of {parts} mini-batches); device {self.device} ({self.device_reason}),"
            f" {config.run.threads} thread{'s' if config.run.threads > 1 else ''}.",
            *config.notes,
        ]

    def loop(self, shown: Display) -> None:
        learner = self.learner
        while not learner.done() and self.signal is None:
            before = learner.steps
            result = learner.step()
            for name, value in result.losses.items():
                self._sums.setdefault(name, []).append(value)
            elapsed = time.monotonic() - self.started
            self.log.finished([_episode_row(before + offset, elapsed, ended) for offset, ended in result.episodes])
            improved = self.note_evaluation()
            last = learner.steps >= self.config.run.steps
            due = learner.steps // self.log_every > before // self.log_every
            figures = self.figures(elapsed, closing=due or last)
            if due or last:
                self.log.row(figures)
            shown.update(figures, row=due or last)
            if last or improved or learner.steps // self.checkpoint_every > before // self.checkpoint_every:
                self.save(best=improved)
        if self.signal is not None:
            self.save()

    def note_evaluation(self) -> bool:
        """Take over the round's evaluation, if there was one; whether it is the best so far."""
        if not self.learner.last_evaluation:
            return False
        self._last_evaluation = mean(episode.ret for episode in self.learner.last_evaluation)
        improved = self._last_evaluation > self._best
        self._best = max(self._best, self._last_evaluation)
        return improved

    def figures(self, elapsed: float, closing: bool) -> dict[str, float]:
        """The columns of a log row; ``closing`` starts the next averaging interval."""
        learner = self.learner
        figures = {
            "time/total_timesteps": learner.steps,
            "time/time_elapsed": round(elapsed, 3),
            "time/fps": round(learner.steps / max(elapsed, 1e-9), 1),
            "train/n_updates": learner.updates,
            "scheme/policy_lag": 0.0,
            "scheme/gradient_asynchrony": 0.0,
        }
        if learner.recent:
            figures["rollout/ep_rew_mean"] = mean(episode.ret for episode in learner.recent)
            figures["rollout/ep_len_mean"] = mean(episode.length for episode in learner.recent)
        if self._last_evaluation is not None:
            figures["eval/mean_reward"] = self._last_evaluation
        if closing:
            figures |= {f"train/{name}": torch.stack(values).mean().item() for name, values in self._sums.items()}
            self._sums = {}
            self._last_evaluation = None
        return figures

    def save(self, best: bool = False) -> None:
        """A checkpoint: the policy by itself, and what the learner needs to go on."""
        structure, tensors = state_tree.encode({"scheme": self.learner.scheme.get_state(), "steps": self.learner.steps})
        files = self.policy_files() | {"state.json": structure, "state.safetensors": tensors}
        write_checkpoint(self.folder.checkpoints, self.learner.steps, files, best)

    def policy_files(self) -> dict[str, bytes]:
        config, scheme = self.config, self.learner.scheme
        info = {
            "algorithm": config.algorithm.name,
            "env": config.env.id,
            "env_kwargs": config.env.kwargs,
            "steps": self.learner.steps,
            "actor": {"name": config.actor.name, "config": config.actor.config},
        }
        return policy_files(scheme.actor, info, scheme.envs.backend.observations.source)

    def finish(self, shown: Display) -> Run:
        """The policy, the report, and what to do next."""
        save_policy(self.folder.policy, self.policy_files())
        scores = [episode.ret for episode in self.learner.recent]
        run = Run(self.folder, scores)
        report = run.report()
        elapsed = time.monotonic() - self.started
        path = self.folder.path
        if scores:
            shown.say(f"Mean return of the last {len(scores)} episodes: {mean(scores):,.1f}")
        shown.say(f"{self.learner.steps:,} steps in {duration(elapsed)}. Next:")
        shown.say(f"  look at the report    {report}")
        shown.say(f"  score the policy      pytorchrl evaluate {path}")
        shown.say(f"  use it from Python    policy = pytorchrl.load('{path}')")
        shown.say(f"  repeat the run        pytorchrl train --config {path / 'config.yaml'}")
        return run

    def listening_to_signals(self) -> _Signals:
        return _Signals(self)


class _Signals:
    """The first SIGINT or SIGTERM asks the run to finish its round; a second one leaves at once."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def __enter__(self) -> None:
        self.before = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self.heard)
        except ValueError:  # not the main thread: signals are its business
            self.before = {}

    def heard(self, number: int, frame: FrameType | None) -> None:
        self.trainer.signal = number
        self.__exit__()

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def _episode_row(steps: int, seconds: float, episode: Episode) -> dict[str, float]:
    return {"steps": steps, "seconds": round(seconds, 3), "return": episode.ret, "length": episode.length}


def evaluate(policy: Policy, num_episodes: int, seed: int, env_fn: Callable[..., Any] | None = None) -> list[Episode]:
    """Deterministic episodes of a policy in its own environment (or in the one given)."""
    maker = env_fn or partial(env_maker(policy.info["env"]), **policy.info["env_kwargs"])
    envs = VecEnv(maker, min(num_episodes, 10), mode="test")

    def acting(obs: Tree, rhs: dict[str, Tensor], done: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.inference_mode():
            _, action, _, rhs, *_ = policy.actor.get_action(obs, rhs, done, True)  # type: ignore[operator]
        return action, rhs

    try:
        seeds = [derived_seed(seed, "episodes", i) for i in range(envs.num_envs)]
        return play(acting, envs, policy.actor.initial_rhs(envs.num_envs), num_episodes, seeds)
    finally:
        envs.close()


__all__ = ["CheckpointError", "Interrupted", "RLError", "Run", "Trainer", "evaluate", "train", "train_config"]
