"""Replay beside Stable-Baselines3's: inserts of 8 and batches of 256 from full buffers; one thread.

States: 1e6 transitions of 17 + 6 floats. Atari: stacks of four 84x84 frames, 1e5 transitions. PER: a draw and an update
of 256 out of 1e6; Stable-Baselines3 has none. The contenders take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.storages.off_policy.per_buffer import PERBuffer
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.keys import ACT, DONE, DONE2, OBS, OBS2, REW, RHS, RHS2, TERMINAL

N, BATCH, ROUNDS = 8, 256, 5
STATES, ATARI = 1_000_000, 100_000
STATE_SPACES = Box(-1, 1, (17,), np.float32), Box(-1, 1, (6,), np.float32)
ATARI_SPACES = Box(0, 255, (4, 84, 84), np.uint8), Discrete(6)

# (insert one step of N environments, draw one batch, bytes allocated)
Contender = tuple[Callable[[], Any], Callable[[], Any], int]


def observations(space: Box) -> list[Tensor]:
    """Some 128 steps to insert again and again; images are stacks that move on by one frame a step."""
    if space.dtype != np.uint8:
        return list(torch.randn(128, N, *space.shape))
    frames = torch.randint(0, 255, (131, N, *space.shape[1:]), dtype=torch.uint8)
    return [frames[t : t + 4].transpose(0, 1).contiguous() for t in range(128)]


def ours(spaces: Any, capacity: int, cls: Any = ReplayBuffer, **kwargs: Any) -> Contender:
    obs_space, act_space = spaces
    stack = {"frame_stack": 4} if obs_space.dtype == np.uint8 else {}
    envs: Any = SimpleNamespace(num_envs=N, env_kwargs=stack, observation_space=obs_space, action_space=act_space)
    actor: Any = SimpleNamespace(is_recurrent=False)
    storage = cls(capacity // N, "cpu", actor, SimpleNamespace(gamma=0.99), envs, **kwargs)
    steps, column, rhs = observations(obs_space), torch.zeros(N, 1), {"policy": torch.zeros(N, 1)}
    action = torch.zeros(N, 1, dtype=torch.int64) if isinstance(act_space, Discrete) else torch.randn(N, 6)
    count = 0

    def insert() -> None:
        nonlocal count
        t = count % 127
        begins = column + 1 if t == 0 else column
        ends = column + 1 if t == 126 else column
        storage.insert_transition(
            {
                OBS: steps[t],
                RHS: rhs,
                DONE: begins,
                ACT: action,
                REW: column,
                OBS2: steps[t + 1],
                RHS2: rhs,
                DONE2: ends,
                TERMINAL: column,
            }
        )
        count += 1

    def draw() -> None:
        for batch in storage.generate_batches(50, BATCH):
            if cls is PERBuffer:
                storage.after_gradients(batch, {"errors": torch.rand(BATCH, 1)})

    for _ in range(capacity // N):
        insert()
    allocated = sum(leaf.nbytes for value in storage.data.values() for leaf in tree.leaves(value))
    return insert, draw, allocated


def stable_baselines3(spaces: Any, capacity: int, **kwargs: Any) -> Contender:
    from stable_baselines3.common.buffers import ReplayBuffer as Theirs

    obs_space, act_space = spaces
    buffer = Theirs(capacity, obs_space, act_space, "cpu", N, **kwargs)
    steps = [step.numpy() for step in observations(obs_space)]
    action = np.zeros((N, 1), np.int64) if isinstance(act_space, Discrete) else np.zeros((N, 6), np.float32)
    reward, done, infos = np.zeros(N, np.float32), np.zeros(N, bool), [{} for _ in range(N)]
    count = 0

    def insert() -> None:
        nonlocal count
        t = count % 127
        buffer.add(steps[t], steps[t + 1], action, reward, done, infos)
        count += 1

    def draw() -> None:
        for _ in range(50):
            buffer.sample(BATCH)

    for _ in range(capacity // N):
        insert()
    return insert, draw, buffer.observations.nbytes + buffer.next_observations.nbytes


def rates(contender: Contender, inserts: int, draws: int) -> tuple[float, float]:
    """Transitions inserted, and batches drawn, per second."""
    insert, draw, _ = contender
    started = time.perf_counter()
    for _ in range(inserts):
        insert()
    between = time.perf_counter()
    for _ in range(draws):
        draw()
    return inserts * N / (between - started), draws * 50 / (time.perf_counter() - between)


def compare(title: str, contenders: dict[str, Contender], inserts: int, draws: int) -> dict[str, tuple[float, float]]:
    """Medians over the rounds, after a round that warms up."""
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for number in range(ROUNDS + 1):
        for name, contender in contenders.items():
            rate = rates(contender, inserts, draws)
            if number:
                measured[name].append(rate)
    print(title)
    medians = {}
    for name, values in measured.items():
        inserted, drawn = (sorted(column)[ROUNDS // 2] for column in zip(*values, strict=True))
        medians[name] = inserted, drawn
        size = contenders[name][2] / 2**30
        print(f"  {name:<34} {inserted:>11,.0f} inserts/s {drawn:>9,.0f} batches/s {size:>7.2f} GiB")
    return medians


def main() -> dict[str, dict[str, tuple[float, float]]]:
    torch.set_num_threads(1)
    results = {}
    prioritized = {"alpha": 0.6, "beta": 0.4, "epsilon": 0.01}
    results["states"] = compare(
        f"Replay of {STATES:,} states of 17 + 6 floats",
        {
            "ReplayBuffer": ours(STATE_SPACES, STATES),
            "stable-baselines3": stable_baselines3(STATE_SPACES, STATES),
        },
        5000,
        40,
    )
    results["per"] = compare(
        f"Prioritized replay of {STATES:,} states: a batch is a draw and an update",
        {
            "PERBuffer": ours(STATE_SPACES, STATES, PERBuffer, **prioritized),
            "PERBuffer, n_step=3, eta=0.996": ours(STATE_SPACES, STATES, PERBuffer, n_step=3, eta=0.996, **prioritized),
        },
        5000,
        10,
    )
    results["atari"] = compare(
        f"Replay of {ATARI:,} stacks of four 84x84 frames",
        {
            "ReplayBuffer": ours(ATARI_SPACES, ATARI),
            "stable-baselines3": stable_baselines3(ATARI_SPACES, ATARI),
        },
        1000,
        2,
    )
    return results


if __name__ == "__main__":
    main()
