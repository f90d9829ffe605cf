"""The ring against a plain list: whatever is inserted, appended, dropped, saved or resized comes back as it was."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.agent.storages.off_policy.world import GAMMA, World, window

from pytorchrl import state_tree, tree
from pytorchrl.agent.storages.off_policy.nstep_buffer import NStepBuffer
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.agent.storages.ring import Ring
from pytorchrl.errors import ConfigError, RLError
from pytorchrl.keys import ACT, DONE, DONE2, INDICES, N_STEP, OBS, OBS2, REW, RHS, RHS2, TERMINAL
from pytorchrl.shards import Shard

KINDS = [("vector", 1), ("dict", 1), ("image", 1), ("image", 3)]


class Shards:
    """Shards by name, in memory. One that was put before must not have changed, as far as it is still there."""

    def __init__(self) -> None:
        self.known: dict[str, list[torch.Tensor]] = {}

    def put(self, shard: Shard) -> str:
        start, *leaves = shard.make()
        if shard.name is not None:
            saved_start, *saved = self.known[shard.name]
            kept = len(leaves[0])
            assert start + kept == saved_start + len(saved[0])
            assert all(torch.equal(old[len(old) - kept :], new) for old, new in zip(saved, leaves, strict=True))
            return shard.name
        shard.name = str(len(self.known))
        self.known[shard.name] = [start, *leaves]
        return shard.name

    def save(self, storage: Any) -> Any:
        encoded = state_tree.encode(storage.get_checkpoint(), self.put)
        return state_tree.decode(*encoded, lambda name: Shard(lambda: self.known[name], name))


class AgainstAList(RuleBasedStateMachine):
    @initialize(
        kind=st.sampled_from(KINDS),
        num_envs=st.integers(1, 3),
        size=st.integers(1, 9),
        n_step=st.integers(1, 4),
        seed=st.integers(0, 99),
        shard_rows=st.sampled_from([1, 2, 4]),
    )
    def build(self, kind: tuple[str, int], num_envs: int, size: int, n_step: int, seed: int, shard_rows: int) -> None:
        self.world = World(kind[0], num_envs, seed, kind[1])
        self.storage = self.world.build(NStepBuffer, size, n_step=n_step)
        self.kept = 0  # steps of the history that must still be there
        self.shards = Shards()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(Ring, "shard_rows", shard_rows)

    def teardown(self) -> None:
        self.patch.undo()

    def _inserted(self, steps: int) -> None:
        self.kept = min(self.kept + steps, self.storage.max_size)

    @rule(steps=st.integers(1, 6))
    def insert(self, steps: int) -> None:
        self.world.fill(self.storage, steps)
        self._inserted(steps)

    @rule(steps=st.integers(1, 6))
    def append_a_slice(self, steps: int) -> None:
        other = self.world.fill(self.world.build(NStepBuffer, 20), steps)
        self.storage.insert_data_slice(other.get_all_buffer_data(data_to_cpu=True))
        self._inserted(steps)

    @rule(end=st.booleans())
    def begin_anew(self, end: bool) -> None:
        self.world.restart() if end else self.world.jump()

    @rule(size=st.integers(1, 9))
    def resize(self, size: int) -> None:
        self.storage.update_storage_parameter("size", size)
        self.kept = min(self.kept, size)

    @rule(n_step=st.integers(1, 4))
    def another_horizon(self, n_step: int) -> None:
        self.storage.update_storage_parameter("n_step", n_step)

    @rule()
    def save(self) -> None:
        self.shards.save(self.storage)

    @rule(in_shards=st.booleans())
    def save_and_load(self, in_shards: bool) -> None:
        if in_shards:
            state = self.shards.save(self.storage)
        else:
            state = state_tree.decode(*state_tree.encode(self.storage.get_state()))
        self.storage = self.world.build(NStepBuffer, 1, n_step=self.storage.n_step)
        self.storage.set_state(state)

    @rule()
    def forget(self) -> None:
        self.storage.reset()
        self.world.history.clear()
        self.world.begins = [True] * self.world.num_envs
        self.kept = 0

    @precondition(lambda self: self.kept)
    @rule()
    def windows(self) -> None:
        """Every transition that is there, as a batch has it."""
        batch = self.storage._assembled(self.storage.ring.numbers())
        history = self.world.history[-self.kept :]
        expected = []
        for t in range(self.kept):
            for env in range(self.world.num_envs):
                m, total, last = window(history, t, env, self.storage.n_step)
                now = history[t][env]
                expected.append((now.obs, now.done, now.action, m, last.obs2, last.done2, last.terminal))
                assert batch[REW][len(expected) - 1].item() == pytest.approx(total, rel=1e-5, abs=1e-5)
        batch[REW] = batch[N_STEP]
        assert self.world.rows_of(batch) == expected

    @invariant()
    def equals_the_list(self) -> None:
        storage, world = self.storage, self.world
        assert storage.size == self.kept
        data = storage.get_all_buffer_data()
        if not self.kept:
            assert data == {}
            return
        assert all(len(tree.first_leaf(data[key])) == self.kept for key in data if key not in (RHS, RHS2))
        flat = {key: tree.flatten_time(value, len(tree.first_leaf(value))) for key, value in data.items()}
        expected = [(s.obs, s.done, s.action, s.reward, s.obs2, s.done2, s.terminal) for s in chain(*world.history)]
        assert world.rows_of(flat) == expected[-self.kept * world.num_envs :]


TestAgainstAList = AgainstAList.TestCase
TestAgainstAList.settings = settings(
    max_examples=150, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize(("kind", "stack"), KINDS)
def test_batches_are_transitions_that_happened(kind: str, stack: int) -> None:
    world = World(kind, 3, stack=stack)
    storage = world.fill(world.build(ReplayBuffer, 20), 57)
    happened = {(s.obs, s.done, s.action, s.reward, s.obs2, s.done2, s.terminal) for s in chain(*world.history[-20:])}
    batches = list(storage.generate_batches(5, 32))
    assert len(batches) == 5
    for batch in batches:
        assert set(world.rows_of(batch)) <= happened
        assert set(batch) == {*storage.storage_tensors, TERMINAL, N_STEP, INDICES}
        assert batch[REW].shape == batch[DONE].shape == batch[N_STEP].shape == (32, 1)
        assert batch[ACT].dtype == torch.int64
        assert tree.first_leaf(batch[RHS]).shape == tree.first_leaf(batch[RHS2]).shape == (1, 1)
        original = world.sample()[OBS]
        assert [leaf.dtype for leaf in tree.leaves(batch[OBS])] == [leaf.dtype for leaf in tree.leaves(original)]


def test_a_batch_is_a_copy() -> None:
    world = World()
    storage = world.fill(world.build(ReplayBuffer, 5), 5)
    before = storage.get_all_buffer_data()
    for batch in storage.generate_batches(3, 8):
        for value in batch.values():
            for leaf in tree.leaves(value):
                if leaf.dtype.is_floating_point:
                    leaf.fill_(1e9)
    after = storage.get_all_buffer_data()
    assert all(torch.equal(tree.first_leaf(before[key]), tree.first_leaf(after[key])) for key in before)


def test_a_sample_is_never_changed() -> None:
    world = World("image", 2, stack=3)
    storage = world.build(ReplayBuffer, 4)
    for _ in range(9):
        sample = world.sample()
        kept = {key: tree.copy(value, "cpu") for key, value in sample.items() if key != "unknown"}
        storage.insert_transition(sample)
        assert all(torch.equal(tree.first_leaf(kept[key]), tree.first_leaf(sample[key])) for key in kept)


def test_observations_that_follow_nothing_are_stored_as_they_are() -> None:
    """Hand-written loops may insert anything."""
    random = torch.Generator().manual_seed(0)
    storage = World().build(ReplayBuffer, 6)
    samples = []
    for _ in range(9):
        sample = World().sample(ended=[False, False])
        sample[OBS], sample[OBS2] = torch.rand(2, 2, generator=random), torch.rand(2, 2, generator=random)
        sample[DONE] = torch.zeros(2, 1)
        samples.append(sample)
        storage.insert_transition(sample)
    data = storage.get_all_buffer_data()
    assert torch.equal(data[OBS], torch.stack([sample[OBS] for sample in samples[-6:]]))
    assert torch.equal(data[OBS2], torch.stack([sample[OBS2] for sample in samples[-6:]]))
    assert not data[DONE2].any()


def test_windows_end_where_next_done_says_so() -> None:
    """Even if the caller goes on as if nothing had happened."""
    storage, sample = World().build(NStepBuffer, 6, n_step=3), World().sample(ended=[False, False])
    sample[DONE], sample[OBS2] = torch.zeros(2, 1), sample[OBS]
    for t in range(4):
        storage.insert_transition({**sample, DONE2: torch.tensor([[float(t == 1)], [0.0]])})
    batch = storage._assembled(storage.ring.numbers())
    assert batch[N_STEP].view(4, 2).T.tolist() == [[2, 1, 2, 1], [3, 3, 2, 1]]


def test_what_is_kept_aside_goes_with_its_steps() -> None:
    world = World("image", 3, stack=2, ends=0.5)
    storage = world.build(ReplayBuffer, 10)
    for _ in range(60):
        world.fill(storage, 3)
        world.jump()
    assert len(storage.ring.successors.ids) <= 2 * (10 * 3 + 3)
    assert len(storage.ring.older_frames.ids) <= 2 * (10 * 3 + 3)


def test_without_next_terminal_an_end_is_the_mdps() -> None:
    storage, sample = World().build(ReplayBuffer, 6), World().sample(ended=[True, False])
    del sample[TERMINAL]
    storage.insert_transition(sample)
    assert storage.get_all_buffer_data()[TERMINAL].flatten().tolist() == [1.0, 0.0]


def test_frames_are_stored_once() -> None:
    """Of a full stack of 4 and its successor, one frame is stored per step: an eighth."""
    N, steps = 2, 50
    storage = World("image", N, stack=4).build(ReplayBuffer, steps)
    frames = torch.randint(0, 255, (steps + 4, N, 1, 84, 84), dtype=torch.uint8)
    for t in range(steps):
        sample = World(num_envs=N).sample(ended=[False] * N)
        sample[OBS], sample[OBS2] = (frames[t + i : t + i + 4].transpose(0, 1).flatten(1, 2) for i in (0, 1))
        sample[DONE] = torch.full((N, 1), float(t == 0))
        storage.insert_transition(sample)
    stored = sum(leaf.nbytes for value in storage.data.values() for leaf in tree.leaves(value))
    assert stored < 1.15 * steps * N * 84 * 84
    data = storage.get_all_buffer_data()
    assert torch.equal(data[OBS][7], frames[7:11].transpose(0, 1).flatten(1, 2))
    assert torch.equal(data[OBS2][-1], frames[-4:].transpose(0, 1).flatten(1, 2))
    state = storage.get_state()
    assert state["ring"]["columns"][OBS].nbytes < 1.15 * steps * N * 84 * 84


def test_stacks_that_are_none_are_stored_whole() -> None:
    storage = World("image", 2, stack=4).build(ReplayBuffer, 6)
    sample = World().sample(ended=[False, False])
    sample[OBS], sample[OBS2] = torch.rand(2, 4, 5), torch.rand(2, 4, 5)
    storage.insert_transition(sample)
    assert torch.equal(storage.get_all_buffer_data()[OBS2][0], sample[OBS2])


def atari(num_envs: int, stack: int | None = 4) -> Any:
    return SimpleNamespace(
        num_envs=num_envs,
        env_kwargs={"frame_stack": stack} if stack else {},
        observation_space=Box(0, 255, (4, 84, 84), np.uint8),
        action_space=Discrete(6),
    )


def test_a_million_atari_frames_need_seven_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = SimpleNamespace(is_recurrent=False)
    storage = ReplayBuffer(125_000, "cpu", actor, None, atari(8))
    assert storage.data == {}
    assert 7.0e9 < storage.memory_needed() < 7.2e9
    monkeypatch.setattr("pytorchrl.memory.available_bytes", lambda: 5 * 2**30)
    with pytest.raises(ConfigError, match=r"ReplayBuffer of size 125000 needs 6\.6\d* GiB of memory.* has 5 GiB"):
        ReplayBuffer(125_000, "cpu", actor, None, atari(8))
    with pytest.raises(ConfigError, match="GiB"):
        ReplayBuffer(10, "cpu", actor, None, atari(8)).update_storage_parameter("size", 125_000)


def test_what_is_too_large_is_refused_at_the_first_insert_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytorchrl.memory.available_bytes", lambda: 10_000)
    storage = World().build(ReplayBuffer, 1000)
    with pytest.raises(ConfigError, match="KiB of memory"):
        storage.insert_transition(World().sample())


def test_a_mapped_replay_holds_the_same(tmp_path: Any) -> None:
    worlds = [World("image", 2, stack=3), World("image", 2, stack=3)]
    plain = worlds[0].fill(worlds[0].build(ReplayBuffer, 10), 33)
    mapped = worlds[1].fill(worlds[1].build(ReplayBuffer, 10, memmap=str(tmp_path)), 33)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) >= sum(leaf.nbytes for leaf in tree.leaves(plain.data[OBS]))
    first, second = plain.get_all_buffer_data(), mapped.get_all_buffer_data()
    assert all(torch.equal(tree.first_leaf(first[key]), tree.first_leaf(second[key])) for key in first)
    del mapped
    assert not list(tmp_path.iterdir())


def test_a_mapped_replay_that_the_disk_cannot_hold_is_refused(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="of disk space"):
        ReplayBuffer(10**13, "cpu", SimpleNamespace(is_recurrent=False), None, atari(8), memmap=str(tmp_path))


def test_draws_are_uniform_and_with_replacement() -> None:
    from scipy.stats import chisquare

    world = World(num_envs=3)
    storage = world.fill(world.build(ReplayBuffer, 40), 97)
    oldest = storage.ring.oldest
    draws = torch.cat([batch[INDICES] for batch in storage.generate_batches(100, 1200)])
    counts = np.bincount(draws.numpy() - oldest, minlength=120)
    assert len(counts) == 120
    assert chisquare(counts).pvalue > 1e-4


def test_n_step_numbers() -> None:
    """The table of the contract: t = 2 truncated, t = 4 terminal, the last row cut by the end of the data."""
    storage = World(num_envs=1).build(NStepBuffer, 6, n_step=3)
    rewards, done, terminal = (1, 0, -1, 2, 0.5, 1), (0, 0, 1, 0, 1, 0), (0, 0, 0, 0, 1, 0)
    world = World(num_envs=1)
    for t in range(6):
        sample = world.sample(ended=[done[t]], terminal=[terminal[t]])
        sample[REW] = torch.tensor([[float(rewards[t])]])
        storage.insert_transition(sample)
    for n, m, sums in (
        (2, [2, 2, 1, 2, 1, 1], [1, -0.9, -1, 2.45, 0.5, 1]),
        (3, [3, 2, 1, 2, 1, 1], [0.19, -0.9, -1, 2.45, 0.5, 1]),
    ):
        storage.update_storage_parameter("n_step", n)
        batch = storage._assembled(storage.ring.numbers())
        assert batch[N_STEP].flatten().tolist() == m
        assert batch[REW].flatten().tolist() == pytest.approx(sums, rel=1e-6)


def test_one_step_is_plain_replay() -> None:
    worlds = [World(), World()]
    plain = worlds[0].fill(worlds[0].build(ReplayBuffer, 20), 50)
    n_step = worlds[1].fill(worlds[1].build(NStepBuffer, 20, n_step=1), 50)
    for a, b in zip(plain.generate_batches(4, 16), n_step.generate_batches(4, 16), strict=True):
        assert a.keys() == b.keys()
        assert all(torch.equal(tree.first_leaf(a[key]), tree.first_leaf(b[key])) for key in a)


def test_gamma_is_read_when_a_window_is_drawn() -> None:
    world = World(num_envs=1)
    storage = world.build(NStepBuffer, 5, n_step=2)
    for _ in range(2):
        sample = world.sample(ended=[False])
        sample[REW] = torch.ones(1, 1)
        storage.insert_transition(sample)
    assert storage._assembled(torch.tensor([0]))[REW].item() == pytest.approx(1 + GAMMA)
    storage.algorithm.gamma = 0.5
    assert storage._assembled(torch.tensor([0]))[REW].item() == pytest.approx(1.5)


@pytest.mark.parametrize(("kind", "stack"), KINDS)
def test_draws_go_on_bitwise_after_a_resume(kind: str, stack: int) -> None:
    world = World(kind, 2, stack=stack)
    storage = world.fill(world.build(NStepBuffer, 10, n_step=3), 26)
    list(storage.generate_batches(3, 5))
    other = World(kind, 2, seed=5, stack=stack).build(NStepBuffer, 3, n_step=3)
    other.set_state(state_tree.decode(*state_tree.encode(storage.get_state())))
    for _ in range(15):
        sample = world.sample()
        storage.insert_transition(sample)
        other.insert_transition(sample)
        for a, b in zip(storage.generate_batches(2, 7), other.generate_batches(2, 7), strict=True):
            for key in a:
                for x, y in zip(tree.leaves(a[key]), tree.leaves(b[key]), strict=True):
                    assert torch.equal(x, y)


def test_an_empty_storage_and_empty_states() -> None:
    storage = World().build(ReplayBuffer, 5)
    assert storage.get_all_buffer_data() == {}
    storage.insert_data_slice({})
    with pytest.raises(RLError, match="no transitions"):
        next(storage.generate_batches(1, 1))
    with pytest.raises(ConfigError, match="mini_batch_size"):
        next(storage.generate_batches(1, None))
    state = state_tree.decode(*state_tree.encode(storage.get_state()))
    World().build(ReplayBuffer, 5).set_state(state)


def test_slices_of_unequal_lengths_are_refused() -> None:
    world = World()
    data = world.fill(world.build(ReplayBuffer, 5), 4).get_all_buffer_data()
    data[REW] = data[REW][:-1]
    with pytest.raises(ConfigError, match="differ in length"):
        world.build(ReplayBuffer, 5).insert_data_slice(data)


def test_a_misspelt_parameter_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'n_step'"):
        World().build(NStepBuffer, 5).update_storage_parameter("nstep", 2)
    with pytest.raises(ConfigError, match="fixed"):
        World().build(ReplayBuffer, 5).update_storage_parameter("memmap", "x")
