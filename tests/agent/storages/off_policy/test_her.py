"""Hindsight: goals come from the transition's own episode, and rewards follow from them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from pytorchrl import state_tree, tree
from pytorchrl.agent.env import VecEnv
from pytorchrl.agent.storages.off_policy.her_buffer import GoalRelabelling, HERBuffer
from pytorchrl.errors import ConfigError
from pytorchrl.keys import ACT, DONE, DONE2, INDICES, OBS, OBS2, REW, RHS, RHS2, TERMINAL


def reward(achieved: Any, desired: Any, info: Any) -> Any:
    """0 where the goal is reached, −1 elsewhere."""
    return (np.abs(achieved - desired).sum(-1) < 0.5).astype(np.float32) - 1


def terminated(achieved: Any, desired: Any, info: Any) -> Any:
    return np.abs(achieved - desired).sum(-1) < 0.5


class Walks:
    """N walkers with goals that they never reach. A state's code is 1000·episode + step; episodes differ in length."""

    def __init__(self, num_envs: int, seed: int = 0) -> None:
        self.num_envs = num_envs
        self.random = np.random.default_rng(seed)
        self.episodes = 0
        self.states = [self._first() for _ in range(num_envs)]
        self.done = [1.0] * num_envs
        self.lengths: dict[int, int] = {}

    def _first(self) -> int:
        self.episodes += 1
        return 1000 * self.episodes

    def _obs(self, states: list[int]) -> dict[str, torch.Tensor]:
        codes = torch.tensor(states, dtype=torch.float32)[:, None]
        return {"observation": codes, "achieved_goal": codes.clone(), "desired_goal": torch.full_like(codes, -5.0)}

    def sample(self) -> dict[str, Any]:
        N = self.num_envs
        after = [state + 1 for state in self.states]
        ended = [bool(self.random.random() < 0.2) for _ in range(N)]
        zero = {"policy": torch.zeros(N, 1)}
        sample = {
            OBS: self._obs(self.states),
            RHS: zero,
            DONE: torch.tensor(self.done)[:, None],
            ACT: torch.zeros(N, 2),
            REW: torch.full((N, 1), -1.0),
            OBS2: self._obs(after),
            RHS2: zero,
            DONE2: torch.tensor(ended)[:, None].float(),
            TERMINAL: torch.zeros(N, 1),
        }
        for state, end in zip(after, ended, strict=True):
            if end:
                self.lengths[state // 1000] = state % 1000
        self.states = [self._first() if end else state for state, end in zip(after, ended, strict=True)]
        self.done = [float(end) for end in ended]
        return sample

    def build(self, size: int, **kwargs: Any) -> HERBuffer:
        torch.manual_seed(0)
        function = kwargs.pop("her_function", GoalRelabelling(reward))
        return HERBuffer(size, "cpu", SimpleNamespace(is_recurrent=False), None, None, function, **kwargs)  # type: ignore[arg-type]

    def fill(self, storage: HERBuffer, steps: int) -> HERBuffer:
        for _ in range(steps):
            storage.insert_transition(self.sample())
        return storage


def rows(batch: Any) -> list[tuple[int, int, float, int]]:
    """(episode, step, desired goal, reward) of each row; both observations must pursue the same goal."""
    assert torch.equal(batch[OBS]["desired_goal"], batch[OBS2]["desired_goal"])
    codes = batch[OBS]["observation"].flatten().long().tolist()
    assert batch[OBS2]["observation"].flatten().long().tolist() == [code + 1 for code in codes]
    goals, rewards = batch[OBS]["desired_goal"].flatten().tolist(), batch[REW].flatten().tolist()
    return [(code // 1000, code % 1000, goal, r) for code, goal, r in zip(codes, goals, rewards, strict=True)]


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize(("size", "steps"), [(200, 100), (40, 137)])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_are_reached_later_in_the_same_episode(num_envs: int, size: int, steps: int, strategy: str) -> None:
    world = Walks(num_envs)
    storage = world.fill(world.build(size, strategy=strategy), steps)
    seen: dict[tuple[int, int], set[int]] = {}
    relabelled = eligible = 0
    for batch in storage.generate_batches(200, 128):
        for episode, t, goal, r in rows(batch):
            finished = episode in world.lengths
            eligible += finished
            if goal == -5:
                assert r == -1
                continue
            relabelled += 1
            assert finished, "an episode that goes on has no end to learn from"
            assert goal // 1000 == episode
            index = int(goal) % 1000 - 1  # the transition that achieved it
            assert 0 <= index < world.lengths[episode]
            if strategy == "final":
                assert index == world.lengths[episode] - 1
            if strategy == "future":
                assert index >= t
            assert r == (0 if index == t else -1)
            seen.setdefault((episode, t), set()).add(index)
    assert relabelled / eligible == pytest.approx(0.8, abs=0.02)
    if num_envs == 1:  # every goal is drawn at some time
        first = (storage.ring.oldest if size < steps else 0) // num_envs
        for (episode, t), goals in seen.items():
            length = world.lengths[episode]
            if strategy == "future":
                assert goals == set(range(t, length))
            if strategy == "episode" and length < 8 and first == 0:
                assert goals == set(range(length))


def test_terminals_follow_the_new_goal() -> None:
    world = Walks(2)
    storage = world.fill(world.build(60, her_function=GoalRelabelling(reward, terminated)), 60)
    plain = world.fill(world.build(60), 60)
    batch = next(iter(storage.generate_batches(1, 2000)))
    reached = batch[REW] == 0
    assert 0 < reached.sum() < 1500
    assert torch.equal(batch[TERMINAL] == 1, reached)
    assert (batch[DONE2][reached] == 1).all()
    assert not next(iter(plain.generate_batches(1, 500)))[TERMINAL].any()


def test_a_function_of_ones_own_gets_batches_of_rows() -> None:
    calls = []

    def mine(o: Any, rhs: Any, o2: Any, rhs2: Any, r: Any, initial: Any, final: Any) -> Any:
        calls.append((o, initial, final))
        assert r.shape == (len(o["observation"]), 1)
        return o, rhs, o2, rhs2, r + 100

    world = Walks(2)
    storage = world.fill(world.build(50, her_function=mine, strategy="final", num_goals=1), 50)
    batch = next(iter(storage.generate_batches(1, 1000)))
    assert ((batch[REW] == 99) | (batch[REW] == -1)).all()
    assert len(calls) == 1
    for now, first, last in zip(*(part["observation"].flatten().long().tolist() for part in calls[0]), strict=True):
        assert first // 1000 == now // 1000 == last // 1000
        assert first % 1000 == 0
        assert last % 1000 == world.lengths[now // 1000]
    assert len(calls[0][0]["observation"]) == int((batch[REW] == 99).sum())


def test_num_goals_0_is_plain_replay() -> None:
    world = Walks(2)
    storage = world.fill(world.build(50, num_goals=0), 80)
    assert all(goal == -5 for batch in storage.generate_batches(5, 100) for _, _, goal, _ in rows(batch))


def test_an_episode_that_is_cut_off_ends_there() -> None:
    """Collection that begins anew: no goal comes from the episode after."""
    world = Walks(1)
    world.random = SimpleNamespace(random=lambda: 1.0)  # type: ignore[assignment]
    storage = world.fill(world.build(50), 7)
    world.states, world.done = [world._first()], [1.0]
    world.fill(storage, 5)
    found = {(e, goal // 1000) for b in storage.generate_batches(5, 200) for e, _, goal, _ in rows(b)}
    assert found == {(1, -1), (1, 1), (2, -1)}


def test_size_changes_and_resume_keep_the_episodes() -> None:
    world = Walks(2)
    storage = world.fill(world.build(30), 50)
    other = Walks(2, 3).build(30)
    other.set_state(state_tree.decode(*state_tree.encode(storage.get_state())))
    for size in (30, 20, 45):
        storage.update_storage_parameter("size", size)
        other.update_storage_parameter("size", size)
        for _ in range(7):
            sample = world.sample()
            storage.insert_transition(sample)
            other.insert_transition(sample)
        for a, b in zip(storage.generate_batches(3, 100), other.generate_batches(3, 100), strict=True):
            assert torch.equal(a[INDICES], b[INDICES])
            assert rows(a) == rows(b)
            assert all(goal in (-5, *range(1000 * e, 1000 * e + 999)) for e, _, goal, _ in rows(a))
            assert any(goal != -5 for _, _, goal, _ in rows(a))
    storage.reset()
    assert storage.size == 0
    world.fill(storage, 10)
    assert all(len(tree.first_leaf(batch[OBS])) == 50 for batch in storage.generate_batches(2, 50))


class GoalEnv(gym.Env[Any, Any]):
    """Gymnasium's goal interface: a point on a line."""

    def __init__(self) -> None:
        box = gym.spaces.Box(-9, 9, (1,), np.float64)
        self.observation_space = gym.spaces.Dict({"observation": box, "achieved_goal": box, "desired_goal": box})
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def _obs(self) -> Any:
        return {"observation": self.x, "achieved_goal": self.x, "desired_goal": np.array([7.0])}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.x, self.t = np.zeros(1), 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.x, self.t = np.clip(self.x + np.sign(action), -9, 9).astype(np.float64), self.t + 1
        obs = self._obs()
        return obs, self.compute_reward(obs["achieved_goal"], obs["desired_goal"], {}), False, self.t == 4, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return (np.abs(achieved - desired).sum(-1) < 0.5).astype(np.float32) - 1


def test_goal_environments_need_no_function() -> None:
    envs = VecEnv(GoalEnv, 2)
    storage = HERBuffer(20, "cpu", SimpleNamespace(is_recurrent=False), None, envs)  # type: ignore[arg-type]
    obs, done, zero = envs.reset([0, 1]), torch.ones(2, 1), {"policy": torch.zeros(2, 1)}
    for _ in range(12):
        action = torch.randn(2, 1)
        after, r, done2, info = envs.step(action)
        storage.insert_transition(
            {
                OBS: obs,
                RHS: zero,
                DONE: done,
                ACT: action,
                REW: r,
                OBS2: info[OBS2],
                RHS2: zero,
                DONE2: done2,
                TERMINAL: info[TERMINAL],
            }
        )
        obs, done = after, done2
    batch = next(iter(storage.generate_batches(1, 500)))
    achieved, desired = (batch[OBS2][key] for key in ("achieved_goal", "desired_goal"))
    assert torch.equal(batch[REW] == 0, (achieved == desired))
    assert (batch[REW] == 0).any()
    assert not batch[TERMINAL].any()


def test_environments_without_goals_are_refused() -> None:
    with pytest.raises(ConfigError, match="compute_reward"):
        HERBuffer(20, "cpu", SimpleNamespace(is_recurrent=False), None, None)  # type: ignore[arg-type]


def test_a_reward_per_batch_is_refused() -> None:
    world = Walks(2)
    storage = world.fill(world.build(20, her_function=GoalRelabelling(lambda a, d, i: 0.0)), 40)
    with pytest.raises(ConfigError, match="gave 1 values for a batch of"):
        next(iter(storage.generate_batches(1, 100)))
