"""Training end to end beside Stable-Baselines3: the same environments, networks, batches and numbers of updates.

One thread each, the libraries' own backends. Names: ``python -m benchmarks training ppo_cartpole sac_halfcheetah``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.contest import contest


@dataclass(frozen=True)
class Task:
    """One algorithm on one environment: ``steps`` environment steps a round, done by both libraries."""

    algorithm: str
    env: str
    num_envs: int
    steps: int
    ours: tuple[str, ...]
    peer: str
    theirs: dict[str, Any] = field(default_factory=dict)
    policy: str = "MlpPolicy"


# 4 epochs of 4 mini-batches over 8 environments x 128 steps, separate 64x64 tanh networks.
ON_POLICY = ("algorithm.test_every=0", "actor.shared_policy_value_network=false")
PPO = (*ON_POLICY, "lr=2.5e-4", "num_epochs=4", "num_mini_batch=4", "use_clipped_value_loss=false", "storage.size=128")
SB3_PPO = {"learning_rate": 2.5e-4, "n_steps": 128, "batch_size": 256, "n_epochs": 4, "ent_coef": 0.01}
# One update per step, batch 256, 256x256 networks.
OFF_POLICY = (
    "algorithm.test_every=0",
    "num_updates=1",
    "update_every=1",
    "mini_batch_size=256",
    "start_steps=100",
    "max_grad_norm=1000",
    "storage.size=100000",
)
SB3_OFF = {
    "batch_size": 256,
    "train_freq": 1,
    "gradient_steps": 1,
    "learning_starts": 100,
    "buffer_size": 100_000,
    "policy_kwargs": {"net_arch": [256, 256]},
}
ONE_CRITIC = ("actor.num_critics=1",)
CRITICS = ("lr_q=3e-4", "lr_pi=3e-4")

TASKS = {
    "ppo_cartpole": Task("ppo", "CartPole-v1", 8, 40_960, PPO, "PPO", SB3_PPO),
    "ppo_halfcheetah": Task("ppo", "HalfCheetah-v5", 8, 16_384, PPO, "PPO", SB3_PPO),
    "ppo_pong": Task(
        "ppo", "ALE/Pong-v5", 8, 1024, (*PPO, "actor.shared_policy_value_network=true"), "PPO", SB3_PPO, "CnnPolicy"
    ),
    "a2c_cartpole": Task("a2c", "CartPole-v1", 8, 20_480, (*ON_POLICY, "storage.size=5"), "A2C", {"n_steps": 5}),
    "ddqn_cartpole": Task(
        "ddqn",
        "CartPole-v1",
        1,
        1500,
        (*OFF_POLICY, *ONE_CRITIC, "lr=1e-4"),
        "DQN",
        {**SB3_OFF, "target_update_interval": 100},
    ),
    "ddpg_halfcheetah": Task("ddpg", "HalfCheetah-v5", 1, 500, (*OFF_POLICY, *ONE_CRITIC, *CRITICS), "DDPG", SB3_OFF),
    "td3_halfcheetah": Task(
        "td3", "HalfCheetah-v5", 1, 500, (*OFF_POLICY, *CRITICS, "target_update_interval=2"), "TD3", SB3_OFF
    ),
    "sac_halfcheetah": Task("sac", "HalfCheetah-v5", 1, 300, (*OFF_POLICY, *CRITICS, "lr_alpha=3e-4"), "SAC", SB3_OFF),
}


def ours(task: Task) -> Callable[[], None]:
    from pytorchrl.build import build_scheme
    from pytorchrl.config import parse_override, resolve
    from pytorchrl.precision import precision_of

    settings = [*task.ours, f"env.num_envs={task.num_envs}", "run.steps=1000000"]
    overrides = [parse_override(text) for text in settings]
    config = resolve(task.algorithm, task.env, preset="none", overrides=overrides)
    config.run.precision = precision_of(config.run.precision, "cpu")[0]
    scheme = build_scheme(config, None, "cpu")

    def run() -> None:
        done = 0
        while done < task.steps:
            done += scheme.step().env_steps

    return run


def stable_baselines3(task: Task) -> Callable[[], None]:
    import stable_baselines3
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if task.env.startswith("ALE/"):
        import ale_py  # noqa: F401  registers the games

        envs: Any = VecFrameStack(make_atari_env(task.env, n_envs=task.num_envs), 4)
    else:
        envs = make_vec_env(task.env, n_envs=task.num_envs)
    # A copy: the peer's SAC writes into the policy_kwargs that it is given.
    settings = copy.deepcopy(task.theirs)
    model = getattr(stable_baselines3, task.peer)(task.policy, envs, device="cpu", **settings)
    return lambda: model.learn(task.steps, reset_num_timesteps=False) and None


def main(names: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Environment steps per second of each, learning included."""
    torch.set_num_threads(1)
    results = {}
    for name in names or TASKS:
        task = TASKS[name]
        contenders = {"pytorchrl": ours(task), "stable-baselines3": stable_baselines3(task)}
        results[name] = contest(f"{name} on {task.num_envs} environments", contenders, task.steps, "steps")
    return results


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
