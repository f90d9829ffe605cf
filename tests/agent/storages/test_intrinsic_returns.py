"""What storages of one rollout make of intrinsic rewards: of true successors, over all boundaries, by definition."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.storages import VanillaOnPolicyBuffer
from pytorchrl.keys import ADV, DONE2, IADV, IRET, IREW, IVAL, OBS, OBS2, RET, VAL

GAMMA_I = 0.8
SIZE = 6


class Curiosity:
    """i(o) = |sin(code)|; keeps what it was asked about."""

    gamma, gamma_intrinsic = 0.9, GAMMA_I

    def __init__(self, decode: Callable[[Any], Tensor]) -> None:
        self.decode = decode
        self.asked: list[list[int]] = []

    def intrinsic_rewards(self, successors: Any) -> Tensor:
        codes = self.decode(successors)
        self.asked.append(codes.tolist())
        return codes.double().sin().abs().float()[:, None]


class Filter:
    """The running spread of g_t = γ g_{t−1} + i_t, per environment, in plain numbers."""

    def __init__(self, num_envs: int) -> None:
        self.sums = [0.0] * num_envs
        # As if 1e-4 samples of mean 0 and variance 1 had been seen.
        self.count, self.total, self.squares = 1e-4, 0.0, 1e-4

    def __call__(self, rows: list[list[float]]) -> list[list[float]]:
        for row in rows:
            self.sums = [GAMMA_I * g + i for g, i in zip(self.sums, row, strict=True)]
            self.count += len(row)
            self.total += sum(self.sums)
            self.squares += sum(g * g for g in self.sums)
        variance = self.squares / self.count - (self.total / self.count) ** 2
        return [[i / (variance + 1e-8) ** 0.5 for i in row] for row in rows]


def intrinsic_returns(rewards: list[list[float]], values: list[list[float]], gae_lambda: float) -> list[float]:
    """A + V, A = Σ_k (γλ)^k δ_{t+k} to the end of the rollout: no episode ends."""
    deltas = [
        [i + GAMMA_I * following - v for i, v, following in zip(*columns, strict=True)]
        for columns in zip(rewards, values[:-1], values[1:], strict=True)
    ]
    return [
        values[t][n] + sum((GAMMA_I * gae_lambda) ** (k - t) * deltas[k][n] for k in range(t, len(deltas)))
        for t in range(len(deltas))
        for n in range(len(deltas[0]))
    ]


def spread(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return float((sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5)


@pytest.mark.parametrize("recurrent", [False, True], ids=["feed-forward", "recurrent"])
@pytest.mark.parametrize("handed_over", [False, True], ids=["local", "handed-over"])
@pytest.mark.parametrize("steps", [1, 4, SIZE], ids=["one-step", "partial", "full"])
def test_every_batch_holds_what_curiosity_needs(
    make_case: Callable[..., Any],
    normalized: Callable[[list[float]], list[float]],
    storage_name: str,
    kind: str,
    steps: int,
    handed_over: bool,
    recurrent: bool,
) -> None:
    case = make_case(
        storage_name, kind=kind, recurrent=recurrent, num_envs=3, size=SIZE, handed_over=handed_over, curious=True
    )
    world, running = case.world, Filter(3)
    case.learning.algorithm = curiosity = Curiosity(world.actor.decode)
    for rollout in range(3):
        storage = case.collect(steps)
        rows = world.last(steps)
        # One batch, of the true successors: those behind an end, whatever ended there, included.
        assert curiosity.asked[rollout:] == [[row.next_code for row in rows]]
        successors = torch.tensor([[row.next_code for row in row_of] for row_of in world.history[-steps:]])
        rewards = running(successors.double().sin().abs().tolist())
        last = world.history[-1]
        bootstrap = world.actor.get_value(world.actor.encode(successors[-1]), world.rhs, column(last, "next_done"))
        values = [[step.intrinsic_value for step in row] for row in world.history[-steps:]]
        values.append(bootstrap["ivalue_net1"].flatten().tolist())
        returns = intrinsic_returns(rewards, values, case.gae_lambda)
        errors = [value - row.intrinsic_value for value, row in zip(returns, rows, strict=True)]
        external = case.world.returns(steps, case.gae_lambda)
        external_errors = [value - row.value for value, row in zip(external, rows, strict=True)]
        proportion = min(spread(external_errors) / max(spread(errors), 1e-8), 1.0)
        columns = {
            IREW: [reward for row in rewards for reward in row],
            IVAL: [row.intrinsic_value for row in rows],
            IRET: returns,
            IADV: normalized(errors),
            ADV: [proportion * advantage for advantage in normalized(external_errors)],
            RET: external,
        }
        expected = {row.code: {key: columns[key][i] for key in columns} for i, row in enumerate(rows)}
        followers = {row.code: row.next_code for row in rows}
        seen = []
        for batch in storage.generate_batches(2, None, 1):
            storage.after_gradients(batch, {})
            codes = case.codes(batch)
            assert world.actor.decode(batch[OBS2]).tolist() == [followers[code] for code in codes]
            for key in columns:
                wanted = [expected[code][key] for code in codes]
                assert batch[key].flatten().tolist() == pytest.approx(wanted, abs=2e-5), key
            seen += codes
        assert sorted(seen) == sorted(followers)


def column(rows: Any, name: str) -> Tensor:
    return torch.tensor([[getattr(row, name)] for row in rows])


def test_without_intrinsic_values_nothing_of_it_is_there(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    case.learning.algorithm = curiosity = Curiosity(case.world.actor.decode)
    batch = next(case.collect(SIZE).generate_batches(1, None))
    assert not {IREW, IRET, IVAL, IADV, OBS2} & set(batch)
    assert curiosity.asked == []


def test_the_noise_of_a_value_of_nothing_does_not_drown_curiosity(
    make_case: Callable[..., Any], storage_name: str
) -> None:
    """External advantages that vary less than intrinsic ones keep their proportion to them."""
    case = make_case(storage_name, curious=True)
    case.learning.algorithm = Curiosity(case.world.actor.decode)
    storage = case.collect(SIZE)
    before = storage.get_all_buffer_data()
    value = case.world.actor.get_value

    def thousandth(*inputs: Any) -> dict[str, Any]:
        values = value(*inputs)
        return {**values, "value_net1": values["value_net1"] / 1000}

    case.world.actor.get_value = thousandth
    for key in ("Reward", VAL):
        storage.data[key] /= 1000
    storage.before_gradients()
    after = storage.get_all_buffer_data()
    own = [(data[RET] - data[VAL])[:-1].std(correction=0) for data in (before, after)]
    torch.testing.assert_close(own[1], own[0] / 1000, rtol=1e-3, atol=0)
    assert after[ADV][:SIZE].std() < 0.01
    assert before[ADV][:SIZE].std() > 0.5
    assert after[IADV][:SIZE].std() > 0.5


def test_of_a_stack_only_the_newest_frame_is_kept(make_case: Callable[..., Any]) -> None:
    case = make_case("vanilla", kind="image", num_envs=2, curious=True)
    sample = case.world.sample()
    one = dict(sample)
    for key in (OBS, OBS2):
        sample[key] = torch.cat([torch.full_like(one[key], fill) for fill in (7, 8, 9)] + [one[key]], dim=1)
    envs: Any = SimpleNamespace(
        num_envs=2,
        env_kwargs={"frame_stack": 4},
        observation_space=spaces.Box(0, 255, (4, 2, 3), dtype="uint8"),
        action_space=spaces.Discrete(5),
    )
    curiosity: Any = Curiosity(case.world.actor.decode)
    storage = VanillaOnPolicyBuffer(3, "cpu", case.world.actor, curiosity, envs)
    storage.insert_transition(sample)
    data: Any = storage.data
    assert data[OBS2].shape == (4, 2, 1, 2, 3)
    assert data[OBS2].dtype == torch.uint8
    assert torch.equal(data[OBS2][0], one[OBS2])


def test_the_state_holds_what_was_seen(make_case: Callable[..., Any], storage_name: str) -> None:
    """A copy from a saved state goes on alike: successors, filter and moments."""
    case = make_case(storage_name, recurrent=True, curious=True, ends=0.8)
    case.collecting.algorithm = Curiosity(case.world.actor.decode)
    case.collect(SIZE)
    case.collecting.after_gradients({}, {})
    case.collect(3)
    copy = case.make()
    copy.algorithm = case.collecting.algorithm
    copy.set_state(case.collecting.get_state())
    for storage in (case.collecting, copy):
        storage.after_gradients({}, {})
    for _ in range(4):
        sample = case.world.sample()
        assert DONE2 in sample
        for storage in (case.collecting, copy):
            storage.insert_transition(sample)
    for storage in (case.collecting, copy):
        storage.before_gradients()
    mine, others = (next(storage.generate_batches(1, None, shuffle=False)) for storage in (case.collecting, copy))
    torch.testing.assert_close(mine, others, rtol=0, atol=0)
