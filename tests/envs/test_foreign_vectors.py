"""EnvPool, ALE's vector and Gymnasium's vectorized CartPole against hand loops over themselves."""

from __future__ import annotations

from typing import Any

import ale_py
import envpool
import gymnasium as gym
import numpy as np
import pytest
import torch
from ale_py.vector_env import AtariVectorEnv
from tests.agent.env.rollouts import roll, roll_over_ghosts, same

from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.envs.gymnasium import env_maker
from pytorchrl.keys import OBS2, TERMINAL

gym.register_envs(ale_py)
N = 3
SEEDS = [5, 6, 7]


def table(space: gym.Space[Any], steps: int) -> np.ndarray:
    space.seed(1)
    return np.array([[space.sample() for _ in range(steps)] for _ in range(N)])


@pytest.mark.parametrize(("env_id", "steps"), [("CartPole-v1", 300), ("Pendulum-v1", 450), ("LunarLander-v3", 200)])
def test_envpool_against_itself(env_id: str, steps: int) -> None:
    envs = VecEnv(env_maker(env_id), N, backend="envpool")
    actions = table(envs.action_space, steps)
    stored, episodes = roll(envs, actions, SEEDS)
    pool = envpool.make(env_id, env_type="gymnasium", num_envs=N, seed=SEEDS)
    by_hand = roll_over_ghosts(pool, actions, lambda: pool.reset()[0], lambda rows: np.array(rows, np.float32))
    for ours, theirs in zip(stored, by_hand, strict=True):
        same(ours[:-1], theirs[:-1])
        assert any(transition["done"] for transition in ours)
    assert all(episode.length == 200 for episode in episodes if env_id == "Pendulum-v1")


def test_envpool_pong_against_itself() -> None:
    envs = VecEnv(env_maker("ALE/Pong-v5"), N, env_kwargs={"max_episode_steps": 40}, backend="envpool")
    actions = table(envs.action_space, 100)
    stored, episodes = roll(envs, actions, SEEDS)
    pool = envpool.make(
        "Pong-v5",
        env_type="gymnasium",
        num_envs=N,
        seed=SEEDS,
        max_episode_steps=40,
        use_fire_reset=False,
        repeat_action_probability=0.25,
    )
    by_hand = roll_over_ghosts(pool, actions, lambda: pool.reset()[0], np.array)
    for ours, theirs in zip(stored, by_hand, strict=True):
        same(ours[:-1], theirs[:-1])
    assert [episode.length for episode in episodes] == [40] * 2 * N


def test_envpool_has_a_seed_per_environment_and_repeats() -> None:
    envs = VecEnv(env_maker("CartPole-v1"), N, backend="envpool")
    first = envs.reset(SEEDS)
    assert len(set(first[:, 0].tolist())) == N
    envs.step(torch.zeros(N, 1, dtype=torch.int64))
    assert torch.equal(envs.reset(SEEDS), first)
    assert not torch.equal(envs.reset(), first)


@pytest.mark.parametrize("life_loss", [False, True])
def test_ale_s_vector_against_itself(life_loss: bool) -> None:
    settings = {"noop_max": 5, "max_num_frames_per_episode": 200}
    maker = env_maker("ALE/Breakout-v5")
    envs = VecEnv(maker, N, env_kwargs=settings | {"life_loss": life_loss}, backend="vector")
    actions = table(envs.action_space, 120)
    stored, episodes = roll(envs, actions, SEEDS)
    vector = AtariVectorEnv(
        "breakout", N, repeat_action_probability=0.25, reward_clipping=False, use_fire_reset=False, **settings
    )
    by_hand = roll_over_ghosts(vector, actions, lambda: vector.reset(seed=np.array(SEEDS))[0], np.array)
    for i, (ours, theirs) in enumerate(zip(stored, by_hand, strict=True)):
        for transition in theirs:
            transition["reward"] = float(np.sign(transition["reward"]))
        same(ours[:-1], theirs[:-1], skip=("done", "terminal") if life_loss else ())
        lengths = [episode.length for episode in episodes if episode.env == i]
        ends = np.flatnonzero([transition["done"] for transition in theirs])
        assert lengths == np.diff([-1, *ends]).tolist()
        lost = sum(transition["terminal"] for transition in ours) - sum(t["terminal"] for t in theirs)
        assert lost > 0 if life_loss else lost == 0
    vector.close()
    envs.close()


def test_vectorized_cartpole_against_itself() -> None:
    """With one environment, whose random numbers nobody else uses."""
    actions = np.random.default_rng(0).integers(0, 2, (1, 400))
    envs = VecEnv(env_maker("CartPole-v1"), 1, backend="vector")
    stored, _ = roll(envs, actions, [5])
    vector = gym.make_vec("CartPole-v1", 1, vectorization_mode="vector_entry_point")
    by_hand = roll_over_ghosts(vector, actions, lambda: vector.reset(seed=5)[0], np.array)
    same(stored[0][:-1], by_hand[0][:-1])


def test_vectorized_cartpole_moves_like_cartpole() -> None:
    envs = VecEnv(env_maker("CartPole-v1"), 8, backend="vector")
    obs = envs.reset(list(range(8)))
    single: Any = gym.make("CartPole-v1").unwrapped
    single.reset()
    lengths = torch.zeros(8, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        action = torch.randint(0, 2, (8, 1), generator=generator)
        following, reward, done, info = envs.step(action)
        assert (reward == 1).all()  # a ghost would have none
        lengths += 1
        for i in range(8):
            single.state, single.steps_beyond_terminated = obs[i].double().numpy(), None
            expected, _, terminated, _, _ = single.step(int(action[i]))
            np.testing.assert_allclose(info[OBS2][i].numpy(), expected, atol=1e-5)
            assert bool(info[TERMINAL][i]) == terminated
            if done[i]:
                assert following[i].abs().max() <= 0.05
        assert [episode.length for episode in info["episodes"]] == lengths[done[:, 0] > 0].tolist()
        lengths[done[:, 0] > 0] = 0
        obs = following


def test_vectorized_cartpole_meets_its_time_limit() -> None:
    envs = VecEnv(env_maker("CartPole-v1"), 4, env_kwargs={"max_episode_steps": 3}, backend="vector")
    envs.reset([1, 2, 3, 4])
    for t in range(1, 10):
        _, _, done, info = envs.step(torch.zeros(4, 1, dtype=torch.int64))
        assert done.all() == (t % 3 == 0)
        assert not info[TERMINAL].any()
    assert envs.snapshot_support() == "a vector environment cannot be saved"
    assert envs.get_state() is None


@pytest.mark.parametrize("backend", ["vector", "envpool"])
def test_evaluation_with_shares(backend: str) -> None:
    """What ``play`` does: environments whose share is played stand aside."""
    envs = VecEnv(env_maker("CartPole-v1"), 3, backend=backend)
    share = torch.tensor([2, 1, 1])
    envs.reset([1, 2, 3])
    finished = []
    while (share > 0).any():
        _, _, _, info = envs.step(torch.zeros(3, 1, dtype=torch.int64), share > 0)
        for episode in info["episodes"]:
            finished.append(episode.env)
            share[episode.env] -= 1
    assert sorted(finished) == [0, 0, 1, 2]
