"""A run that is stopped and resumed ends like one that was never stopped, bit for bit."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl import state_tree, trainer
from pytorchrl.agent.storages.ring import Ring
from pytorchrl.checkpoint import checkpoints_in, newest_checkpoint
from pytorchrl.shards import Shard, ShardFolder
from pytorchrl.trainer import STATE, STATE_TENSORS, Trainer

SMALL = {
    "env.num_envs": 2,
    "storage.size": 32,
    "algorithm.num_epochs": 2,
    "algorithm.num_mini_batch": 2,
    "run.checkpoint_every": 128,
    "run.log_every": 64,
    "run.eval_every": 192,
    "algorithm.num_test_episodes": 2,
}
STEPS = 640


class Killed(BaseException):
    """Stands for kill -9: nothing of ours catches it, nothing is cleaned up."""


def final_state(run: Path) -> tuple[bytes, Any]:
    """The policy's bytes and the learner's state at the end, less what is measured in seconds."""
    _, files, skipped = newest_checkpoint(run / "checkpoints")
    assert not skipped
    state = state_tree.decode(files[STATE], files[STATE_TENSORS], lambda name: name)  # type: ignore[arg-type,return-value]
    progress = {key: value for key, value in state["progress"].items() if key not in ("elapsed", "log")}
    return files["policy.safetensors"], {"learner": state["learner"], "progress": progress}


def rows(path: Path) -> list[dict[str, str]]:
    timed = ("time/time_elapsed", "time/fps", "seconds")
    with path.open(newline="") as file:
        return [{key: value for key, value in row.items() if key not in timed} for row in csv.DictReader(file)]


def assert_same(one: Any, other: Any, path: str = "") -> None:
    """Equal trees, tensors bit for bit."""
    assert type(one) is type(other), path
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_same(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{path}/{i}")
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, path
        assert one.numpy().tobytes() == other.numpy().tobytes(), path
    elif isinstance(one, np.ndarray):
        assert one.tobytes() == other.tobytes(), path
    else:
        assert one == other, path


def assert_runs_equal(one: Path, other: Path) -> None:
    weights, state = final_state(one)
    other_weights, other_state = final_state(other)
    assert weights == other_weights
    assert_same(state, other_state)
    for name in ("progress.csv", "episodes.csv"):
        assert rows(one / name) == rows(other / name)


class Corridor(gym.Env[Any, Any]):
    """A user's environment with random rewards, which cannot be saved."""

    observation_space = gym.spaces.Box(0.0, 20.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 10
        return self.observation(), {}

    def step(self, action: int) -> Any:
        self.place += 1 if action == 1 else -1
        reward = float(self.np_random.normal())
        return self.observation(), reward, self.place in (0, 20), bool(self.np_random.random() < 0.02), {}

    def observation(self) -> Any:
        return np.array([self.place], np.float32)


class SavedCorridor(Corridor):
    """The same with the two methods that make it exactly resumable."""

    def get_state(self) -> Any:
        return {"place": self.place, "random": self.np_random.bit_generator.state}

    def set_state(self, state: Any) -> None:
        self.place = state["place"]
        self.np_random.bit_generator.state = state["random"]


SAC_SMALL = {
    "env.num_envs": 2,
    "storage.size": 100,
    "algorithm.start_steps": 20,
    "algorithm.update_every": 8,
    "algorithm.num_updates": 2,
    "algorithm.mini_batch_size": 16,
    "run.checkpoint_every": 128,
    "run.log_every": 64,
    "run.eval_every": 0,
    "actor.common_feature_extractor_kwargs": {"hidden_sizes": [16]},
}
# Constraints so tight that the multipliers act.
MPO_SMALL = SAC_SMALL | {f"algorithm.{name}_constraint": 1e-9 for name in ("kl", "kl_mean", "kl_var")}
GRU = {"actor.recurrent_net": "GRU", "actor.recurrent_net_kwargs": {"output_size": 8}}
# Its own episodes are the demos.
PPOD = {"storage.rho": 0.3, "storage.phi": 0.3, "storage.total_buffer_demo_capacity": 5}
ANNEALED = {
    "lr": 0.0,
    "clip_param": 0.05,
    "entropy_coef": 0.1,
    "gamma": 0.9,
    "value_loss_coef": 1.0,
    "max_grad_norm": 5.0,
}
MPC_SMALL = {
    "env.num_envs": 2,
    "storage.size": 100,
    "algorithm.start_steps": 20,
    "algorithm.update_every": 16,
    "algorithm.mb_epochs": 1,
    "actor.horizon": 5,
    "actor.n_planner": 20,
    "actor.particles": 3,
    "run.checkpoint_every": 32,
    "run.log_every": 32,
    "run.eval_every": 64,
    "algorithm.num_test_episodes": 1,
    "env.kwargs": {"max_episode_steps": 15},
}
CURIOUS = {
    "algorithm.pre_normalization_steps": 2,
    "algorithm.pre_normalization_length": 8,
    "algorithm.predictor_proportion": 0.5,
}
PONG = {"storage.size": 8, "run.checkpoint_every": 32, "run.log_every": 16, "run.eval_every": 0}
CASES: dict[str, tuple[str, Any, dict[str, Any], int]] = {
    "CartPole": ("ppo", "CartPole-v1", SMALL, STEPS),
    "Pendulum": ("ppo", "Pendulum-v1", SMALL, STEPS),
    "HalfCheetah": ("ppo", "HalfCheetah-v5", SMALL, STEPS),
    "Pong": ("ppo", "ALE/Pong-v5", SMALL | PONG, 128),
    "saved by its user": ("ppo", SavedCorridor, SMALL, STEPS),
    "not saved": ("ppo", Corridor, SMALL, STEPS),
    "processes": ("ppo", "CartPole-v1", SMALL | {"env.backend": "async"}, STEPS),
    "normalized": (
        "ppo",
        "Pendulum-v1",
        SMALL | {"actor.normalize_observations": True, "env.normalize_rewards": True},
        STEPS,
    ),
    "GRU": ("ppo", "CartPole-v1", SMALL | GRU, STEPS),
    "A2C": (
        "a2c",
        "CartPole-v1",
        {key: value for key, value in SMALL.items() if "epochs" not in key and "mini" not in key},
        STEPS,
    ),
    "PPO+D": ("ppod", "CartPole-v1", SMALL | PPOD, STEPS),
    "PPO+D, recurrent": ("ppod", SavedCorridor, SMALL | PPOD | GRU, STEPS),
    "PPO+D, not saved": ("ppod", Corridor, SMALL | PPOD, STEPS),
    "annealed": (
        "ppo",
        "Pendulum-v1",
        SMALL
        | {f"anneal.{name}": value for name, value in ANNEALED.items()}
        | {"algorithm.target_kl": 0.01, "algorithm.lr": 1e-2, "algorithm.use_clipped_value_loss": True},
        STEPS,
    ),
    "RND-PPO": ("rnd_ppo", "CartPole-v1", SMALL | CURIOUS, STEPS),
    "RND-PPO, not saved, GRU": ("rnd_ppo", Corridor, SMALL | CURIOUS | GRU, STEPS),
    "SAC": ("sac", "Pendulum-v1", SAC_SMALL, STEPS),
    "SAC with PER": ("sac", "Pendulum-v1", SAC_SMALL | {"storage.name": "PERBuffer", "storage.alpha": 0.6}, STEPS),
    "DDPG with OU noise": ("ddpg", "Pendulum-v1", SAC_SMALL | {"actor.noise": "OU"}, STEPS),
    "TD3": ("td3", "Pendulum-v1", SAC_SMALL | {"algorithm.target_update_interval": 2}, STEPS),
    "MPO": ("mpo", "Pendulum-v1", MPO_SMALL | {"algorithm.sample_action_num": 4}, STEPS),
    "discrete MPO": ("mpo", "CartPole-v1", MPO_SMALL, STEPS),
    "DDQN": ("ddqn", "CartPole-v1", SAC_SMALL | {"storage.name": "NStepBuffer", "storage.n_step": 3}, STEPS),
    "MPC_RS": ("mpc_rs", "CartPole-v1", MPC_SMALL | {"algorithm.action_noise": True}, 160),
    "MPC_CEM": ("mpc_cem", "Pendulum-v1", MPC_SMALL | {"actor.propagation": "TS1"}, 160),
    "MPC_PDDM": ("mpc_pddm", "Pendulum-v1", MPC_SMALL | {"algorithm.action_noise": True}, 160),
    "MPC, not saved": ("mpc_pddm", Corridor, MPC_SMALL | {"env.kwargs": {}}, 160),
}


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_equals_an_uninterrupted_one(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, env, settings, steps = CASES[case]
    prl.train(algorithm, env, steps=steps, overrides=settings, run=tmp_path / "whole")
    save, saves = Trainer.save, []

    def save_twice_and_die(self: Trainer) -> None:
        if len(saves) == 2:
            raise Killed  # a checkpoint is due and is lost; rows were logged since the last one
        saves.append(self.learner.steps)
        save(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", save_twice_and_die)
        with pytest.raises(Killed):
            prl.train(algorithm, env, steps=steps, overrides=settings, run=tmp_path / "stopped")
    assert 0 < saves[-1] < steps
    prl.resume(tmp_path / "stopped", env=env if callable(env) else None)
    assert_runs_equal(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.parametrize("case", ["SAC", "SAC with PER"])
def test_a_replay_in_shards_is_written_once_and_resumes_bitwise(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards of 4 steps: saving writes what is new, keeps what is needed, and a resumed run goes on from them."""
    monkeypatch.setattr(Ring, "shard_rows", 4)
    put: list[tuple[Path, str]] = []
    written: list[tuple[Path, str]] = []
    write = ShardFolder.put

    def counted(self: ShardFolder, shard: Shard) -> str:
        before = self.written
        name = write(self, shard)
        put.append((self.path, name))
        written.extend(put[-1:] if self.written > before else [])
        return name

    monkeypatch.setattr(ShardFolder, "put", counted)
    test_a_resumed_run_equals_an_uninterrupted_one(case, tmp_path, monkeypatch)
    assert 0 < len(written) == len(set(written)) == len(set(put)) < len(put)
    for run in ("whole", "stopped"):
        folder = tmp_path / run / "checkpoints"
        manifests = [json.loads((path / "manifest.json").read_text()) for path in checkpoints_in(folder)]
        named = {name for manifest in manifests for name in manifest["shards"]}
        assert {path.name for path in (folder / "shards").iterdir()} == named
        assert all(len(manifest["shards"]) >= 20 for manifest in manifests)  # of a full replay of 100 steps


def test_what_a_large_checkpoint_takes_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Ring, "shard_rows", 4)
    for limit, expected in ((2**40, 0), (0, 2)):
        monkeypatch.setattr(trainer, "WORTH_SAYING", limit)
        prl.train("sac", "Pendulum-v1", steps=256, overrides=SAC_SMALL, run=tmp_path / str(limit), quiet=False)
        said = re.findall(
            r"Checkpoint at ([\d,]+) steps: ([\d.]+) KiB, of which ([\d.]+) KiB were written, in \d+\.\d s\.",
            capsys.readouterr().out,
        )
        assert len(said) == expected
    assert [steps for steps, *_ in said] == ["128", "256"]
    (_, first, first_written), (_, second, second_written) = said
    assert float(first) == float(first_written)
    assert float(second_written) < float(second)


def test_a_run_that_was_killed_resumes_bit_for_bit(tmp_path: Path) -> None:
    steps = 8_192
    settings = {
        "steps": steps,
        "overrides": SMALL | {"run.checkpoint_every": 1024, "run.eval_every": 0, "run.log_every": 512},
    }
    prl.train("ppo", "CartPole-v1", run=tmp_path / "whole", **settings)
    program = (
        f"import pytorchrl as prl; prl.train('ppo', 'CartPole-v1', run={str(tmp_path / 'killed')!r}, **{settings!r})"
    )
    child = subprocess.Popen([sys.executable, "-c", program])
    deadline = time.monotonic() + 60
    while len(checkpoints_in(tmp_path / "killed" / "checkpoints")) < 2:
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    prl.resume(tmp_path / "killed")
    assert_runs_equal(tmp_path / "whole", tmp_path / "killed")


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    prl.train("ppo", "CartPole-v1", steps=STEPS, overrides=SMALL, run=tmp_path / "run")
    newest, older, *_ = checkpoints_in(tmp_path / "run" / "checkpoints")
    (newest / STATE_TENSORS).write_bytes((newest / STATE_TENSORS).read_bytes()[:-1])
    path, _, skipped = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert path == older
    assert len(skipped) == 1
    assert STATE_TENSORS in skipped[0]


def test_resuming_a_finished_run_needs_more_steps(tmp_path: Path) -> None:
    run = prl.train("ppo", "CartPole-v1", steps=128, overrides=SMALL, run=tmp_path / "run")
    with pytest.raises(prl.ConfigError, match="is done"):
        prl.resume(run.path)
    assert prl.resume(run.path, steps=256).scores is not None
    assert rows(run.path / "progress.csv")[-1]["time/total_timesteps"] == "256"


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    run = prl.train("ppo", "CartPole-v1", steps=128, overrides=SMALL, run=tmp_path / "run")
    from pytorchrl.run_folder import RunFolder

    with RunFolder(run.path).lock(), pytest.raises(prl.ConfigError, match="another process"):
        prl.resume(run.path, steps=256)
