"""A restored environment goes on exactly like the one that was saved."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import wrappers
from tests.agent.env.rollouts import roll
from tests.agent.env.toys import Counter, SavingCounter

from pytorchrl import CheckpointError, state_tree
from pytorchrl.agent.env import snapshots
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.envs import atari
from pytorchrl.envs.gymnasium import env_maker

CLASSIC = ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"]
TOY = ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1"]
MUJOCO = [
    f"{name}-v5"
    for name in (
        "Ant",
        "HalfCheetah",
        "Hopper",
        "Humanoid",
        "HumanoidStandup",
        "InvertedDoublePendulum",
        "InvertedPendulum",
        "Pusher",
        "Reacher",
        "Swimmer",
        "Walker2d",
    )
]


def play(env: gym.Env[Any, Any], actions: list[Any]) -> list[Any]:
    """Everything that an environment says, over resets."""
    said = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        said.append([np.array(observation), np.array(reward), terminated, truncated])
        if terminated or truncated:
            said.append([np.array(env.reset()[0])])
    return said


def sampled(env: gym.Env[Any, Any], count: int, seed: int) -> list[Any]:
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(count)]


def assert_continues(make: Any, before: int = 13, after: int = 45) -> None:
    """The adapter's test: snapshot, k steps; restored into another instance used otherwise, the same k steps."""
    env, other = make(), make()
    env.reset(seed=1)
    play(env, sampled(env, before, 2))
    saved = state_tree.decode(*state_tree.encode(snapshots.get_state(env)))
    actions = sampled(env, after, 3)
    expected = play(env, actions)
    other.reset(seed=77)
    play(other, sampled(other, 29, 4))
    snapshots.set_state(other, saved)
    got = play(other, actions)
    assert len(expected) == len(got)
    assert any(len(item) == 1 for item in expected), "no reset in the test"
    for one, another in zip(expected, got, strict=True):
        for a, b in zip(one, another, strict=True):
            np.testing.assert_array_equal(a, b)
            assert np.asarray(a).dtype == np.asarray(b).dtype
    env.close()
    other.close()


@pytest.mark.parametrize("env_id", [*CLASSIC, *TOY, *MUJOCO])
def test_environments_of_gymnasium(env_id: str) -> None:
    assert_continues(partial(env_maker(env_id), max_episode_steps=20))


@pytest.mark.parametrize("life_loss", [False, True])
@pytest.mark.parametrize("game", ["Pong", "Breakout"])
def test_atari(game: str, life_loss: bool) -> None:
    make = partial(env_maker(f"ALE/{game}-v5"), life_loss=life_loss, max_num_frames_per_episode=260)
    assert_continues(make, before=30, after=100)


@pytest.mark.slow
def test_every_atari_game() -> None:
    env_maker("ALE/Pong-v5")
    games = [env_id for env_id in gym.registry if env_id.startswith("ALE/") and env_id.endswith("-v5")]
    for env_id in games:
        if "-ram-" in env_id or "TicTacToe3D" in env_id:
            continue
        noop_max = 0 if "Backgammon" in env_id or "Checkers" in env_id else 10
        make = partial(env_maker(env_id), max_num_frames_per_episode=200, noop_max=noop_max)
        assert_continues(make, before=20, after=60)


def test_a_life_lost_in_the_step_that_is_saved() -> None:
    def make() -> gym.Env[Any, Any]:
        return env_maker("ALE/Breakout-v5")(life_loss=True, noop_max=0, repeat_action_probability=0.0)

    env, other = make(), make()
    env.reset(seed=1)
    while not env.step(1)[2]:
        pass
    saved = snapshots.get_state(env)
    other.reset(seed=2)
    snapshots.set_state(other, saved)
    first, second = env.reset()[0], other.reset()[0]
    np.testing.assert_array_equal(first, second)
    for one, another in zip(play(env, [0] * 20), play(other, [0] * 20), strict=True):
        np.testing.assert_array_equal(one[0], another[0])


@pytest.mark.parametrize(
    "wrap",
    [
        wrappers.RecordEpisodeStatistics,
        partial(wrappers.FrameStackObservation, stack_size=3),
        partial(wrappers.FrameStackObservation, stack_size=3, padding_type="zero"),
        partial(wrappers.DelayObservation, delay=2),
        wrappers.TimeAwareObservation,
        wrappers.NormalizeObservation,
        wrappers.NormalizeReward,
        partial(wrappers.StickyAction, repeat_action_probability=0.5),
        partial(wrappers.RepeatAction, num_repeats=2),
        partial(wrappers.MaxAndSkipObservation, skip=2),
        wrappers.FlattenObservation,
        partial(wrappers.RescaleObservation, min_obs=np.float32(-1), max_obs=np.float32(1)),
        partial(wrappers.ClipReward, min_reward=-1, max_reward=1),
        partial(wrappers.DtypeObservation, dtype=np.float64),
        partial(wrappers.PassiveEnvChecker),
    ],
)
def test_wrappers_of_gymnasium(wrap: Any) -> None:
    assert_continues(lambda: wrap(gym.make("MountainCar-v0", max_episode_steps=20)))


