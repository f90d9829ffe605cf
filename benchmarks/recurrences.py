"""GAE and V-trace of 2048 steps x 64 environments, beside Stable-Baselines3's loop and a plain one over time steps."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.contest import contest
from pytorchrl.functional.returns import gae, vtrace

T, N, GAMMA, LAMBDA = 2048, 64, 0.99, 0.95


def stable_baselines3(rewards: Any, values: Any, dones: Any) -> Callable[[], object]:
    from stable_baselines3.common.buffers import RolloutBuffer

    buffer = SimpleNamespace(
        rewards=rewards, values=values, episode_starts=dones, buffer_size=T, gamma=GAMMA, gae_lambda=LAMBDA
    )
    buffer.advantages = np.zeros_like(rewards)
    last = torch.zeros(N, 1)
    return lambda: RolloutBuffer.compute_returns_and_advantage(buffer, last, dones[-1])  # type: ignore[arg-type]


def loop_over_steps(rewards: Any, values: Any, dones: Any, ratios: Any) -> Callable[[], object]:
    """V-trace as it is usually written: one backward loop over numpy rows."""

    def run() -> Any:
        rho = np.minimum(ratios, 1.0)
        following = np.concatenate([values[1:], np.zeros((1, N), np.float32)]) * (1 - dones)
        deltas = rho * (rewards + GAMMA * following - values)
        traces, trace = np.empty_like(values), np.zeros(N, np.float32)
        for t in reversed(range(T)):
            trace = deltas[t] + GAMMA * rho[t] * (1 - dones[t]) * trace
            traces[t] = trace
        targets = traces + values
        after = np.concatenate([targets[1:], np.zeros((1, N), np.float32)]) * (1 - dones)
        return targets, rho * (rewards + GAMMA * after - values)

    return run


def main() -> None:
    torch.set_num_threads(1)
    numbers = np.random.default_rng(0)
    rewards, values = (numbers.normal(size=(T, N)).astype(np.float32) for _ in range(2))
    dones = (numbers.random((T, N)) < 0.01).astype(np.float32)
    log_ratios = numbers.normal(size=(T, N)).astype(np.float32) * 0.1
    r, v, d, ratio = (torch.from_numpy(array)[..., None] for array in (rewards, values, dones, log_ratios))
    following = torch.cat([v[1:], torch.zeros(1, N, 1)])
    rounds = 10

    def times(work: Callable[[], object]) -> Callable[[], None]:
        return lambda: [work() for _ in range(rounds)] and None

    contest(
        f"GAE {T} x {N}",
        {
            "pytorchrl": times(lambda: gae(r, v, following, d, d, GAMMA, LAMBDA)),
            "stable-baselines3": times(stable_baselines3(rewards, values, dones)),
        },
        rounds,
        "rollouts",
    )
    contest(
        f"V-trace {T} x {N}",
        {
            "pytorchrl": times(lambda: vtrace(r, v, following, d, d, ratio, GAMMA)),
            "numpy, a loop over steps": times(loop_over_steps(rewards, values, dones, np.exp(log_ratios))),
        },
        rounds,
        "rollouts",
    )


if __name__ == "__main__":
    main()
