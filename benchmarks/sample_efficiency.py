"""python -m benchmarks.sample_efficiency [SEED…]: returns in the first steps of planning and of model-free agents.

A row per algorithm, with the zoo's preset: the mean return of the training episodes that ended in each thousand of the
first 3,000 environment steps, over the seeds (1 to 3 unless named). CartPole's episodes end after 200 steps.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

import torch

import pytorchrl

STEPS, WINDOW = 3000, 1000
CONTENDERS = {
    "Pendulum-v1": ("mpc_cem", "mpc_pddm", "mpc_rs", "sac"),
    "CartPole-v1": ("mpc_cem", "mpc_pddm", "mpc_rs", "sac", "ddqn"),
}


def windows(episodes: Path) -> list[float]:
    """Mean return of the episodes that ended in each window of steps."""
    with episodes.open(newline="") as file:
        ended = [(int(row["steps"]), float(row["return"])) for row in csv.DictReader(file)]
    parts = [[score for steps, score in ended if start < steps <= start + WINDOW] for start in range(0, STEPS, WINDOW)]
    return [sum(part) / len(part) if part else float("nan") for part in parts]


def learn(algorithm: str, env: str, seed: int, folder: Path) -> list[float]:
    overrides = {"env.kwargs": {"max_episode_steps": 200}, "run.logger": ["csv"]}
    run = pytorchrl.train(
        algorithm, env, steps=STEPS, seed=seed, overrides=overrides, run=folder / f"{algorithm}{seed}"
    )
    return windows(run.path / "episodes.csv")


def main(seeds: list[int]) -> None:
    torch.set_num_threads(1)
    for env, algorithms in CONTENDERS.items():
        heads = [f"steps {start + 1:,} to {start + WINDOW:,}" for start in range(0, STEPS, WINDOW)]
        print(f"\n| {env} | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
        for algorithm in algorithms:
            with tempfile.TemporaryDirectory() as folder:
                found = [learn(algorithm, env, seed, Path(folder)) for seed in seeds]
            means = [sum(column) / len(column) for column in zip(*found, strict=True)]
            print(f"| {algorithm} | {' | '.join(f'{mean:,.0f}' for mean in means)} |", flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1, 2, 3])
