"""The Collector over scripted environments: what reaches the storage, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytorchrl.agent.algorithms import PPO
from pytorchrl.agent.env import VecEnv
from pytorchrl.keys import DONE, DONE2, OBS, OBS2, REW, TERMINAL
from pytorchrl.scheme import Scheme
from pytorchrl.scheme.collection import play


def expected_row(script: Any, env: int, step: int) -> dict[str, Any]:
    """What transition number ``step`` of environment ``env`` must be, read off the script alone."""
    episode, start = 0, 0
    while start + script[(env + episode) % len(script)][0] <= step:
        start += script[(env + episode) % len(script)][0]
        episode += 1
    length, end = script[(env + episode) % len(script)]
    time = step - start
    last = time + 1 == length
    return {
        OBS: [env, episode, time],
        DONE: float(time == 0),
        REW: 100.0 * episode + time + 1,
        OBS2: [env, episode, time + 1],
        DONE2: float(last),
        TERMINAL: float(last and end in ("terminated", "both")),
    }


def test_every_transition_is_stored_as_it_happened(make_scheme: Callable[..., Scheme], script: Any) -> None:
    """Over terminations, truncations and both; no ghost rows, true successors, over several rounds."""
    scheme = make_scheme(num_envs=3, size=8)
    for _ in range(4):
        scheme.step()
    samples: Any = scheme.storage.samples  # type: ignore[attr-defined]
    assert len(samples) == 32
    for step, sample in enumerate(samples):
        for env in range(3):
            for key, expected in expected_row(script, env, step).items():
                found = sample[key][env].tolist()
                assert found == (expected if key in (OBS, OBS2) else [expected]), (key, env, step)
    ends = torch.cat([sample[DONE2] for sample in samples])
    assert 0 < torch.cat([sample[TERMINAL] for sample in samples]).sum() < ends.sum() < len(ends)


def test_an_algorithm_sees_random_steps_first_if_it_wants_to(
    make_scheme: Callable[..., Scheme], script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with true successors, before the first episode; they are counted nowhere and end up in no rollout."""
    seen: list[Any] = []
    wanted = property(lambda self: 0 if seen else 5)
    monkeypatch.setattr(PPO, "random_steps_wanted", wanted)
    monkeypatch.setattr(PPO, "observe", lambda self, obs: seen.append(obs.clone()))
    log: list[Any] = []
    scheme = make_scheme(num_envs=2, size=3, env_kwargs={"log": log})
    assert not [entry for entry in log if entry[0] == "step" and entry[1] == "train"]  # nothing is stepped before
    result = scheme.step()
    assert result.env_steps == 6
    assert scheme.collector.steps == 3
    for step, obs in enumerate(seen):
        assert obs.tolist() == [expected_row(script, env, step)[OBS2] for env in range(2)]
    assert len(seen) == 5
    resets = [entry for entry in log if entry[0] == "reset"]
    seeds = [entry[3] for entry in resets if entry[3] is not None]
    assert seeds[:2] == seeds[2:]  # the run begins with the seeds that it would have begun with
    samples: Any = scheme.storage.samples  # type: ignore[attr-defined]
    assert len(samples) == 3
    assert samples[0][DONE].tolist() == [[1.0], [1.0]]
    assert samples[0][OBS][:, 2].tolist() == [0.0, 0.0]
    scheme.step()
    assert len(seen) == 5


def test_episode_statistics_are_exact(make_scheme: Callable[..., Scheme], script: Any) -> None:
    scheme = make_scheme(num_envs=2, size=5)
    rounds = [scheme.step() for _ in range(6)]
    found = [
        (sum(r.env_steps for r in rounds[:i]) + offset, *episode)
        for i, result in enumerate(rounds)
        for offset, episode in result.episodes
    ]
    expected = []
    for env in range(2):
        steps = 0
        for episode in range(100):
            length = script[(env + episode) % len(script)][0]
            steps += length
            if steps > 30:
                break
            total = sum(100.0 * episode + time for time in range(1, length + 1))
            expected.append((steps * 2, env, total, length))
    assert sorted(found) == sorted(expected)
    assert [r.env_steps for r in rounds] == [10] * 6
    assert [r.updates for r in rounds] == [4] * 6


