"""Schemes with workers: what reaches the storages, what is promised when workers are lost, what travels."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import gymnasium as gym
import pytest
import torch
from tests.scheme.conftest import RecordingBuffer
from torch import Tensor

from pytorchrl import ASYNC, SYNC, EnvError, WorkerLostError
from pytorchrl.agent.actors import OffPolicyActor, OnPolicyActor
from pytorchrl.agent.algorithms import A2C, DDPG, DDQN, PPO
from pytorchrl.agent.env import VecEnv
from pytorchrl.agent.storages import GAEBuffer, PERBuffer, VTraceBuffer
from pytorchrl.keys import DONE, OBS, OBS2, REW, TERMINAL
from pytorchrl.scheme import Scheme
from pytorchrl.scheme.gradients import average

N = 2  # environments of a collector


def make_env(id: str) -> gym.Env[Any, Any]:
    return gym.make(id)


class Crash(gym.Wrapper[Any, Any, Any, Any]):
    """Ends its process, or raises, in the step that it is told."""

    def __init__(self, env: gym.Env[Any, Any], at: int, how: str) -> None:
        super().__init__(env)
        self.at, self.how, self.count = at, how, 0

    def step(self, action: Any) -> Any:
        self.count += 1
        if self.count == self.at:
            if self.how == "raise":
                raise ValueError("the simulator broke")
            os.kill(os.getpid(), signal.SIGKILL)
        return self.env.step(action)


def make_crash(at: int, how: str, index_env: int) -> gym.Env[Any, Any]:
    env = gym.make("CartPole-v1")
    return Crash(env, at, how) if index_env == 1 else env


ALGORITHMS: dict[str, tuple[Any, dict[str, Any], Any, Any, str]] = {
    "PPO": (PPO, {"num_mini_batch": 2, "num_epochs": 2}, OnPolicyActor, (GAEBuffer, {"size": 8}), "CartPole-v1"),
    "A2C": (A2C, {}, OnPolicyActor, (VTraceBuffer, {"size": 8}), "CartPole-v1"),
    "DDQN": (
        DDQN,
        {"start_steps": 8, "num_updates": 2, "update_every": 4, "mini_batch_size": 8},
        OffPolicyActor,
        (PERBuffer, {"size": 200, "alpha": 0.6, "n_step": 3}),
        "CartPole-v1",
    ),
    "DDPG": (
        DDPG,
        {"start_steps": 8, "num_updates": 2, "update_every": 4, "mini_batch_size": 8},
        OffPolicyActor,
        (PERBuffer, {"size": 200, "alpha": 0.6}),
        "Pendulum-v1",
    ),
}


def make(
    algorithm: str = "PPO",
    engine: str = "local",
    actor: Any = None,
    env: Any = None,
    algorithm_parameters: Any = None,
    **scheme: Any,
) -> Scheme:
    kind, parameters, actor_class, (storage, sizes), env_id = ALGORITHMS[algorithm]
    env_fn, env_kwargs = env or (make_env, {"id": env_id})
    envs_factory, action_space, obs_space = VecEnv.create_factory(env_fn, env_kwargs, N, backend="sync")
    algo_factory, name = kind.create_factory(**{**parameters, **(algorithm_parameters or {})}, test_every=0)
    actor_factory = actor_class.create_factory(obs_space, action_space, name, **(actor or {}))
    storage_factory = storage.create_factory(**sizes)
    return Scheme(algo_factory, actor_factory, storage_factory, envs_factory, engine=engine, **{"seed": 5, **scheme})


def state_of(scheme: Scheme) -> list[Tensor]:
    """Everything that was learned, and everything that was stored."""
    moments = [
        value
        for optimizer in scheme.algorithm.optimizers
        for item in optimizer.state_dict()["state"].values()
        for value in item.values()
    ]
    stored = [value for value in scheme.storage.get_all_buffer_data().values() if isinstance(value, Tensor)]
    return [*(value.clone() for value in scheme.actor.state_dict().values()), *moments, *stored]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def run(scheme: Scheme, rounds: int) -> list[Tensor]:
    with closing(scheme):
        for _ in range(rounds):
            scheme.step()
        return state_of(scheme)


LAYOUTS: dict[str, dict[str, Any]] = {
    "collectors": {"num_col_workers": 2},
    "learners": {"num_grad_workers": 2},
    "both": {"num_col_workers": 2, "num_grad_workers": 2},
}


@pytest.mark.parametrize(("algorithm", "layout"), [("PPO", "both"), ("DDQN", "both"), ("DDQN", "collectors")])
def test_the_same_seed_twice_is_bitwise_equal(algorithm: str, layout: str) -> None:
    first, second, other = (run(make(algorithm, seed=seed, **LAYOUTS[layout]), 4) for seed in (5, 5, 6))
    assert same(first, second)
    assert not same(first, other)


@pytest.mark.parametrize(("algorithm", "layout"), [("PPO", "collectors"), ("DDQN", "both"), ("DDPG", "learners")])
def test_processes_give_what_one_process_gives(algorithm: str, layout: str, warm: None) -> None:
    options = LAYOUTS[layout] | {"col_compress_data": True, "grad_compress_data": True}
    assert same(run(make(algorithm, "process", **options), 3), run(make(algorithm, **LAYOUTS[layout]), 3))


@pytest.mark.ray
def test_ray_gives_what_one_process_gives(cluster: None) -> None:
    assert same(run(make("PPO", "ray", **LAYOUTS["learners"]), 3), run(make("PPO", **LAYOUTS["learners"]), 3))


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "layout"), [("PPO", "both"), ("DDQN", "collectors"), ("DDPG", "learners")])
def test_lost_actors_change_nothing(algorithm: str, layout: str, cluster: None) -> None:
    scheme = make(algorithm, "ray", **LAYOUTS[layout])
    killed = kill_at_random(scheme, 5, seed=1)
    found = run(scheme, 8)
    assert killed() >= 1
    assert same(found, run(make(algorithm, **LAYOUTS[layout]), 8))


def kill_at_random(scheme: Scheme, kills: int, seed: int) -> Callable[[], int]:
    """Kill a worker that has just been given something, every now and then; what counts the kills."""
    crew = scheme.distributed.crew  # type: ignore[union-attr]
    rng, done, submit = random.Random(seed), [0], crew.pool.submit

    def submit_and_kill(i: int, method: str, *arguments: Any, **options: Any) -> None:
        submit(i, method, *arguments, **options)
        if done[0] < kills and crew.running[i].attempt < 2 and rng.random() < 0.4:
            time.sleep(rng.random() * 0.01)
            pid = crew.pool.pid(i)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                done[0] += 1

    crew.pool.submit = submit_and_kill
    return lambda: done[0]


@pytest.mark.parametrize(("algorithm", "layout"), [("PPO", "both"), ("DDQN", "collectors"), ("DDPG", "learners")])
def test_lost_workers_change_nothing(algorithm: str, layout: str, warm: None) -> None:
    scheme = make(algorithm, "process", **LAYOUTS[layout])
    killed = kill_at_random(scheme, 5, seed=1)
    found = run(scheme, 5)
    # One that is killed after its reply, and is not needed again, is not missed.
    assert 3 <= scheme.distributed.crew.losses <= killed() <= 5  # type: ignore[union-attr]
    assert same(found, run(make(algorithm, **LAYOUTS[layout]), 5))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_two_hundred_lost_workers_change_nothing(seed: int, warm: None) -> None:
    algorithm, layout = [("PPO", "both"), ("DDQN", "both"), ("DDPG", "learners"), ("PPO", "collectors")][seed]
    scheme = make(algorithm, "process", **LAYOUTS[layout])
    killed = kill_at_random(scheme, 50, seed)
    found = run(scheme, 150)
    assert killed() == 50
    assert scheme.distributed.crew.losses >= 40  # type: ignore[union-attr]
    assert same(found, run(make(algorithm, **LAYOUTS[layout]), 150))


def test_others_do_the_work_of_workers_that_are_not_replaced(warm: None) -> None:
    """Slower, with the same data: logical workers are fixed, processes are not."""
    scheme = make("PPO", "process", max_restarts=1, **LAYOUTS["both"])
    crew = scheme.distributed.crew  # type: ignore[union-attr]
    with closing(scheme):
        for round_ in range(4):
            for i in list(crew.alive)[: 2 if round_ == 1 else 0]:
                os.kill(crew.pool.pid(i) or 0, signal.SIGKILL)
            scheme.step()
        assert len(crew.alive) == crew.pool.size - 1
        found = state_of(scheme)
    assert same(found, run(make("PPO", **LAYOUTS["both"]), 4))


def test_the_last_worker_that_is_gone_ends_the_run(warm: None) -> None:
    scheme = make("PPO", "process", max_restarts=0, num_grad_workers=1, col_workers_communication=ASYNC)
    crew = scheme.distributed.crew  # type: ignore[union-attr]
    with closing(scheme):
        scheme.step()
        os.kill(crew.pool.pid(0) or 0, signal.SIGKILL)
        with pytest.raises(WorkerLostError, match="the last worker is gone"):
            _ = [scheme.step() for _ in range(5)]


@pytest.mark.parametrize("engine", ["local", "process"])
def test_an_environment_that_raises_is_told_with_its_own_traceback(engine: str, warm: None) -> None:
    start = time.monotonic()
    env = make_crash, {"at": 3, "how": "raise"}
    with closing(make("PPO", engine, env=env, num_col_workers=2)) as scheme, pytest.raises(EnvError) as caught:
        scheme.step()
    assert "collector" in caught.value.who
    assert "environment 1" in caught.value.who
    assert "the simulator broke" in str(caught.value.__cause__)
    assert "in step" in str(caught.value.__cause__)
    assert time.monotonic() - start < 20


def test_a_unit_that_always_kills_its_worker_is_given_up(warm: None) -> None:
    env = make_crash, {"at": 3, "how": "die"}
    with closing(make("PPO", "process", env=env, num_col_workers=2)) as scheme:
        scheme.distributed.crew._delays = _NoDelay()  # type: ignore[union-attr]
        with pytest.raises(WorkerLostError, match=r"'collect' lost its worker 6 times.*SIGKILL"):
            scheme.step()
        assert scheme.distributed.fleet.fresh_starts >= 3  # type: ignore[union-attr]


class _NoDelay(dict[int, float]):
    """No patience between restarts."""

    def get(self, key: int, default: Any = None) -> Any:
        return 0.0


# What is stored


@pytest.fixture
def scripted(make_scheme: Callable[..., Scheme], scripted_env: Any) -> Iterator[Callable[..., Scheme]]:
    """``scripted(**scheme)``: PPO over scripted environments, with workers in this process."""
    made = []

    def build(size: int = 8, **options: Any) -> Scheme:
        envs_factory, action_space, obs_space = VecEnv.create_factory(scripted_env, {}, N, backend="sync")
        algo_factory, name = PPO.create_factory(num_mini_batch=2, num_epochs=2, test_every=0)
        actor_factory = OnPolicyActor.create_factory(obs_space, action_space, name)
        scheme = Scheme(
            algo_factory,
            actor_factory,
            lambda *parts: RecordingBuffer(size, *parts),  # type: ignore[arg-type]
            envs_factory,
            engine="local",
            **options,
        )
        made.append(scheme)
        return scheme

    yield build
    for scheme in made:
        scheme.close()


@pytest.mark.parametrize("col_steps", [8, 3])
def test_collectors_side_by_side_store_what_happened(
    scripted: Callable[..., Scheme], script: Any, col_steps: int
) -> None:
    """Terminations, truncations and both, over borders of units: row by row what the script says."""
    from tests.scheme.test_collection import expected_row

    scheme = scripted(num_col_workers=3, col_steps=col_steps)
    rounds = [scheme.step() for _ in range(4)]
    samples: Any = scheme.storage.samples  # type: ignore[attr-defined]
    assert len(samples) == 4 * col_steps
    for step, sample in enumerate(samples):
        assert len(sample[REW]) == 3 * N
        for column in range(3 * N):
            expected = expected_row(script, column % N, step)
            for key in (OBS, DONE, REW, OBS2, TERMINAL):
                found = sample[key][column].tolist()
                assert found == (expected[key] if key in (OBS, OBS2) else [expected[key]]), (key, column, step)
    assert [result.env_steps for result in rounds] == [3 * N * col_steps] * 4
    ended = [episode for result in rounds for _, episode in result.episodes]
    assert {episode.env for episode in ended} == set(range(3 * N))
    assert sum(episode.length for episode in ended) <= 3 * N * 4 * col_steps


def test_learners_learn_from_their_own_collectors(scripted: Callable[..., Scheme]) -> None:
    scheme = scripted(num_grad_workers=2)
    scheme.step()
    storages: Any = scheme.distributed.storages  # type: ignore[union-attr]
    assert [len(storage.samples) for storage in storages] == [8, 8]
    assert all(len(sample[REW]) == N for storage in storages for sample in storage.samples)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("A2C", {"num_col_workers": 3, "col_workers_communication": ASYNC}),
        ("A2C", {"num_grad_workers": 3, "grad_workers_communication": ASYNC}),
        ("PPO", {"num_col_workers": 2, "col_workers_communication": ASYNC, "num_grad_workers": 2}),
        ("DDQN", {"num_col_workers": 2, "col_workers_communication": ASYNC, "grad_workers_communication": ASYNC}),
        ("DDQN", {"num_grad_workers": 2, "grad_workers_communication": ASYNC}),
    ],
)
@pytest.mark.parametrize("engine", ["local", "process"])
def test_asynchronous_units_are_each_stored_once_and_in_order(
    algorithm: str, options: dict[str, Any], engine: str, warm: None
) -> None:
    scheme = make(algorithm, engine, **options)
    distributed: Any = scheme.distributed
    committed: list[tuple[int, int]] = []
    commit = distributed.fleet.commit
    distributed.fleet.commit = lambda played: (
        committed.append((played.unit.worker, played.unit.sequence)),
        commit(played),
    )
    if engine == "process":
        kill_at_random(scheme, 3, seed=2)
    rounds = []
    with closing(scheme):
        for _ in range(12):
            rounds.append(scheme.step())
        distributed.settle()
    for worker in range(distributed.fleet.size):
        sequences = [sequence for w, sequence in committed if w == worker]
        assert sequences == list(range(len(sequences)))
    steps = distributed.unit_steps * N
    assert sum(result.env_steps for result in rounds) == steps * len(committed)
    assert distributed.updates == scheme.algorithm.iter > 0
    lags = [result.policy_lag for result in rounds]
    assert max(lags) > 0
    assert min(lags) >= 0


def test_lag_and_asynchrony_are_measured() -> None:
    with closing(make("PPO", num_col_workers=2)) as scheme:
        results = [scheme.step() for _ in range(3)]
        assert [(result.policy_lag, result.gradient_asynchrony) for result in results] == [(0.0, 0.0)] * 3
    options = {"num_col_workers": 1, "num_grad_workers": 3, "grad_workers_communication": ASYNC}
    with closing(make("A2C", **options)) as scheme:
        results = [scheme.step() for _ in range(12)]
        assert max(result.gradient_asynchrony for result in results) >= 1


def test_updates_keep_pace_with_collection() -> None:
    """A replay's ratio of updates to steps is the algorithm's, whatever the size of a unit."""
    for col_steps in (None, 2, 12):
        with closing(make("DDQN", num_col_workers=2, col_steps=col_steps)) as scheme:
            while scheme.distributed.steps < 48:  # type: ignore[union-attr]
                scheme.step()
            assert 18 <= scheme.algorithm.iter <= 24, col_steps


# What travels


def test_average_is_weighted_by_samples_in_order() -> None:
    first, second = [torch.tensor([1.0, 2.0]), None, torch.tensor(4.0)], [torch.tensor([4.0, 5.0]), None, None]
    found = average([first, second], [1, 2])
    assert found[0] is not None
    torch.testing.assert_close(found[0], torch.tensor([3.0, 4.0]))
    assert found[1] is None
    assert found[2] is not None
    assert found[2].item() == 4.0
    assert first[0].tolist() == [1.0, 2.0]  # nobody's gradients are touched


def test_two_learners_take_the_step_of_one(scripted: Callable[..., Scheme]) -> None:
    """The averaged gradient is that of all samples together, within rounding."""
    scheme = scripted(num_grad_workers=2)
    distributed: Any = scheme.distributed
    applied: list[Any] = []
    apply = scheme.algorithm.apply_gradients
    scheme.algorithm.apply_gradients = lambda gradients: applied.append(gradients) or apply(gradients)  # type: ignore[assignment,method-assign,func-returns-value]
    batches: list[Any] = []
    gradients = distributed._gradients

    def recorded(found: Any) -> Any:
        if not batches:
            batches.append([batch for _, batch in found])
            weights = {name: value.clone() for name, value in scheme.actor.state_dict().items()}
            batches.append(weights)
        return gradients(found)

    distributed._gradients = recorded
    scheme.step()
    pair, weights = batches
    both = {key: torch.cat([batch[key] for batch in pair]) for key in pair[0] if isinstance(pair[0][key], Tensor)}
    scheme.actor.load_state_dict(weights)
    expected, _ = scheme.algorithm.compute_gradients(pair[0] | both)
    for one, other in zip(applied[0], expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("layout", ["collectors", "learners"])
def test_weights_are_sent_once_per_version(layout: str) -> None:
    scheme = make("PPO", **LAYOUTS[layout])
    pool: Any = scheme.distributed.crew.pool  # type: ignore[union-attr]
    put, sent = pool.put, []
    pool.put = lambda value: sent.append(value["version"]) or put(value)  # type: ignore[func-returns-value]
    with closing(scheme):
        for _ in range(3):
            scheme.step()
    assert len(sent) == len(set(sent))
    assert len(sent) == (3 if layout == "collectors" else 3 + 3 * 4)  # acting, and each of four updates


def test_parameters_reach_every_worker() -> None:
    """A learning rate of 0 at the driver, a clip of nearly 0 at the workers: both count from the next round on."""
    scheme = make("DDQN", num_col_workers=2, num_grad_workers=2)
    pool: Any = scheme.distributed.crew.pool  # type: ignore[union-attr]
    with closing(scheme):
        scheme.step()
        scheme.update_algorithm_parameter("gamma", 0.5)
        scheme.update_algorithm_parameter("initial_epsilon", 0.25)
        for _ in range(3):
            scheme.step()
        workers = [host._worker.agent()[1] for host in pool._hosts.values()]
        assert len(workers) == 6
        assert all(algorithm.gamma == 0.5 for algorithm in workers)
        assert all(algorithm.epsilon <= 0.25 for algorithm in workers)


def test_collectors_explore_with_an_epsilon_each() -> None:
    scheme = make("DDQN", num_col_workers=3, epsilon_ladder=True)
    with closing(scheme):
        scheme.step()
        pool: Any = scheme.distributed.crew.pool  # type: ignore[union-attr]
        found = [pool._hosts[i]._worker.agent()[1].epsilon for i in range(3)]
    assert found == pytest.approx([0.4, 0.4**4.5, 0.4**8])


def test_normalizers_learn_from_what_all_collectors_saw() -> None:
    scheme = make("PPO", actor={"normalize_observations": True}, num_col_workers=2)
    with closing(scheme):
        scheme.step()
        obs = scheme.storage.get_all_buffer_data()[OBS][:-1].flatten(0, 1)  # type: ignore[index]
        moments = next(iter(scheme.actor.normalizer.children()), scheme.actor.normalizer)  # type: ignore[union-attr]
        torch.testing.assert_close(moments.mean.float(), obs.mean(0), rtol=1e-3, atol=1e-3)  # type: ignore[union-attr,operator]


# Stopping and going on


@pytest.mark.parametrize(("algorithm", "layout"), [("PPO", "both"), ("DDQN", "collectors"), ("DDPG", "learners")])
def test_two_halves_are_a_whole(algorithm: str, layout: str) -> None:
    whole = run(make(algorithm, **LAYOUTS[layout]), 6)
    with closing(make(algorithm, **LAYOUTS[layout])) as first:
        for _ in range(3):
            first.step()
        state, weights = first.get_state(), first.actor.state_dict()
        with closing(make(algorithm, **LAYOUTS[layout])) as second:
            second.actor.load_state_dict(weights)
            second.set_state(state)
            for _ in range(3):
                second.step()
            assert same(state_of(second), whole)


def test_an_asynchronous_scheme_goes_on_where_it_was(warm: None) -> None:
    options = {"num_col_workers": 2, "col_workers_communication": ASYNC, "grad_workers_communication": ASYNC}
    with closing(make("DDQN", "process", **options)) as first:
        for _ in range(6):
            first.step()
        state, weights = first.get_state(), first.actor.state_dict()
        sequences = state["distributed"]["fleet"]["sequences"]
        assert sum(sequences) * 4 == state["distributed"]["steps"] == first.storage.size  # nothing counted twice
        with closing(make("DDQN", "process", **options)) as second:
            second.actor.load_state_dict(weights)
            second.set_state(state)
            second.step()
            after = second.distributed.fleet.sequences  # type: ignore[union-attr]
            assert sum(after) > sum(sequences)
            assert second.storage.size > first.storage.size
        first.step()  # and the one that was saved goes on too


def test_one_synchronous_worker_is_the_single_process() -> None:
    scheme = make("PPO", num_col_workers=1, col_workers_communication=SYNC, num_grad_workers=1)
    with closing(scheme):
        assert scheme.distributed is None
