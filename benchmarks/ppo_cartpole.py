"""PPO on CartPole-v1: 8 environments x 128 steps, 4 epochs of 4 mini-batches, two 64x64 tanh networks; one thread.

Both libraries do the same work. They take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

STEPS = 40_960
ROUNDS = 5


def ours() -> Callable[[], None]:
    from pytorchrl.build import build_scheme
    from pytorchrl.config import parse_override, resolve

    settings = [
        "algorithm.lr=2.5e-4",
        "algorithm.num_epochs=4",
        "algorithm.num_mini_batch=4",
        "algorithm.test_every=0",
        "algorithm.use_clipped_value_loss=false",
        "storage.size=128",
        "actor.shared_policy_value_network=false",
        "env.num_envs=8",
        f"run.steps={STEPS}",
    ]
    config = resolve("ppo", "CartPole-v1", preset="none", overrides=[parse_override(text) for text in settings])
    scheme = build_scheme(config, None, "cpu")

    def run() -> None:
        for _ in range(STEPS // (8 * 128)):
            scheme.step()

    return run


def stable_baselines3() -> Callable[[], None]:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8),
        learning_rate=2.5e-4,
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        ent_coef=0.01,
        device="cpu",
    )
    return lambda: model.learn(STEPS, reset_num_timesteps=False) and None


def main() -> dict[str, float]:
    """Steps per second of each, medians over the rounds."""
    torch.set_num_threads(1)
    contenders = {"pytorchrl": ours(), "stable-baselines3": stable_baselines3()}
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(ROUNDS + 1):
        for name, run in contenders.items():
            started = time.perf_counter()
            run()
            if number:  # the first round warms up
                rates[name].append(STEPS / (time.perf_counter() - started))
    medians = {name: sorted(values)[len(values) // 2] for name, values in rates.items()}
    print("PPO CartPole-v1, steps per second (median, worst, best of the rounds)")
    for name, values in rates.items():
        print(f"  {name:<20} {medians[name]:>9,.0f} {min(values):>9,.0f} {max(values):>9,.0f}")
    print(f"  ratio {medians['pytorchrl'] / medians['stable-baselines3']:.2f}")
    return medians


if __name__ == "__main__":
    main()