def test_one_forward_pass_per_vector_step(make_scheme: Callable[..., Scheme]) -> None:
    scheme = make_scheme(num_envs=3, size=8)
    calls = []
    acting_step = scheme.algorithm.acting_step
    scheme.algorithm.acting_step = lambda *inputs, **options: calls.append(1) or acting_step(*inputs, **options)  # type: ignore[assignment,method-assign,func-returns-value]
    scheme.collector.collect(5)
    assert len(calls) == 5


def test_the_storage_may_steer_what_is_acted_on(make_scheme: Callable[..., Scheme]) -> None:
    scheme = make_scheme(num_envs=2, size=4)
    other = torch.full((2, 3), 7.0)
    scheme.storage.next_inputs = lambda obs, rhs, done: (other, rhs, done)  # type: ignore[method-assign]
    scheme.collector.collect(2)
    samples: Any = scheme.storage.samples  # type: ignore[attr-defined]
    assert samples[0][OBS].tolist() == [[0, 0, 0], [1, 0, 0]]
    assert torch.equal(samples[1][OBS], other)


def always_zero(obs: Any, rhs: Any, done: Any) -> Any:
    return torch.zeros(len(done), 1, dtype=torch.int64), rhs


def test_play_gives_every_environment_its_share(scripted_env: Any) -> None:
    """Environment 0 plays episodes of one step, environment 1 of twenty: each still plays half of them."""
    log: list[Any] = []

    def make(index_env: int) -> Any:
        return scripted_env([(1, "terminated")] if index_env == 0 else [(20, "terminated")], log, index_env)

    envs = VecEnv(make, 2)
    episodes = play(always_zero, envs, {}, 5, [1, 2])
    assert sorted(episode.length for episode in episodes) == [1, 1, 1, 20, 20]
    # Who is through stands still; counting whoever ends first would have taken five episodes of one step.
    assert log.count(("step", "train", 0)) == 3
    assert log.count(("step", "train", 1)) == 40


@pytest.mark.parametrize(("num_envs", "num_episodes"), [(3, 1), (3, 3), (2, 7), (1, 4)])
def test_play_plays_the_episodes_that_were_asked_for(scripted_env: Any, num_envs: int, num_episodes: int) -> None:
    def make(index_env: int) -> Any:
        return scripted_env([(2 + index_env, "truncated")], None, index_env)

    episodes = play(always_zero, VecEnv(make, num_envs), {}, num_episodes, list(range(num_envs)))
    assert len(episodes) == num_episodes
    assert all(episode.length == 2 + episode.env for episode in episodes)
    shares = [sum(episode.env == env for episode in episodes) for env in range(num_envs)]
    assert max(shares) - min(shares) <= 1


def test_play_does_not_favor_short_episodes(scripted_env: Any) -> None:
    """Each episode is short or long by the toss of a coin: the mean length over many is near the true one.

    Taking the first to finish from eight environments would see almost only short ones.
    """

    class Coin(scripted_env):  # type: ignore[misc]
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if seed is not None:
                self.coin = torch.Generator().manual_seed(seed)
            self.script = [(1 if torch.rand((), generator=self.coin) < 0.5 else 41, "terminated")]
            return super().reset(seed=seed, options=options)

    def make(index_env: int) -> Any:
        return Coin(index_env=index_env)

    lengths = [
        episode.length
        for trial in range(25)
        for episode in play(always_zero, VecEnv(make, 8), {}, 8, list(range(trial * 8, trial * 8 + 8)))
    ]
    assert sum(lengths) / len(lengths) == pytest.approx(21.0, abs=5.0)  # 3.5 standard errors
