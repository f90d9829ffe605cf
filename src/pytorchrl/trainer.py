"""Trainer: leads one run to its end, writing the run folder as it goes, and takes up a run that was stopped."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pytorchrl import state_tree
from pytorchrl.build import EnvMaker, build_scheme, device_of
from pytorchrl.checkpoint import newest_checkpoint, write_checkpoint
from pytorchrl.config import resolve
from pytorchrl.console import Display, display
from pytorchrl.envs.gymnasium import env_maker
from pytorchrl.errors import ConfigError, EnvError, NonFiniteError
from pytorchrl.guards import require_finite_weights
from pytorchrl.learner import Callback, Learner
from pytorchrl.logs import open_log
from pytorchrl.memory import in_units
from pytorchrl.options import RunConfig
from pytorchrl.policy import WEIGHTS, load_weights, policy_files, save_files
from pytorchrl.precision import precision_of
from pytorchrl.progress import Progress
from pytorchrl.run_folder import RunFolder, surroundings
from pytorchrl.seeding import derived_seed
from pytorchrl.shards import ShardFolder
from pytorchrl.signals import Interrupted, StopRequest

LOG = logging.getLogger("pytorchrl")

STATE, STATE_TENSORS = "state.json", "state.safetensors"
FAILURE = "failure"
# Bytes from which on a checkpoint's size and time are told.
WORTH_SAYING = 10 * 2**20


class Trainer:
    """A run's learner and what is written about it.

    Parameters
        config: the resolved configuration.
        env_fn: makes the environments, if the configuration's id does not.
        callbacks: called after every round, as ``Learner`` calls them.
    """

    def __init__(self, config: RunConfig, env_fn: EnvMaker | None = None, callbacks: Sequence[Callback] = ()) -> None:
        self.config = config
        self.env_fn = env_fn or env_maker(config.env.id)
        self.device, self.device_reason = device_of(config.run.device)
        torch.set_num_threads(config.run.threads)
        # What a run computes with belongs to it: resumed or repeated, it is not measured again.
        config.run.precision, self.precision_reason = precision_of(config.run.precision, self.device)
        scheme = build_scheme(config, self.env_fn, self.device)
        self.learner = Learner(
            scheme, config.run.steps, anneal=config.anneal, eval_every=config.run.eval_every, callbacks=callbacks
        )
        self.video_every = config.run.video_every
        self.told: list[str] = []  # what is to be said between two rounds
        self.checkpoint_every = config.run.checkpoint_every or max(config.run.steps // 10, 1)

    def run(self, folder: RunFolder, quiet: bool, resume: bool = False) -> Progress:
        """Train to the end, from the newest checkpoint if ``resume``; leaves a status that says how it ended."""
        self.folder = folder
        facts = surroundings(sys.argv) | {"seed": self.config.run.seed, "preset": self.config.preset}
        if resume:  # the command that repeats the run is the one that began it
            begun = folder.read_status()
            facts |= {name: begun[name] for name in ("command", "preset") if name in begun}
        title = f"{self.config.algorithm.name} on {self.config.env.id}, seed {self.config.run.seed}"
        log_every = self.config.run.log_every or max(self.config.run.steps // 200, 1)
        try:
            with folder.lock():
                log = open_log(folder, self.config.run.logger, self.config.settings())
                self.progress = Progress(self.learner, log, log_every)
                skipped = self.take_up() if resume else []
                folder.write_config(self.config.to_yaml())
                folder.write_status("running", **facts, steps=self.learner.steps)
                shown = display(title, self.config.run.steps, quiet)
                ending: dict[str, Any] = {"state": "failed"}
                try:
                    for line in [*skipped, *self.opening()]:
                        shown.say(line)
                    with StopRequest() as request:
                        self.loop(shown, request)
                    ending = {"state": "done" if request.number is None else "interrupted"}
                except Exception as error:
                    ending["error"] = f"{type(error).__name__}: {error}"
                    if isinstance(error, NonFiniteError):
                        self.write_failure()
                    raise
                finally:
                    shown.close()
                    log.close()
                    folder.write_status(**ending, **facts, steps=self.learner.steps)
        finally:
            self.learner.stop()
        if request.number is not None:
            raise Interrupted(request.number, folder.path)
        save_files(folder.policy, self.policy_files())
        return self.progress

    def opening(self) -> list[str]:
        """What will happen, in plain units."""
        config, scheme = self.config, self.learner.scheme
        preset = f"preset {config.preset}" if config.preset else "no preset"
        rows = scheme.round_steps
        saved = "a resumed run continues exactly"
        if not scheme.can_save_envs:
            every = f"every {self.checkpoint_every:,} steps"
            reason = scheme.envs.snapshot_support()
            saved = f"episodes are cut at checkpoints, {every}, since the environment cannot be saved ({reason})"
        N, envs = config.env.num_envs, scheme.envs
        each = "" if scheme.distributed is None else " for each collector"
        wanted = scheme.algorithm.random_steps_wanted * N
        threads = f"{config.run.threads} thread{'s' if config.run.threads > 1 else ''}"
        return [
            f"{config.algorithm.name} on {config.env.id} for {config.run.steps:,} steps, seed {config.run.seed}"
            f" ({preset}). The run lies in {self.folder.path}",
            *([] if scheme.distributed is None else [scheme.distributed.described(config.scheme.name)]),
            f"{N} environment{'s' if N > 1 else ''}{each}, backend {envs.backend_name} ({envs.backend_reason});"
            f" {saved}.",
            f"Every {rows:,} steps {scheme.algorithm.updates_per_round(rows)}; device"
            f" {self.device} ({self.device_reason}), {threads}, products {config.run.precision}"
            f" ({self.precision_reason}).",
            *([f"Before the first, {wanted:,} steps of random actions, which are not counted."] if wanted else []),
            *scheme.storage.memory_stated(),
            *config.notes,
        ]

    def loop(self, shown: Display, request: StopRequest) -> None:
        learner = self.learner
        while not learner.done() and request.number is None:
            before = learner.steps
            figures, logged = self.progress.note(before, learner.step())
            shown.update(figures, row=logged)
            last = learner.ended or learner.steps >= self.config.run.steps
            due = learner.steps // self.checkpoint_every > before // self.checkpoint_every
            if last or due or self.progress.improved or request.number is not None:
                self.save()
                while self.told:
                    shown.say(self.told.pop(0))
            if self.video_every and learner.steps // self.video_every > before // self.video_every:
                self.film()

    def film(self) -> None:
        """An episode of the present policy as a video. What cannot be filmed is said once; training goes on."""
        from pytorchrl.report.film import film

        scheme, steps = self.learner.scheme, self.learner.steps
        path = self.folder.videos / f"{steps}.mp4"
        try:
            seed = derived_seed(self.config.run.seed, "video", steps)
            rhs = scheme.actor.initial_rhs(1)
            masked = scheme.actor.is_masked
            film(self.env_fn, self.config.env.kwargs, scheme.act, rhs, path, 1, seed, self.device, masked)
        except (ConfigError, EnvError, OSError) as error:
            LOG.warning("no videos: %s", error)
            self.video_every = 0

    def save(self) -> None:
        """A checkpoint: the policy by itself, and everything else that the run is. What it took is told, if much."""
        started, shards = time.monotonic(), ShardFolder(self.folder.checkpoints)
        require_finite_weights(self.learner.scheme.actor.state_dict())
        state = {"learner": self.learner.get_state(), "progress": self.progress.get_state()}
        structure, tensors = state_tree.encode(state, shards.put)
        files = self.policy_files() | {STATE: structure, STATE_TENSORS: tensors}
        write_checkpoint(self.folder.checkpoints, self.learner.steps, files, self.progress.improved, shards)
        rest, seconds = sum(map(len, files.values())), time.monotonic() - started
        whole = rest + sum(shards.named.values())
        if whole >= WORTH_SAYING:
            self.told.append(
                f"Checkpoint at {self.learner.steps:,} steps: {in_units(whole)}, of which"
                f" {in_units(rest + shards.written)} were written, in {seconds:.1f} s."
            )

    def take_up(self) -> list[str]:
        """Go on from the newest whole checkpoint; the damaged ones that were passed over, and why."""
        path, files, skipped = newest_checkpoint(self.folder.checkpoints)
        load_weights(self.learner.scheme.actor, files)
        state = state_tree.decode(files[STATE], files[STATE_TENSORS], ShardFolder(self.folder.checkpoints).get)
        self.learner.set_state(state["learner"])
        self.progress.set_state(state["progress"])
        return [*skipped, f"Resumed from {path}."]

    def policy_files(self) -> dict[str, bytes]:
        """The policy as it is now, ready to be written."""
        config, scheme = self.config, self.learner.scheme
        info = {
            "algorithm": config.algorithm.name,
            "env": config.env.id,
            "env_kwargs": config.env.kwargs,
            "steps": self.learner.steps,
            "actor": {"name": config.actor.name, "config": config.actor.config},
        }
        return policy_files(scheme.actor, info, scheme.envs.backend.observations.source)

    def write_failure(self) -> None:
        """What the failed update was made of; ``repeat_failure`` does it again."""
        scheme = self.learner.scheme
        state = {"batch": scheme.current_batch, "algorithm": scheme.algorithm.get_state()}
        structure, tensors = state_tree.encode(state)
        save_files(self.folder.path / FAILURE, self.policy_files() | {STATE: structure, STATE_TENSORS: tensors})


def repeat_failure(run: str | Path, env_fn: EnvMaker | None = None) -> None:
    """Do the update once more that a run failed in, from the bundle that it left; raises what was raised then."""
    folder = RunFolder.open(run)
    files = {name: (folder.path / FAILURE / name).read_bytes() for name in (WEIGHTS, STATE, STATE_TENSORS)}
    config = resolve(None, None, config=folder.config)
    scheme = build_scheme(config, env_fn, device_of(config.run.device)[0])
    try:
        load_weights(scheme.actor, files)
        state = state_tree.decode(files[STATE], files[STATE_TENSORS])
        scheme.algorithm.set_state(state["algorithm"])
        scheme.products.gradients(scheme.algorithm, state["batch"])
        scheme.algorithm.apply_gradients()
    finally:
        scheme.close()
