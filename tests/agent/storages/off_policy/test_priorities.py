"""Which transitions are drawn: priorities, weights, and emphasis on what is recent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from tests.agent.storages.off_policy.world import World

from pytorchrl import state_tree, tree
from pytorchrl.agent.storages.off_policy.ere_buffer import EREBuffer
from pytorchrl.agent.storages.off_policy.per_buffer import PERBuffer
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.agent.storages.sampling import Prioritized, linear_to_one, newest
from pytorchrl.errors import ConfigError, NonFiniteError
from pytorchrl.keys import INDICES, N_STEP, PER_WEIGHTS

CONTRACT = {"epsilon": 0.01, "alpha": 0.6, "beta": 0.4}
ERRORS = (0.1, 1.0, 2.0, 0.5)
P = (0.076874, 0.29076, 0.439399, 0.192967)
W = (1.0, 0.58735, 0.497929, 0.692018)


def learn(storage: Any, ids: Any, errors: Any) -> Any:
    """What an update with these errors tells the storage."""
    batch = {INDICES: torch.as_tensor(ids)}
    return storage.after_gradients(batch, {"errors": torch.as_tensor(errors, dtype=torch.float32).reshape(-1, 1)})


def drawn(storage: Any, batches: int, size: int) -> Any:
    return torch.cat([batch[INDICES] for batch in storage.generate_batches(batches, size)]).numpy()


def of_the_contract(**kwargs: Any) -> Any:
    storage = World(num_envs=2).fill(World(num_envs=2).build(PERBuffer, 2, **CONTRACT, **kwargs), 2)
    learn(storage, [0, 1, 2, 3], ERRORS)
    return storage


def test_the_contracts_probabilities_and_weights() -> None:
    storage = of_the_contract()
    counts = np.bincount(drawn(storage, 100, 1000), minlength=4)
    assert chisquare(counts, np.asarray(P) / sum(P) * 100_000).pvalue > 1e-4
    assert np.abs(counts / 100_000 - P).sum() < 0.01
    batch = next(iter(storage.generate_batches(1, 64)))
    assert batch[PER_WEIGHTS].shape == (64, 1)
    assert batch[PER_WEIGHTS].dtype == torch.float32
    for i, w in zip(batch[INDICES].tolist(), batch[PER_WEIGHTS].flatten().tolist(), strict=True):
        assert w == pytest.approx(W[i], abs=1e-6)


def test_weights_are_over_the_largest_of_the_buffer_not_of_the_batch() -> None:
    storage = of_the_contract()
    for batch in storage.generate_batches(200, 2):
        for i, w in zip(batch[INDICES].tolist(), batch[PER_WEIGHTS].flatten().tolist(), strict=True):
            assert w == pytest.approx(W[i], abs=1e-6)


def test_alpha_0_is_uniform_with_weights_of_1() -> None:
    world = World(num_envs=2)
    storage = world.fill(world.build(PERBuffer, 30), 70)
    learn(storage, drawn(storage, 1, 40), np.linspace(0, 9, 40))
    batches = list(storage.generate_batches(30, 1000))
    assert all((batch[PER_WEIGHTS] == 1).all() for batch in batches)
    counts = np.bincount(torch.cat([b[INDICES] for b in batches]).numpy() - storage.ring.oldest)
    assert len(counts) == 60
    assert chisquare(counts).pvalue > 1e-4


def priorities_of(storage: Any) -> list[float]:
    """(|δ| + ε)^α of everything that is stored, in time order."""
    p = storage.priorities
    return list(p._tree.get(np.arange(p.oldest, p.end) % p.slots))


def test_new_transitions_get_the_largest_error_so_far() -> None:
    world = World(num_envs=1)
    storage = world.fill(world.build(PERBuffer, 8, alpha=1.0, default_error=3.0), 3)
    assert priorities_of(storage) == [3, 3, 3]
    learn(storage, [0, 1], [0.5, 0.25])
    world.fill(storage, 1)
    assert priorities_of(storage) == [0.5, 0.25, 3, 0.5]  # the default counts until an error is known
    learn(storage, [2], [-2.0])
    learn(storage, [2], [1.0])
    world.fill(storage, 1)
    assert priorities_of(storage) == [0.5, 0.25, 1, 0.5, 2]  # the largest was seen, though it is gone
    assert priorities_of(World().fill(World().build(PERBuffer, 8, alpha=1.0), 1)) == [1, 1]


def test_what_is_written_over_loses_its_priority() -> None:
    world = World(num_envs=2)
    storage = world.fill(world.build(PERBuffer, 3, alpha=1.0), 3)
    learn(storage, range(6), [9, 9, 1, 1, 1, 1])
    learn(storage, [0, 1], [0.5, 0.5])
    batch = {INDICES: torch.tensor([0, 5])}
    world.fill(storage, 1)
    assert priorities_of(storage) == [1, 1, 1, 1, 9, 9]
    storage.after_gradients(batch, {"errors": torch.tensor([[100.0], [4.0]])})  # 0 is no longer there
    assert priorities_of(storage) == [1, 1, 1, 4, 9, 9]
    assert storage.priorities._tree.total == 25
    world.fill(storage, 40)
    assert priorities_of(storage) == [9] * 6
    assert storage.priorities._tree.total == 54


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=20), st.integers(1, 5), st.integers(0, 9))
def test_priorities_follow_the_ring(rounds: list[tuple[int, int]], size: int, seed: int) -> None:
    """Against a dict from number to priority; and the smallest one, which is looked up lazily, is the smallest."""
    priorities, oldest, end = Prioritized(size + 1, 0.25, 1.0, None), 0, 0
    random, model, largest, seen = np.random.default_rng(seed), {}, 1.0, False
    for inserted, learned in rounds:
        end += inserted
        new_oldest = max(oldest, end - size)
        model = {i: p for i, p in model.items() if i >= new_oldest}
        model |= dict.fromkeys(range(max(end - inserted, new_oldest), end), largest + 0.25)
        oldest = new_oldest
        priorities.follow(oldest, end)
        if end > oldest:
            ids = random.integers(oldest, end, learned)
            errors = (random.integers(0, 8, learned) / 4).astype(np.float32)
            priorities.update(ids, errors)
            model |= {int(i): float(e) + 0.25 for i, e in zip(ids, errors, strict=True)}
            largest = max(largest, float(errors.max())) if seen else float(errors.max())
            seen = True
            weights = priorities.weights(np.arange(oldest, end), 1.0)
            expected = [min(model.values()) / model[i] for i in range(oldest, end)]
            np.testing.assert_allclose(weights, expected, rtol=1e-12)
        assert priorities._tree.total == pytest.approx(sum(model.values()))


def test_errors_that_are_not_finite_change_nothing() -> None:
    storage = of_the_contract()
    before = priorities_of(storage)
    with pytest.raises(NonFiniteError, match="1 of 2 errors are not finite"):
        learn(storage, [0, 1], [1.0, float("nan")])
    assert priorities_of(storage) == before
    assert storage.updates == 1


def test_errors_of_0_are_still_drawn_from() -> None:
    """ε = 0 and nothing but zeros: there is nothing to prefer."""
    world = World(num_envs=1)
    storage = world.fill(world.build(PERBuffer, 4, alpha=1.0), 4)
    learn(storage, range(4), [0.0] * 4)
    batch = next(iter(storage.generate_batches(1, 50)))
    assert set(batch[INDICES].tolist()) == {0, 1, 2, 3}
    assert (batch[PER_WEIGHTS] == 1).all()
    learn(storage, [2], [5.0])
    batch = next(iter(storage.generate_batches(1, 50)))
    assert set(batch[INDICES].tolist()) == {2}
    assert torch.isfinite(batch[PER_WEIGHTS]).all()


def test_parameters_take_effect_at_once() -> None:
    storage = of_the_contract()
    storage.update_storage_parameter("alpha", 1.0)
    assert priorities_of(storage) == pytest.approx([0.11, 1.01, 2.01, 0.51])
    storage.update_storage_parameter("epsilon", 1.0)
    assert priorities_of(storage) == pytest.approx([1.1, 2, 3, 1.5])
    storage.update_storage_parameter("beta", 0.0)
    assert (next(iter(storage.generate_batches(1, 8)))[PER_WEIGHTS] == 1).all()
    storage.update_storage_parameter("size", 1)
    assert priorities_of(storage) == pytest.approx([3, 1.5])
    storage.update_storage_parameter("size", 5)
    World(num_envs=2).fill(storage, 2)
    assert priorities_of(storage) == pytest.approx([3, 1.5, 3, 3, 3, 3])
    with pytest.raises(ConfigError, match="'default_error'"):
        storage.update_storage_parameter("default_errors", 1.0)
    with pytest.raises(ConfigError, match="at least 0"):
        storage.update_storage_parameter("alpha", -1.0)


def test_beta_rises_to_1() -> None:
    storage = of_the_contract(beta_updates=3)
    seen = []
    for _ in range(4):
        batch = next(iter(storage.generate_batches(1, 64)))
        i = batch[INDICES].tolist().index(2)
        seen.append(batch[PER_WEIGHTS][i].item())
        learn(storage, [0, 1, 2, 3], ERRORS)
    betas = [0.6, 0.8, 1.0, 1.0]
    assert seen == pytest.approx([(P[2] / P[0]) ** -beta for beta in betas], rel=1e-4)


def test_schedules() -> None:
    assert [linear_to_one(0.4, n, 4) for n in (0, 1, 4, 9)] == pytest.approx([0.4, 0.55, 1, 1])
    assert linear_to_one(0.4, 7, 0) == 0.4


def test_windows_of_the_contract() -> None:
    assert [newest(100_000, k, 5, 0.996, 5000) for k in range(1, 6)] == [44860, 20124, 9028, 5000, 5000]
    assert newest(3000, 5, 5, 0.996, 5000) == 3000
    assert newest(100_000, 5, 5, 1.0, 5000) == 100_000


@pytest.mark.parametrize("steps", [23, 25, 27])
@pytest.mark.parametrize("prioritized", [False, True])
def test_recent_is_what_was_written_last_over_all_environments(prioritized: bool, steps: int) -> None:
    """Into a ring of 10: the newest steps lie in the middle of it, or on both of its ends."""
    world = World(num_envs=3)
    kwargs: Any = {"eta": 0.998, "cmin": 4}
    if prioritized:
        storage = world.fill(world.build(PERBuffer, 10, alpha=0.7, epsilon=0.1, **kwargs), steps)
        learn(storage, np.arange(3 * steps - 30, 3 * steps), np.linspace(0, 3, 30))
        p = np.asarray(priorities_of(storage))
    else:
        storage, p = world.fill(world.build(EREBuffer, 10, **kwargs), steps), np.ones(30)
    K = 4
    for k, batch in enumerate(storage.generate_batches(K, 20_000), 1):
        c = max(int(30 * 0.998 ** (1000 * k / K)), 4)
        age = 3 * steps - batch[INDICES].numpy()
        counts = np.bincount(age, minlength=31)
        assert counts[c + 1 :].sum() == 0
        assert counts[0] == 0
        expected = p[::-1][:c] / p[::-1][:c].sum() * 20_000
        seen = expected > 0
        assert chisquare(counts[1 : c + 1][seen], expected[seen]).pvalue > 1e-4


@pytest.mark.parametrize("steps", range(1, 30))
def test_a_prioritized_window_never_reaches_back_too_far(steps: int) -> None:
    """Wherever the head of the ring stands."""
    world = World(num_envs=2)
    storage = world.fill(world.build(PERBuffer, 7, alpha=1.0, eta=0.5, cmin=3), steps)
    ids = drawn(storage, 1, 300)
    assert ids.max() < 2 * steps
    assert ids.min() >= max(2 * steps - 3, 0)


def test_eta_rises_to_1() -> None:
    world = World(num_envs=1)
    storage = world.fill(world.build(EREBuffer, 100, eta=0.9, cmin=1, eta_updates=10), 100)
    widths = []
    for _ in range(11):
        widths.append(storage._window(1, 10))
        learn(storage, [0], [0.0])
    assert widths[0] == max(int(100 * 0.9**100), 1)
    assert widths == sorted(widths)
    assert widths[-1] == 100


def test_parts_go_together() -> None:
    world = World(num_envs=2, ends=0.1)
    storage = world.fill(world.build(PERBuffer, 40, n_step=3, eta=0.996, cmin=10, **CONTRACT), 90)
    for batch in storage.generate_batches(5, 16):
        assert set(batch[N_STEP].flatten().tolist()) <= {1.0, 2.0, 3.0}
        assert batch[PER_WEIGHTS].shape == batch[N_STEP].shape == (16, 1)
        info = learn(storage, batch[INDICES], np.ones(16))
        assert "errors" in info


def test_without_preferences_per_is_plain_replay() -> None:
    world = World()
    storage = world.fill(world.build(PERBuffer, 30), 50)
    plain = World().build(ReplayBuffer, 30)
    plain.insert_data_slice(storage.get_all_buffer_data())
    assert storage.get_all_buffer_data().keys() == plain.get_all_buffer_data().keys()


@pytest.mark.parametrize("size", [10, 64])
def test_draws_go_on_bitwise_after_a_resume(size: int) -> None:
    world = World(num_envs=2)
    kwargs: Any = {**CONTRACT, "n_step": 2, "eta": 0.99, "cmin": 5, "beta_updates": 50}
    storage = world.fill(world.build(PERBuffer, size, **kwargs), 26)
    random = np.random.default_rng(0)

    def learn_a_round(each: Any, errors: Any) -> list[Any]:
        batches = []
        for batch, error in zip(each.generate_batches(len(errors), 8), errors, strict=True):
            learn(each, batch[INDICES], error)
            batches.append(batch)
        return batches

    learn_a_round(storage, random.random((3, 8)))
    world.fill(storage, 2)  # not drawn from yet
    other = World(num_envs=2, seed=9).build(PERBuffer, 3, **kwargs)
    other.set_state(state_tree.decode(*state_tree.encode(storage.get_state())))
    for _ in range(10):
        sample, errors = world.sample(), random.random((2, 8))
        storage.insert_transition(sample)
        other.insert_transition(sample)
        for a, b in zip(learn_a_round(storage, errors), learn_a_round(other, errors), strict=True):
            assert all(torch.equal(tree.first_leaf(a[key]), tree.first_leaf(b[key])) for key in a)


def test_the_factories_have_the_contracts_tables() -> None:
    per = {name: p.default for name, p in PERBuffer.hyperparameters().items() if name != "size"}
    assert list(per.items())[:4] == [("epsilon", 0.0), ("alpha", 0.0), ("beta", 1.0), ("default_error", None)]
    ere = {name: p.default for name, p in EREBuffer.hyperparameters().items() if name != "size"}
    assert list(ere.items())[:3] == [("eta", 1.0), ("cmin", 5000), ("eta_updates", 0)]
    storage = PERBuffer.create_factory(size=7, alpha=0.5)("cpu", None, None, None)
    assert (storage.max_size, storage.alpha) == (7, 0.5)
