"""What a world model gets beyond the transitions: a held-out share, a bootstrap for each member, kept forecasts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from tests.agent.storages.off_policy.world import World

from pytorchrl import state_tree
from pytorchrl.agent.actors import WorldModel
from pytorchrl.agent.storages.model_based.mb_buffer import MBReplayBuffer
from pytorchrl.agent.storages.sampling import fate
from pytorchrl.keys import DONE2, INPUT, LABEL, PREDICTED, REW, TERMINAL, WEIGHTS

HORIZON = 3


def build(size: int = 50, members: int = 4, mb_epochs: int = 1, **kwargs: Any) -> MBReplayBuffer:
    torch.manual_seed(0)
    spaces_ = Box(-1000.0, 1000.0, (2,), np.float32), Discrete(7)
    model = WorldModel(*spaces_, hidden_size=4, num_members=members, num_elites=max(members // 2, 1))
    actor: Any = SimpleNamespace(
        is_recurrent=False, dynamics_model=model, action_space=spaces_[1], horizon=HORIZON, frame_stack=1
    )
    algorithm: Any = SimpleNamespace(mb_epochs=mb_epochs, gamma=1.0)
    return MBReplayBuffer(size, "cpu", actor, algorithm, None, **kwargs)


def rows_of(batches: list[Any], key: str = LABEL) -> torch.Tensor:
    return torch.cat([batch[key] for batch in batches])


def test_fate_is_uniform_independent_and_for_life() -> None:
    numbers = torch.arange(100_000)
    one, other = fate(numbers, 1), fate(numbers, 2)
    assert torch.equal(fate(numbers[700:900], 1), one[700:900])
    assert 0 <= one.min() <= one.max() < 1
    counts = torch.histc(one.float(), 20, 0, 1)
    assert ((counts - 5000).square() / 5000).sum().item() < 50  # χ² with 19 degrees of freedom, p = 1e-4
    pairs = torch.stack([one, other, one.roll(1)])
    assert (torch.corrcoef(pairs) - torch.eye(3)).abs().max().item() < 0.015


@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("steps", [40, 130])
def test_what_is_held_out_is_never_learned_from(num_envs: int, steps: int) -> None:
    """Not in a later fit either, though the ring has wrapped around."""
    world = World(num_envs=num_envs)
    buffer = build(50, validation_share=0.25)
    model: Any = buffer.actor.dynamics_model
    shares, validated = [], []
    learned: set[int] = set()
    held_out: set[int] = set()
    errors = model.errors

    def watched(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        validated.append(x)
        return errors(x, labels)  # type: ignore[no-any-return]

    def codes(x: torch.Tensor) -> set[int]:
        """Which observations they are."""
        return set(model.scaler.inverse(x)[:, 0].round().int().tolist())

    model.errors = watched
    for _ in range(3):
        world.fill(buffer, steps // 3)
        rows = rows_of(list(buffer.generate_batches(1, 16)), INPUT)
        learned |= codes(rows)
        held_out |= codes(validated[-1])
        assert len(codes(rows) | codes(validated[-1])) == buffer.size * num_envs
        shares.append(len(validated[-1]) / (buffer.size * num_envs))
    assert not learned & held_out
    assert 0.1 < np.mean(shares) < 0.4


def test_a_bootstrap_for_each_member_that_stays() -> None:
    world = World(num_envs=4)
    buffer = build(500, members=3)
    world.fill(buffer, 500)
    batches = list(buffer.generate_batches(1, 64))
    weights = torch.cat([batch[WEIGHTS] for batch in batches], 1)
    assert weights.shape == (3, 2000)
    for counts in weights:  # Poisson(1)
        assert counts.mean().item() == pytest.approx(1, abs=0.1)
        assert (counts == 0).float().mean().item() == pytest.approx(0.368, abs=0.04)
        assert (counts == 2).float().mean().item() == pytest.approx(0.184, abs=0.04)
    assert torch.corrcoef(weights).fill_diagonal_(0).abs().max().item() < 0.1

    def by_row(batches: list[Any]) -> dict[Any, Any]:
        rows = torch.cat([rows_of(batches, INPUT), rows_of(batches)], 1)
        found = torch.cat([batch[WEIGHTS] for batch in batches], 1).T
        return {tuple(row): tuple(counts) for row, counts in zip(rows.tolist(), found.tolist(), strict=True)}

    assert by_row(batches) == by_row(list(buffer.generate_batches(1, 100)))
    assert WEIGHTS not in _one(members=1)[0]


def _one(**kwargs: Any) -> list[Any]:
    buffer = build(**kwargs)
    World().fill(buffer, 9)
    return list(buffer.generate_batches(1, 9))


def test_passes_elites_and_figures() -> None:
    world = World(num_envs=4)
    buffer = build(100, members=4, mb_epochs=3, validation_share=0.2)
    world.fill(buffer, 30)
    model = buffer.actor.dynamics_model
    model.errors = lambda x, labels: torch.tensor([4.0, 1.0, 3.0, 2.0])
    batches = []
    for batch in buffer.generate_batches(1, 32):
        batches.append(batch)
        info = buffer.after_gradients(batch, {"loss": torch.zeros(())})
        assert info["validation_error"].item() == 1.5
    assert model.elites.tolist() == [1, 3]
    assert [batch["batch_number"] for batch in batches] == list(range(len(batches)))
    third = len(batches) // 3
    orders = [rows_of(batches[i * third : (i + 1) * third]) for i in range(3)]
    assert not torch.equal(orders[0], orders[1])
    assert torch.equal(orders[0].sort(0).values, orders[2].sort(0).values)
    assert model.fitted


def test_forecasts_are_settled_when_they_come_due() -> None:
    """Each against the sum of the next rewards, to the end of the MDP; those that a time limit cuts are dropped."""
    world = World(num_envs=2)
    buffer = build(200, validation_share=0.0)
    samples, promised = [], []
    for step in range(60):
        sample = world.sample()
        if step >= 10:  # before, actions were random
            promised.append(torch.randn(2, 1))
            sample = {**sample, PREDICTED: promised[-1]}
        samples.append(sample)
        buffer.insert_transition(sample)
    other = build(200)
    other.set_state(state_tree.decode(*state_tree.encode(buffer.get_state())))
    expected, realized, due = [], [], 60 - HORIZON
    for step in range(10, due + 1):
        for env in range(2):
            total, cut = 0.0, False
            for sample in samples[step : step + HORIZON]:
                total += sample[REW][env].item()
                if sample[DONE2][env]:
                    ended = sample.get(TERMINAL, sample[DONE2])[env].item()
                    cut = not ended and sample is not samples[step + HORIZON - 1]
                    break
            if not cut:
                expected.append(promised[step - 10][env].item())
                realized.append(total)
    for storage in (buffer, other):
        batch = next(iter(storage.generate_batches(1, 10)))
        info = storage.after_gradients(batch, {})
        assert info["predicted_return"].item() == pytest.approx(np.mean(expected), abs=1e-5)
        assert info["realized_return"].item() == pytest.approx(np.mean(realized), abs=1e-4)
        next(iter(storage.generate_batches(1, 10)))
        assert "predicted_return" not in storage.after_gradients(batch, {})  # told once
        assert len(storage.forecasts.kept) == HORIZON - 1
    assert 0 < len(expected) < 2 * (due - 9)
    buffer.reset()
    assert not buffer.forecasts.kept


def test_hand_over_keeps_transitions_and_a_tiny_buffer_is_learned_from_whole() -> None:
    world = World(num_envs=4)
    first, second = build(20), build(20, validation_share=0.99)
    world.fill(first, 25)
    second.insert_data_slice(first.get_all_buffer_data(data_to_cpu=True))
    assert torch.equal(second.get_all_buffer_data()[REW], first.get_all_buffer_data()[REW])
    alone = build(20, validation_share=1.0)
    world.fill(alone, 5)
    assert len(rows_of(list(alone.generate_batches(1, 100)))) == 20
