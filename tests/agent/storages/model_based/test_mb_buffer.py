"""Transitions dealt out to a dynamics model. That the ring itself is right is shown where replay is tested."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from tests.agent.storages.off_policy.world import World

from pytorchrl import state_tree, tree
from pytorchrl.agent.storages.model_based.mb_buffer import MBReplayBuffer
from pytorchrl.errors import ConfigError, RLError
from pytorchrl.keys import ACT, DONE, OBS, OBS2, REW, RHS, RHS2, TERMINAL


class Scaler:
    def fit(self, rows: Any) -> None:
        self.mean, std = rows.mean(0), rows.std(0, unbiased=False)
        self.std = torch.where(std < 1e-8, 1.0, std)

    def transform(self, rows: Any) -> Any:
        return (rows - self.mean) / self.std


def build(size: int, reward_function: Any = None, space: Any = None) -> tuple[MBReplayBuffer, Scaler]:
    torch.manual_seed(0)
    scaler = Scaler()
    model = SimpleNamespace(scaler=scaler, reward_function=reward_function)
    actor: Any = SimpleNamespace(is_recurrent=False, dynamics_model=model, action_space=space or Discrete(7))
    return MBReplayBuffer(size, "cpu", actor, None, None), scaler


@pytest.mark.parametrize(("steps", "size", "batch"), [(10, 20, 5), (37, 12, 8), (12, 12, 6), (3, 5, 256)])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_every_transition_once(steps: int, size: int, batch: int, num_envs: int) -> None:
    world = World(num_envs=num_envs)
    buffer, scaler = build(size)
    world.fill(buffer, steps)
    batches = list(buffer.generate_batches(99, batch, 99))
    total = min(steps, size) * num_envs
    assert [len(b["train_input"]) for b in batches][:-1] == [batch] * (-(-total // batch) - 1)
    assert [b["batch_number"] for b in batches] == list(range(-(-total // batch)))
    inputs = torch.cat([b["train_input"] for b in batches])
    labels = torch.cat([b["train_label"] for b in batches])
    assert inputs.shape == (total, 2 + 7)  # a column for each of 7 actions, though only 5 are ever taken
    assert labels.shape == (total, 2 + 1)
    rows = inputs * scaler.std + scaler.mean
    seen = set()
    for row, label in zip(rows, labels, strict=True):
        seen.add((round(row[0].item()), int(row[2:].argmax()), round(label[0].item()), label[2].item()))
    happened = {(s.obs[0], s.action, s.obs2[0] - s.obs[0], s.reward) for step in world.history[-size:] for s in step}
    assert seen == happened  # labels never reach from one episode into the next
    torch.testing.assert_close(inputs.mean(0), torch.zeros(9), atol=1e-4, rtol=0)
    spread = inputs.std(0, unbiased=False)
    assert ((spread - 1).abs().lt(1e-3) | spread.eq(0)).all()


def test_order_is_shuffled_and_repeats_under_a_seed() -> None:
    orders = []
    for _ in range(2):
        world = World()
        buffer, _ = build(50)
        world.fill(buffer, 50)
        orders += [next(iter(buffer.generate_batches(1, 100)))["train_label"] for _ in range(2)]
    assert torch.equal(orders[0], orders[2])
    assert not torch.equal(orders[0], orders[1])


def test_a_reward_function_leaves_the_reward_out() -> None:
    world = World()
    buffer, _ = build(9, reward_function=lambda *_: None, space=Box(-1, 1, (1,)))
    world.fill(buffer, 9)
    batch = next(iter(buffer.generate_batches(1, 4)))
    assert batch["train_input"].shape == (4, 3)
    assert batch["train_label"].shape == (4, 2)


def test_slices_are_copies_by_position_from_the_oldest() -> None:
    world = World()
    buffer, _ = build(6)
    world.fill(buffer, 9)
    assert (buffer.size, buffer.step) == (6, 3)
    data = buffer.get_data_slice(1, 4)
    assert [code for (code,) in world.decode(data[OBS].flatten(0, 1))] == [
        s.obs[0] for step in world.history[-5:-2] for s in step
    ]
    data[OBS].fill_(0)
    assert buffer.get_all_buffer_data()[OBS].all()
    assert len(buffer.get_data_slice(2, 2)[REW]) == 0
    for start, end in ((-1, 2), (0, 7), (3, 2)):
        with pytest.raises(IndexError, match="holds 6"):
            buffer.get_data_slice(start, end)


def test_slices_join_and_wrap() -> None:
    world = World()
    first, second = build(20)[0], build(20)[0]
    world.fill(first, 7)
    second.insert_data_slice(first.get_all_buffer_data(data_to_cpu=True))
    world.fill(second, 3)
    buffer, _ = build(8)
    buffer.insert_data_slice(second.get_all_buffer_data())
    assert buffer.size == 8
    assert torch.equal(buffer.get_all_buffer_data()[OBS2], second.get_data_slice(2, 10)[OBS2])
    buffer.update_storage_parameter("size", 3)
    assert torch.equal(buffer.get_all_buffer_data()[ACT], second.get_data_slice(7, 10)[ACT])


def test_one_key_alone() -> None:
    world = World()
    buffer, _ = build(6)
    world.fill(buffer, 4)
    before = buffer.get_all_buffer_data()
    values = np.full((2, 2, 1), 42.0, np.float32)
    assert buffer.insert_single_tensor_slice(buffer.data, REW, values) == 2
    assert (buffer.size, buffer.step) == (4, 4)
    after = buffer.get_all_buffer_data()
    assert all(torch.equal(tree.first_leaf(before[key]), tree.first_leaf(after[key])) for key in before)
    assert (buffer.data[REW][4:6] == 42).all()  # type: ignore[call-overload]


def test_hooks_reset_and_state() -> None:
    world = World()
    buffer, _ = build(6)
    assert buffer.algo is None
    with pytest.raises(RLError, match="no transitions"):
        next(buffer.generate_batches(1))
    world.fill(buffer, 9)
    buffer.before_gradients()
    info: dict[str, Any] = {}
    assert buffer.after_gradients({}, info) is info
    with pytest.raises(ConfigError, match="mini_batch_size"):
        next(buffer.generate_batches(1, None))
    other, _ = build(2)
    other.set_state(state_tree.decode(*state_tree.encode(buffer.get_state())))
    for a, b in zip(buffer.generate_batches(1, 5), other.generate_batches(1, 5), strict=True):
        assert torch.equal(a["train_input"], b["train_input"])
    assert set(buffer.get_all_buffer_data()) == {*buffer.storage_tensors, TERMINAL}
    assert {RHS, RHS2, DONE} <= set(buffer.storage_tensors)
    buffer.reset()
    assert (buffer.size, buffer.step) == (0, 0)
