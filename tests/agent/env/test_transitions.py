"""One table of actions through every backend and autoreset mode: the same transitions, bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from tests.agent.env.rollouts import roll, roll_by_hand, same
from tests.agent.env.toys import ENDINGS, Script

from pytorchrl import ConfigError, EnvError
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.keys import OBS2

N, T = 4, 40
SEEDS = [11, 22, 33, 44]
ACTIONS = np.random.default_rng(0).integers(0, 3, (N, T))


def vector_of_scripts(kind: type[VectorEnv[Any, Any, Any]], mode: AutoresetMode, num_envs: int, **kwargs: Any) -> Any:
    return kind([partial(Script, index_env=i, **kwargs) for i in range(num_envs)], autoreset_mode=mode)


BACKENDS: dict[str, dict[str, Any]] = {
    "sync": {"backend": "sync"},
    "async, one per process": {"backend": "async", "workers": N},
    "async, several per process": {"backend": "async", "workers": 2},
    "async, all in one process": {"backend": "async", "workers": 1},
    **{
        f"{kind.__name__} {mode.value}": {"backend": "vector", "kind": kind, "mode": mode}
        for kind in (SyncVectorEnv, AsyncVectorEnv)
        for mode in AutoresetMode
    },
}


def make(name: str, **kwargs: Any) -> VecEnv:
    options = dict(BACKENDS[name])
    if "kind" in options:
        return VecEnv(partial(vector_of_scripts, options["kind"], options["mode"], **kwargs), N, backend="vector")
    return VecEnv(Script, N, env_kwargs=kwargs, **options)


@pytest.mark.parametrize("observation", ["box", "dict", "image"])
@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_stores_what_a_hand_loop_stores(name: str, observation: str) -> None:
    envs = make(name, observation=observation)
    try:
        stored, episodes = roll(envs, ACTIONS, SEEDS)
    finally:
        envs.close()
    for i in range(N):
        by_hand = roll_by_hand(Script(observation, index_env=i), ACTIONS[i], SEEDS[i], start=1)
        same(stored[i], by_hand)
        lengths = [episode.length for episode in episodes if episode.env == i]
        expected = [ENDINGS[(e + i) % len(ENDINGS)][0] for e in range(len(lengths))]
        assert lengths == expected
        assert sum(lengths) > T - 5
        returns = [episode.ret for episode in episodes if episode.env == i]
        rewards = iter(transition["reward"] for transition in by_hand)
        assert returns == pytest.approx([sum(next(rewards) for _ in range(length)) for length in lengths])


@pytest.mark.parametrize("name", ["sync", "async, several per process"])
def test_inactive_environments_stand_still(name: str) -> None:
    envs = make(name)
    try:
        still = envs.reset(SEEDS)[1].clone()
        for _ in range(2):
            obs, reward, done, info = envs.step(
                torch.zeros(N, 1, dtype=torch.int64), torch.tensor([True, False, True, False])
            )
            assert torch.equal(obs[1], still)
            assert torch.equal(info[OBS2][1], still)
            assert reward[1].item() == done[1].item() == 0
            assert reward[0].item() > 0
        # Two steps of the others later it goes on as if nothing had happened.
        obs, *_ = envs.step(torch.zeros(N, 1, dtype=torch.int64))
        alone = roll_by_hand(Script(index_env=1), np.array([0]), SEEDS[1], start=1)
        np.testing.assert_array_equal(obs[1].numpy(), alone[0]["obs2"][0])
    finally:
        envs.close()


@pytest.mark.parametrize("name", [name for name in BACKENDS if "AsyncVectorEnv" not in name])
def test_one_environment_is_reset_alone(name: str) -> None:
    envs = make(name)
    try:
        envs.reset(SEEDS)
        before, *_ = envs.step(torch.zeros(N, 1, dtype=torch.int64))
        row = envs.reset_single_env(0)
        assert row.shape == before[0].shape
        assert row[1:].tolist() == [1, 0, 0]  # its second episode
        after, *_ = envs.step(torch.zeros(N, 1, dtype=torch.int64))
        assert after[0, 1:].tolist() == [1, 1, 1]
        assert after[1, 1:].tolist() == [0, 2, 1]
    finally:
        envs.close()


def test_a_vector_hides_what_plays_on_unseen_and_asks_for_a_reset() -> None:
    envs = make("SyncVectorEnv NextStep")
    still = envs.reset(SEEDS)[1].clone()
    active = torch.tensor([True, False, True, True])
    for _ in range(8):
        obs, reward, done, info = envs.step(torch.zeros(N, 1, dtype=torch.int64), active)
        assert torch.equal(obs[1], still)
        assert torch.equal(info[OBS2][1], still)
        assert reward[1].item() == done[1].item() == 0
        assert all(episode.env != 1 for episode in info["episodes"])
    with pytest.raises(EnvError, match=r"environment 1 (.|\n)*reset_single_env"):
        envs.step(torch.zeros(N, 1, dtype=torch.int64))
    envs.reset_single_env(1)
    envs.step(torch.zeros(N, 1, dtype=torch.int64))


class ResetsAll(SyncVectorEnv):
    """Does not know about masks."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=seed)


def test_a_vector_that_cannot_reset_in_part_is_refused() -> None:
    envs = VecEnv(partial(vector_of_scripts, ResetsAll, AutoresetMode.NEXT_STEP), N, backend="vector")
    with pytest.raises(ConfigError, match="SAME_STEP"):
        roll(envs, ACTIONS, SEEDS)


@pytest.mark.parametrize("name", ["sync", "async, several per process", "SyncVectorEnv SameStep"])
def test_every_environment_has_a_stream_of_its_own(name: str) -> None:
    envs = make(name)
    try:
        first = envs.reset([1, 2, 3, 2**62 + 5])[:, 0].tolist()
        assert len(set(first)) == N
        assert envs.reset([1, 2, 3, 2**62 + 5])[:, 0].tolist() == first
        assert set(envs.reset()[:, 0].tolist()).isdisjoint(first)
        with pytest.raises(ConfigError, match="seeds"):
            envs.reset([1, 2])
    finally:
        envs.close()


def test_rows_that_were_handed_out_do_not_change() -> None:
    for name in ("sync", "async, several per process", "SyncVectorEnv NextStep", "SyncVectorEnv SameStep"):
        envs = make(name)
        try:
            obs = envs.reset(SEEDS)
            kept = [obs.clone()]
            given = [obs]
            for t in range(12):
                obs, *_, info = envs.step(torch.from_numpy(ACTIONS[:, t : t + 1]))
                given += [obs, info[OBS2]]
                kept += [obs.clone(), info[OBS2].clone()]
            envs.reset_single_env(0)
            envs.reset()
            for one, other in zip(given, kept, strict=True):
                assert torch.equal(one, other)
        finally:
            envs.close()


def test_a_single_environment_is_stepped_like_a_vector_of_one() -> None:
    env = gym.make("CartPole-v1")
    actions = np.random.default_rng(1).integers(0, 2, 300)
    stored, _ = roll(VecEnv(partial(gym.make, "CartPole-v1"), 1), actions[None], [5])
    same(stored[0], roll_by_hand(env, actions, 5))
