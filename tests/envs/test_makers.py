"""Environments by id: what is made, and what is said when it cannot be."""

from __future__ import annotations

import importlib.util
import pickle
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.agent.env.toys import Script

from pytorchrl import ConfigError, EnvError
from pytorchrl.agent.env import choice
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.envs.gymnasium import EnvMaker, env_maker
from pytorchrl.keys import TERMINAL


@pytest.mark.parametrize(
    ("env_id", "package", "extra"),
    [
        ("ALE/Pong-v5", "ale_py", "atari"),
        ("PongNoFrameskip-v4", "ale_py", "atari"),
        ("HalfCheetah-v5", "mujoco", "mujoco"),
        ("LunarLander-v3", "Box2D", "box2d"),
        ("MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
        ("BabyAI-GoToObj-v0", "minigrid", "minigrid"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    env_id: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(ConfigError, match=rf"'{env_id}' needs (.|\n)*pip install 'pytorchrl\[{extra}\]'"):
        env_maker(env_id)


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [
        ("CartPole-v7", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("ALE/Pongg-v5", "Pong"),
        ("MiniGrid-Empty-5x5-v9", "MiniGrid-Empty-5x5-v0"),
    ],
)
def test_an_unknown_id_is_answered_with_the_nearest(env_id: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown environment '{env_id}'(.|\n)*{hint}"):
        env_maker(env_id)


def test_a_maker_travels() -> None:
    maker = pickle.loads(pickle.dumps(env_maker("CartPole-v1")))
    assert maker == EnvMaker("CartPole-v1")
    assert maker(max_episode_steps=7).spec.max_episode_steps == 7


def test_atari_is_preprocessed() -> None:
    for env_id in ("ALE/Pong-v5", "PongNoFrameskip-v4"):
        env = env_maker(env_id)()
        assert env.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
        obs, _ = env.reset(seed=1)
        assert obs.dtype == np.uint8
        np.testing.assert_array_equal(obs[0], obs[3])  # filled up with the first frame
        _, _, _, _, info = env.step(0)
        frames = info["episode_frame_number"]
        assert env.step(0)[4]["episode_frame_number"] == frames + 4
    assert env_maker("ALE/Pong-v5")(frame_stack=2, screen_size=42, frame_skip=2).observation_space.shape == (2, 42, 42)


def test_all_kinds_of_atari_have_the_same_spaces() -> None:
    maker = env_maker("ALE/Pong-v5")
    made = [VecEnv(maker, 1, backend=backend) for backend in ("sync", "vector", "envpool")]
    assert len({str(envs.observation_space) for envs in made}) == 1
    assert len({str(envs.action_space) for envs in made}) == 1
    for envs in made:
        envs.reset([1])
        envs.step(torch.zeros(1, 1, dtype=torch.int64))
        envs.close()


def test_sticky_actions_are_those_of_the_id() -> None:
    def sticky(env: gym.Env[Any, Any]) -> float:
        while isinstance(env, gym.Wrapper):
            if isinstance(env, gym.wrappers.StickyAction):
                return env.repeat_action_probability
            env = env.env
        return 0.0

    assert sticky(env_maker("ALE/Pong-v5")()) == 0.25
    assert sticky(env_maker("PongNoFrameskip-v4")()) == 0.0
    assert sticky(env_maker("ALE/Pong-v5")(repeat_action_probability=0.0)) == 0.0


@pytest.mark.parametrize("backend", ["sync", "vector", "envpool"])
def test_a_lost_life_ends_the_episode_for_the_learner_alone(backend: str) -> None:
    settings = {"life_loss": True, "repeat_action_probability": 0.0, "noop_max": 1}
    envs = VecEnv(env_maker("ALE/Breakout-v5"), 1, env_kwargs=settings, backend=backend)
    envs.reset([3])
    terminals, steps, raw, episodes = 0, 0, 0.0, []
    while not episodes:
        # Fire, and stay on the right: some bricks break, and the ball is lost five times.
        _, reward, done, info = envs.step(torch.tensor([[1 if steps % 5 == 0 else 2]]))
        steps += 1
        raw += reward.item()
        terminals += int(info[TERMINAL].item())
        assert done.item() == info[TERMINAL].item()
        episodes = info["episodes"]
    assert terminals == 5
    assert episodes[0].length == steps
    assert episodes[0].ret >= raw  # clipped for the learner, not for the score
    envs.close()


def test_clipped_rewards_leave_the_score_alone() -> None:
    """Ms. Pac-Man pays 10 for a dot."""
    settings = {"max_num_frames_per_episode": 600}
    clipped = VecEnv(env_maker("ALE/MsPacman-v5"), 1, env_kwargs=settings)
    plain = VecEnv(env_maker("ALE/MsPacman-v5"), 1, env_kwargs=settings | {"clip_reward": False})
    returns = []
    for envs in (clipped, plain):
        envs.reset([1])
        total, episodes = 0.0, []
        while not episodes:
            _, reward, _, info = envs.step(torch.tensor([[3]]))
            total += reward.item()
            episodes = info["episodes"]
        returns.append((total, episodes[0].ret))
    assert returns[0][1] == returns[1][1] == returns[1][0]
    assert 0 < returns[0][0] * 10 <= returns[0][1]


def test_minigrid_without_its_mission() -> None:
    env = env_maker("MiniGrid-Empty-5x5-v0")()
    assert set(env.observation_space.spaces) == {"direction", "image"}
    envs = VecEnv(env_maker("MiniGrid-Empty-5x5-v0"), 2)
    obs = envs.reset([1, 2])
    assert isinstance(obs, dict)
    assert obs["direction"].shape == (2, 4)
    assert obs["image"].shape == (2, 3, 7, 7)


def test_backends_that_do_not_fit_say_so() -> None:
    with pytest.raises(ConfigError, match=r"unknown backend 'asink'(.|\n)*async"):
        VecEnv(Script, 1, backend="asink")
    with pytest.raises(ConfigError, match="'Acrobot-v1' has no vector implementation"):
        VecEnv(env_maker("Acrobot-v1"), 1, backend="vector")
    with pytest.raises(ConfigError, match="EnvPool has no 'Taxi-v4'"):
        VecEnv(env_maker("Taxi-v4"), 1, backend="envpool")
    with pytest.raises(ConfigError, match="needs an environment id"):
        VecEnv(Script, 1, backend="envpool")
    with pytest.raises(ConfigError, match=r"EnvPool cannot make 'CartPole-v1'.*sutton"):
        VecEnv(env_maker("CartPole-v1"), 1, env_kwargs={"sutton_barto_reward": True}, backend="envpool")
    with pytest.raises(ConfigError, match=r"not a gymnasium\.vector\.VectorEnv"):
        VecEnv(Script, 1, backend="vector")
    with pytest.raises(ConfigError, match="backend='vector'"):
        VecEnv(partial(gym.make_vec, "CartPole-v1", 2), 1)
    with pytest.raises(ConfigError, match="makes 2 environments, and 3"):
        VecEnv(partial(gym.make_vec, "CartPole-v1", 2), 3, backend="vector")
    with pytest.raises(EnvError, match="unexpected keyword argument 'foo'"):
        VecEnv(env_maker("CartPole-v1"), 1, env_kwargs={"foo": 1})


class Slow(Script):
    """Takes 3 ms for a step."""

    def step(self, action: Any) -> Any:
        import time

        time.sleep(0.003)
        return super().step(action)


def test_auto_takes_processes_where_they_pay_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "usable_cores", lambda: 4)
    assert choice.choose(Script, {}, 8)[0] == "sync"
    assert "pay off above 1 ms" in choice.choose(Script, {}, 8)[1]
    assert choice.choose(Slow, {}, 8)[0] == "async"
    assert "on 4 cores" in choice.choose(Slow, {}, 8)[1]
    assert choice.choose(Slow, {}, 1) == ("sync", "1 environment, 4 cores")
    assert choice.choose(partial(gym.make_vec, "CartPole-v1", 2), {}, 2)[0] == "vector"
    lock = __import__("threading").Lock()
    assert "cannot be sent" in choice.choose(lambda: (lock, Slow())[1], {}, 8)[1]
    monkeypatch.setattr(choice, "usable_cores", lambda: 1)
    assert choice.choose(Slow, {}, 8) == ("sync", "8 environments, 1 core")


def test_the_choice_reaches_the_vector() -> None:
    make, action_space, observation_space = VecEnv.create_factory(env_maker("CartPole-v1"), None, 4)
    envs = make("cpu")
    assert (envs.num_envs, envs.backend_name) == (4, "sync")
    assert envs.backend_reason
    assert action_space == spaces.Discrete(2)
    assert observation_space.shape == (4,)
    assert make("cpu", mode="test", num_envs=2).num_envs == 2
    make, *_ = VecEnv.create_factory(partial(gym.make_vec, "CartPole-v1", 3), {}, 3, backend="vector")
    assert make("cpu").backend_reason == "as asked"
    with pytest.raises(ConfigError, match="vec_env_size"):
        VecEnv.create_factory(Script, None, 0)


def test_functions_receive_what_they_name() -> None:
    seen: list[Any] = []

    def make(index_env: int, mode: str, index_col_worker: int, extra: int = 0) -> gym.Env[Any, Any]:
        seen.append((index_env, mode, index_col_worker, extra))
        return Script()

    VecEnv(make, 2, env_kwargs={"extra": 5}, index_col_worker=3, mode="test")
    assert seen == [(0, "test", 3, 5), (1, "test", 3, 5)]