def test_statistics_of_a_wrapper_come_back() -> None:
    env, other = (wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1"), buffer_length=5) for _ in range(2))
    env.reset(seed=1)
    play(env, sampled(env, 50, 2))
    other.reset()
    snapshots.set_state(other, snapshots.get_state(env))
    assert list(other.return_queue) == list(env.return_queue)
    assert other.return_queue.maxlen == 5
    assert (other.episode_count, other.episode_lengths) == (env.episode_count, env.episode_lengths)


def test_an_environment_of_the_user_s() -> None:
    assert_continues(SavingCounter)
    assert_continues(lambda: wrappers.TimeLimit(SavingCounter(), 4))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Counter, "environment Counter has no get_state"),
        (lambda: gym.make("LunarLander-v3"), "environment LunarLander has no"),
        (lambda: atari.make("ALE/TicTacToe3D-v5"), "not restore tic_tac_toe_3d exactly"),
        (lambda: atari.make("ALE/Pong-v5", frame_skip=2), "skip 4 frames"),
        (lambda: gym.make("ALE/Pong-v5"), "sticky"),
        (lambda: gym.make("HalfCheetah-v4"), "environment HalfCheetahEnv has no"),
        (lambda: type("Mine", (gym.Wrapper,), {})(gym.make("CartPole-v1")), "wrapper Mine has no"),
        (lambda: type("MyCartPole", (type(gym.make("CartPole-v1").unwrapped),), {})(), "MyCartPole has no"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_what_cannot_be_saved_is_named(make: Any, reason: str) -> None:
    env_maker("ALE/Pong-v5")  # registers the games
    env = make()
    assert reason in (snapshots.snapshot_support(env) or "")
    with pytest.raises(CheckpointError, match=reason):
        snapshots.get_state(env)
    envs = VecEnv(make, 1)
    assert reason in (envs.snapshot_support() or "")
    assert envs.get_state() is None
    with pytest.raises(CheckpointError, match=reason):
        envs.set_state({"envs": [None]})


def test_another_kind_of_environment_is_refused() -> None:
    saved = snapshots.get_state(gym.make("CartPole-v1"))
    with pytest.raises(CheckpointError, match="PendulumEnv"):
        snapshots.set_state(gym.make("Pendulum-v1"), saved)


def test_a_hostile_snapshot_sets_nothing_else() -> None:
    env = gym.make("CartPole-v1")
    saved = snapshots.get_state(env)
    saved["layers"][0][1]["step"] = "mine"
    snapshots.set_state(env, saved)
    env.reset()
    env.step(0)
    saved["random"] = {"bit_generator": "seed"}
    with pytest.raises(KeyError):
        snapshots.set_state(env, saved)


@pytest.mark.parametrize("save", ["sync", "async"])
@pytest.mark.parametrize("load", ["sync", "async"])
def test_a_whole_vector_with_its_open_episodes(save: str, load: str) -> None:
    make = env_maker("CartPole-v1")
    actions = np.random.default_rng(0).integers(0, 2, (3, 120))
    seeds = [1, 2, 3]
    whole = VecEnv(make, 3)
    expected, finished = roll(whole, actions, seeds)
    half, rest = VecEnv(make, 3, backend=save), VecEnv(make, 3, backend=load)
    try:
        _, early = roll(half, actions[:, :50], seeds)
        saved = half.get_state()
        rest.reset([7, 8, 9])
        rest.step(torch.zeros(3, 1, dtype=torch.int64))
        structure, tensors = state_tree.encode(saved)
        obs = rest.set_state(state_tree.decode(structure, tensors))
        assert isinstance(obs, torch.Tensor)
        for i in range(3):
            np.testing.assert_array_equal(obs[i].numpy(), expected[i][50]["obs"][0])
        late = []
        for t in range(50, 120):
            obs, _, _, info = rest.step(torch.from_numpy(actions[:, t : t + 1]))
            late += info["episodes"]
            for i in range(3):
                np.testing.assert_array_equal(obs[i].numpy(), expected[i][t]["next"][0])
    finally:
        half.close()
        rest.close()
    assert early + late == finished


def test_a_vector_of_another_size_is_refused() -> None:
    make = env_maker("CartPole-v1")
    saved = VecEnv(make, 2).get_state()
    assert saved is not None
    with pytest.raises(CheckpointError, match="2 were saved"):
        VecEnv(make, 3).set_state(saved)
