"""What finite guards and checkpoints cost: the same training with and without them, taking turns."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch

from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env import vec_env
from pytorchrl.build import build_scheme
from pytorchrl.config import parse_override, resolve
from pytorchrl.logs import open_log
from pytorchrl.progress import Progress
from pytorchrl.run_folder import RunFolder
from pytorchrl.trainer import Trainer

ROUNDS = 15
TASKS = {"CartPole-v1": 8, "HalfCheetah-v5": 1}


def guards(env: str, num_envs: int, steps: int) -> float:
    """Share of the time that finite guards take."""
    settings = [f"env.num_envs={num_envs}", "storage.size=256", "num_mini_batch=8", "algorithm.test_every=0"]
    scheme = build_scheme(resolve("ppo", env, overrides=[parse_override(text) for text in settings]), None, "cpu")
    genuine = vec_env.require_finite, Algorithm._refuse_non_finite
    absent = (lambda *_: None), (lambda *_: None)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for number in range(ROUNDS + 1):
        for guarded in (True, False) if number % 2 else (False, True):
            vec_env.require_finite, Algorithm._refuse_non_finite = genuine if guarded else absent  # type: ignore[assignment]
            started = time.perf_counter()
            for _ in range(steps // (256 * num_envs)):
                scheme.step()
            if number:
                seconds[guarded].append(time.perf_counter() - started)
    vec_env.require_finite, Algorithm._refuse_non_finite = genuine  # type: ignore[method-assign]
    scheme.close()
    return median(seconds[True]) / median(seconds[False]) - 1


def checkpoints(env: str) -> tuple[float, float]:
    """(seconds per checkpoint, share of the time of a run with the default of ten checkpoints)."""
    trainer = Trainer(resolve("ppo", env))
    trainer.folder = RunFolder(Path(tempfile.mkdtemp()))
    trainer.progress = Progress(trainer.learner, open_log(trainer.folder, ("csv",)), 10**9)
    trainer.learner.step()
    started = time.perf_counter()
    rounds = 5
    for _ in range(rounds):
        trainer.learner.step()
    per_step = (time.perf_counter() - started) / (trainer.learner.steps * rounds / (rounds + 1))
    costs = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        trainer.save()
        costs.append(time.perf_counter() - started)
    trainer.learner.stop()
    return median(costs), 10 * median(costs) / (per_step * trainer.config.run.steps)


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def main() -> None:
    torch.set_num_threads(1)
    for env, num_envs in TASKS.items():
        share = guards(env, num_envs, 4096)
        seconds, ten = checkpoints(env)
        print(
            f"PPO {env}: finite guards {share:+.1%} of the time;"
            f" a checkpoint takes {1000 * seconds:.1f} ms, ten {ten:.2%}"
        )


if __name__ == "__main__":
    main()
