"""Sequences for actors with memory: overlapping, of fixed length, with the hidden states of their first steps."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.agent.storages.off_policy.world import World, window

from pytorchrl import state_tree, tree
from pytorchrl.agent.storages.off_policy.her_buffer import HERBuffer
from pytorchrl.agent.storages.off_policy.nstep_buffer import NStepBuffer
from pytorchrl.agent.storages.off_policy.per_buffer import PERBuffer
from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
from pytorchrl.agent.storages.sampling import Units
from pytorchrl.errors import ConfigError, RLError
from pytorchrl.keys import DONE, INDICES, N_STEP, OBS, OBS2, PER_WEIGHTS, REW, RHS, RHS2


class MemoryWorld(World):
    """The hidden state before an observation is its code + 0.5, and behind it that of its successor."""

    def sample(self, ended: Any = None, terminal: Any = None) -> dict[str, Any]:
        sample = super().sample(ended, terminal)
        return sample | {RHS: self._hidden(sample[OBS]), RHS2: self._hidden(sample[OBS2])}

    def _hidden(self, obs: Any) -> dict[str, torch.Tensor]:
        codes = torch.tensor(self.decode(obs), dtype=torch.float32)[:, -1:] + 0.5
        return {"rhs_act": codes, "rhs_q1": codes[:, None].expand(-1, 2, 3)}


def filled(cls: Any, size: int, steps: int, world: World | None = None, **kwargs: Any) -> tuple[Any, World]:
    world = world or MemoryWorld(num_envs=2)
    return world.fill(world.build(cls, size, **kwargs), steps), world


@pytest.mark.parametrize(("kind", "stack"), [("vector", 1), ("image", 3)])
@pytest.mark.parametrize(("length", "overlap"), [(4, 0.5), (5, 0.0), (6, 0.9), (2, 0.5), (5, 1.0)])
@pytest.mark.parametrize("n_step", [1, 3])
def test_rows_go_sequence_by_sequence(kind: str, stack: int, length: int, overlap: float, n_step: int) -> None:
    world = MemoryWorld(kind, 2, stack=stack)
    options: Any = {"overlap": overlap, "sequence_length": length, "n_step": n_step}
    storage = world.fill(world.build(NStepBuffer, 20, **options), 20)
    world.jump()  # a piece that begins without an end before it
    world.fill(storage, 13)
    period = max(length - int(overlap * length), 1)
    for batch in storage.generate_batches(20, 4 * length + length // 2):
        assert len(batch[DONE]) == 4 * length
        assert tree.first_leaf(batch[RHS]).shape == (4, 1)
        assert batch[RHS2]["rhs_q1"].shape == (4, 2, 3)
        obs, obs2, units = world.decode(batch[OBS]), world.decode(batch[OBS2]), batch[INDICES].tolist()
        for s, unit in enumerate(units):
            first, env = unit // 2 * period, unit % 2
            assert first >= 13  # 33 steps went into 20
            assert first + length <= 33
            for j in range(length):
                i, now = s * length + j, world.history[first + j][env]
                m, total, last = window(world.history, first + j, env, n_step)
                assert (obs[i], obs2[i], batch[N_STEP][i].item()) == (now.obs, last.obs2, m)
                assert batch[REW][i].item() == pytest.approx(total, abs=1e-5)
                assert batch[DONE][i].item() == (now.begins if j else now.done)
                if j == 0:
                    assert batch[RHS]["rhs_act"][s].item() == now.obs[-1] + 0.5
                    assert batch[RHS2]["rhs_q1"][s, 1, 2].item() == last.obs2[-1] + 0.5


def test_every_sequence_is_drawn() -> None:
    storage, _ = filled(ReplayBuffer, 20, 33, overlap=0.5, sequence_length=6)
    drawn = torch.cat([batch[INDICES] for batch in storage.generate_batches(50, 60)])
    assert set(drawn.tolist()) == {
        unit for first in (15, 18, 21, 24, 27) for unit in (first // 3 * 2, first // 3 * 2 + 1)
    }


def test_numbers_of_units() -> None:
    units = Units(4, 0.5)
    assert units.stored(3, 3, 2) == (0, 0)
    assert units.stored(4, 4, 2) == (0, 2)
    assert units.stored(9, 5, 2) == (4, 6)
    assert units.transitions(torch.tensor([3, 4]), 2).tolist() == [5, 7, 9, 11, 8, 10, 12, 14]
    assert Units().stored(9, 5, 2) == (8, 18)
    assert all(
        units.slots(size, 2) > np.diff(units.stored(n, min(n, size), 2)) for size in range(1, 9) for n in range(30)
    )


def test_too_few_steps_are_refused() -> None:
    storage, world = filled(ReplayBuffer, 20, 4, overlap=0.5, sequence_length=5)
    with pytest.raises(RLError, match=r"4 steps are stored\nInsert at least 5"):
        next(storage.generate_batches(1, 10))
    world.fill(storage, 1)
    assert len(next(storage.generate_batches(1, 2))[DONE]) == 5  # at least one sequence


def test_priorities_of_sequences() -> None:
    storage, world = filled(PERBuffer, 20, 10, overlap=0.5, sequence_length=4, alpha=1.0, beta=1.0)
    batch = next(storage.generate_batches(1, 8))
    assert batch[PER_WEIGHTS].shape == (8, 1)
    errors = torch.tensor([[1.0], [3.0], [-5.0], [1.0]])  # two steps of each of two sequences are left after burn-in
    storage.after_gradients({INDICES: torch.tensor([2, 5])}, {"errors": errors})
    priorities = storage.priorities
    p = priorities._tree.get(np.arange(priorities.oldest, priorities.end) % priorities.slots)
    assert p == pytest.approx([1, 1, 0.9 * 3 + 0.1 * 2, 1, 1, 0.9 * 5 + 0.1 * 3, 1, 1])
    world.fill(storage, 2)
    priorities = storage.priorities
    assert priorities.end == 10
    assert priorities._tree.get([8, 9]).tolist() == pytest.approx([4.8, 4.8])
    weights = {int(u): w.unique().tolist() for b in storage.generate_batches(9, 40) for u, w in by_unit(b)}
    assert weights[5] == pytest.approx([1 / 4.8])
    world.fill(storage, 60)
    assert storage.priorities._tree.total == pytest.approx(4.8 * (storage.priorities.end - storage.priorities.oldest))


def by_unit(batch: Any) -> Any:
    return zip(batch[INDICES], batch[PER_WEIGHTS].view(len(batch[INDICES]), -1), strict=True)


def test_recent_sequences_are_drawn_more() -> None:
    storage, _ = filled(PERBuffer, 50, 80, overlap=0.5, sequence_length=4, eta=0.996, cmin=10)
    reach = [int(batch[INDICES].min()) for batch in storage.generate_batches(5, 800)]
    assert all(a <= b for a, b in pairwise(reach))
    assert reach[-1] >= 78 - 5
    assert storage.units.stored(80, 50, 2) == (30, 78)


def test_draws_go_on_bitwise_after_a_resume() -> None:
    storage, world = filled(PERBuffer, 12, 31, overlap=0.5, sequence_length=4, alpha=0.6, n_step=2)
    other = MemoryWorld(num_envs=2).build(PERBuffer, 3, overlap=0.5, sequence_length=4, alpha=0.6, n_step=2)
    for size in (12, 9, 20):
        state = state_tree.decode(*state_tree.encode(storage.get_state()))
        other.set_state(state)
        storage.update_storage_parameter("size", size)
        other.update_storage_parameter("size", size)
        for _ in range(6):
            sample = world.sample()
            storage.insert_transition(sample)
            other.insert_transition(sample)
        for a, b in zip(storage.generate_batches(3, 16), other.generate_batches(3, 16), strict=True):
            for key in a:
                for x, y in zip(tree.leaves(a[key]), tree.leaves(b[key]), strict=True):
                    assert torch.equal(x, y)
            for each in (storage, other):
                each.after_gradients(a, {"errors": a[REW].abs() + 0.1})


def test_hidden_states_travel_with_slices() -> None:
    storage, _ = filled(ReplayBuffer, 20, 9, overlap=0.5, sequence_length=4)
    data = storage.get_all_buffer_data()
    other = MemoryWorld(num_envs=2).build(ReplayBuffer, 20, overlap=0.5, sequence_length=4)
    other.insert_data_slice(data)
    again = other.get_all_buffer_data()
    assert all(torch.equal(data[key]["rhs_q1"], again[key]["rhs_q1"]) for key in (RHS, RHS2))


def test_hindsight_has_no_sequences() -> None:
    actor: Any = SimpleNamespace(is_recurrent=True, sequence_overlap=0.5)
    with pytest.raises(ConfigError, match="memory"):
        HERBuffer(20, "cpu", actor, None, None, lambda *parts: parts[:5])
