"""Returns and advantages as the buffers compute them: the worked example, the definition, and the edges."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.storages import GAEBuffer, VanillaOnPolicyBuffer
from pytorchrl.keys import (
    ACT,
    ADV,
    DONE,
    DONE2,
    IADV,
    IRET,
    IREW,
    IVAL,
    LOGP,
    OBS,
    OBS2,
    RET,
    REW,
    RHS,
    RHS2,
    TERMINAL,
    VAL,
)
from pytorchrl.tree import tree_map

DISCOUNTED = [1.2835, 0.315, 0.35, 2.45, 0.5, 1.675]
GAE_ADVANTAGES = [0.79664, -0.838, 0.85, 0.405, 0.25, 2.675]
GAE_NORMALIZED = [0.093108, -1.331076, 0.139598, -0.248109, -0.383153, 1.729633]
REWARDS = [1.0, 0.0, -1.0, 2.0, 0.5, 1.0]
VALUES = [0.5, 1.0, -0.5, 2.0, 0.25, -1.0]
BOOTSTRAP, TRUNCATED_VALUE = 0.75, 1.5


class Reader:
    """V(o) = o: an actor whose observations are their own values."""

    is_recurrent = False
    device = torch.device("cpu")

    def get_value(self, obs: Tensor, rhs: Any, done: Tensor) -> dict[str, Tensor]:
        return {"value_net1": obs}


def example_samples() -> list[dict[str, Any]]:
    """The worked example: t = 2 is truncated with V' = 1.5, t = 4 is terminal, the cut has V' = 0.75."""
    successors = [*VALUES[1:], BOOTSTRAP]
    successors[2], successors[4] = TRUNCATED_VALUE, float("nan")  # what follows a terminal does not count
    done = [0.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    zeros = {"policy": torch.zeros(1, 1)}

    def column(value: float) -> Tensor:
        return torch.tensor([[value]])

    return [
        {
            OBS: column(VALUES[t]),
            RHS: zeros,
            DONE: column(1.0 if t == 0 else done[t - 1]),
            ACT: torch.tensor([[t]]),
            REW: column(REWARDS[t]),
            OBS2: column(successors[t]),
            RHS2: zeros,
            DONE2: column(done[t]),
            TERMINAL: column(float(t == 4)),
            VAL: column(VALUES[t]),
            LOGP: column(-1.0),
        }
        for t in range(6)
    ]


def learned(storage: Any) -> tuple[list[float], list[float]]:
    for sample in example_samples():
        storage.insert_transition(sample)
    storage.before_gradients()
    batch = next(storage.generate_batches(1, None, shuffle=False))
    assert batch[REW].flatten().tolist() == REWARDS  # stored rewards stay as they were
    return batch[RET].flatten().tolist(), batch[ADV].flatten().tolist()


@pytest.mark.parametrize("size", [6, 9], ids=["full", "partial"])
def test_the_worked_example(size: int) -> None:
    algorithm = SimpleNamespace(gamma=0.9)
    vanilla = VanillaOnPolicyBuffer(size, "cpu", Reader(), algorithm, None)
    returns, _ = learned(vanilla)
    assert returns == pytest.approx(DISCOUNTED, abs=1e-6)
    assert vanilla.get_all_buffer_data()[RET][-1].item() == BOOTSTRAP
    returns, advantages = learned(GAEBuffer(size, "cpu", Reader(), algorithm, None, gae_lambda=0.8))
    expected = [advantage + value for advantage, value in zip(GAE_ADVANTAGES, VALUES, strict=True)]
    assert returns == pytest.approx(expected, abs=1e-6)
    assert advantages == pytest.approx(GAE_NORMALIZED, abs=1e-6)


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [
        (False, False, 1.0 + 0.9 * 5.0),
        (True, False, 1.0),
        (False, True, 1.0 + 0.9 * 5.0),
        (True, True, 1.0),
    ],
)
@pytest.mark.parametrize("size", [1, 2], ids=["full", "partial"])
@pytest.mark.parametrize("cls", [VanillaOnPolicyBuffer, GAEBuffer])
def test_a_boundary_at_the_last_row(
    cls: type[VanillaOnPolicyBuffer], terminated: bool, truncated: bool, expected: float, size: int
) -> None:
    """One row decides: a truncation and a cut are worth V of the true successor, an end of the MDP nothing."""
    zeros, one = {"policy": torch.zeros(1, 1)}, torch.ones(1, 1)
    storage = cls(size, "cpu", Reader(), SimpleNamespace(gamma=0.9), None)
    storage.insert_transition(
        {
            OBS: one * 3,
            RHS: zeros,
            DONE: one,
            ACT: one,
            REW: one,
            OBS2: one * 5,
            RHS2: zeros,
            DONE2: one * float(terminated or truncated),
            TERMINAL: one * float(terminated),
            VAL: one * 3,
            LOGP: one,
        }
    )
    storage.before_gradients()
    batch = next(storage.generate_batches(1, None))
    assert batch[RET].item() == pytest.approx(expected)
    assert batch[ADV].item() == 0.0  # a single row has no spread


def test_truncated_successors_are_valued_with_the_state_after_the_last_action(
    make_case: Callable[..., Any],
) -> None:
    """And with Done = 0; the contract's world would tell the difference, this one says which."""
    case = make_case("gae", recurrent=True, num_envs=2, ends=0.0)
    calls = []
    value = case.world.actor.get_value

    def recorded(obs: Any, rhs: Any, done: Tensor) -> Any:
        calls.append((case.world.actor.decode(obs).tolist(), rhs["policy"].clone(), done.clone()))
        return value(obs, rhs, done)

    for truncated in ([False, True], [True, False]):
        case.collecting.insert_transition(case.world.sample([False, False], truncated))
    hidden = case.world.rhs["policy"]
    successors = [row[n].next_value for row, n in zip(case.world.history, (1, 0), strict=True)]
    case.world.actor.get_value = recorded
    case.collecting.before_gradients()
    _, rhs, done = calls[-1]
    assert len(calls) == 2  # one forward pass for the bootstrap, one for all truncations
    assert done.tolist() == [[0.0], [0.0]]
    assert torch.equal(rhs[1], hidden[0])
    returns = case.collecting.get_all_buffer_data()[RET]
    rewards = [case.world.history[0][1].reward, case.world.history[1][0].reward]
    assert returns[0, 1].item() == pytest.approx(rewards[0] + 0.9 * successors[0], abs=1e-5)
    assert returns[1, 0].item() == pytest.approx(rewards[1] + 0.9 * successors[1], abs=1e-5)


def random_arguments(T: int, N: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(T * 10 + N)
    draw = {"dtype": torch.float64, "generator": generator}
    return {
        "rewards": torch.randn(T, N, 1, **draw),
        "returns": torch.full((T + 1, N, 1), float("nan"), dtype=torch.float64),
        "values": torch.randn(T + 1, N, 1, **draw),
        "dones": (torch.rand(T + 1, N, 1, **draw) < 0.3).double(),
        "gamma": 0.9,
    }


@pytest.mark.parametrize(("T", "N"), [(1, 1), (1, 3), (5, 2), (33, 3)])
@pytest.mark.parametrize("gae_lambda", [None, 0.0, 0.7, 1.0])
def test_compute_returns_reads_only_its_arguments(T: int, N: int, gae_lambda: float | None) -> None:
    """The pages' five-argument form on a storage that holds nothing: in place, returns None, one mask Done[t+1]."""
    storage: Any = (
        VanillaOnPolicyBuffer(2, "cpu", None, None, None)  # type: ignore[arg-type]
        if gae_lambda is None
        else GAEBuffer(2, "cpu", None, None, None, gae_lambda)  # type: ignore[arg-type]
    )
    assert list(inspect.signature(storage.compute_returns).parameters) == list(random_arguments(1, 1))
    given = random_arguments(T, N)
    before = {key: value.clone() for key, value in given.items() if key not in ("returns", "gamma")}
    assert storage.compute_returns(**given) is None
    assert all(torch.equal(given[key], value) for key, value in before.items())
    rewards, values, dones = (before[key][..., 0].tolist() for key in ("rewards", "values", "dones"))
    lam = 1.0 if gae_lambda is None else gae_lambda
    for n in range(N):
        following, advantage = values[T][n], 0.0
        assert given["returns"][T, n, 0].item() == following
        for t in reversed(range(T)):
            mask = 1.0 - dones[t + 1][n]
            delta = rewards[t][n] + 0.9 * mask * values[t + 1][n] - values[t][n]
            advantage = delta + 0.9 * lam * mask * advantage
            assert given["returns"][t, n, 0].item() == pytest.approx(advantage + values[t][n], abs=1e-10)


def test_compute_advantages_normalizes_over_all_rows_but_the_last() -> None:
    storage = VanillaOnPolicyBuffer(2, "cpu", None, None, None)  # type: ignore[arg-type]
    returns, values = torch.randn(6, 3, 1), torch.randn(6, 3, 1)
    x = (returns - values)[:5]
    expected = (x - x.mean()) / (x.std(correction=1) + 1e-5)
    torch.testing.assert_close(storage.compute_advantages(returns, values), expected)
    assert storage.compute_advantages(returns[:2, :1], values[:2, :1]).tolist() == [[[0.0]]]


def test_used_capacity() -> None:
    samples = example_samples()
    storage = GAEBuffer(4, "cpu", Reader(), SimpleNamespace(gamma=0.9), None)
    assert storage.used_capacity == 0
    for count, sample in enumerate(samples, start=1):
        storage.insert_transition(sample)
        assert storage.used_capacity == (count if count <= 4 else count - 4)


def test_gae_lambda_takes_effect_at_once() -> None:
    storage = GAEBuffer(6, "cpu", Reader(), SimpleNamespace(gamma=0.9), None, gae_lambda=0.8)
    storage.update_storage_parameter("gae_lambda", 1.0)
    assert learned(storage)[0] == pytest.approx(DISCOUNTED, abs=1e-6)
    storage.update_storage_parameter("gae_lambda", 0)
    deltas = [1 + 0.9 * 1, 0 - 0.9 * 0.5, -1 + 0.9 * 1.5, 2 + 0.9 * 0.25, 0.5, 1 + 0.9 * 0.75]
    assert learned(storage)[0] == pytest.approx(deltas, abs=1e-6)
    with pytest.raises(ValueError, match="between 0 and 1"):
        storage.update_storage_parameter("gae_lambda", 1.5)


def test_the_discount_is_the_algorithms_at_that_moment() -> None:
    algorithm = SimpleNamespace(gamma=0.0)
    storage = VanillaOnPolicyBuffer(6, "cpu", Reader(), algorithm, None)
    assert learned(storage)[0] == pytest.approx(REWARDS)
    algorithm.gamma = 0.9
    assert learned(storage)[0] == pytest.approx(DISCOUNTED, abs=1e-6)


def test_channels_of_a_single_frame() -> None:
    def channels(obs: Any, frame_stack: int) -> int:
        envs: Any = None
        if frame_stack > 1:
            space = SimpleNamespace(shape=(1,), dtype=torch.zeros(1).numpy().dtype)
            envs = SimpleNamespace(
                num_envs=2,
                env_kwargs={"frame_stack": frame_stack},
                observation_space=space,
                action_space=spaces.Discrete(6),
            )
        storage = VanillaOnPolicyBuffer(2, "cpu", Reader(), None, envs)  # type: ignore[arg-type]
        storage.get_num_channels_obs({OBS: obs})
        return storage.num_channels_obs

    image = torch.zeros(2, 12, 8, 8)
    assert channels(image, 1) == 12
    assert channels(image, 4) == 3
    assert channels(torch.zeros(2), 1) == 1
    assert channels(torch.zeros(2, 6), 2) == 3
    assert channels({"image": image}, 4) == 1


def with_intrinsic_value(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {IVAL: sample[VAL]}


def test_intrinsic_tensors_exist_only_with_intrinsic_values() -> None:
    keys = {IREW, IRET, IADV, IVAL}
    algorithm = SimpleNamespace(gamma=0.9)
    plain, curious = (VanillaOnPolicyBuffer(6, "cpu", Reader(), algorithm, None) for _ in range(2))
    for sample in example_samples():
        plain.insert_transition(sample)
        curious.insert_transition(with_intrinsic_value(sample))
    assert not keys & set(plain.get_all_buffer_data())
    assert keys <= set(curious.get_all_buffer_data())
    curious.before_gradients()
    assert keys <= set(next(curious.generate_batches(1, None)))


def test_normalized_intrinsic_rewards_of_the_worked_example() -> None:
    """Filter and moments run on over rollouts and through a saved state; ends of episodes mean nothing."""
    rows = [[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]]
    algorithm = SimpleNamespace(gamma=0.9, gamma_intrinsic=0.5)

    def storage_with(sizes: list[int]) -> list[float]:
        storage = VanillaOnPolicyBuffer(3, "cpu", Reader(), algorithm, None)
        taken = 0
        for size in sizes:
            for sample in example_samples()[:size]:
                doubled = {
                    key: tree_map(lambda tensor: torch.cat([tensor, tensor]), value)
                    for key, value in with_intrinsic_value(sample).items()
                }
                storage.insert_transition(doubled)
            data: Any = storage.data[IREW]
            data[:size] = torch.tensor(rows[taken : taken + size])[..., None]
            storage.normalize_int_rewards()
            taken += size
            state = storage.get_state()
            storage.after_gradients({}, {})
            last = data[size - 1].flatten().tolist()
            storage = VanillaOnPolicyBuffer(3, "cpu", Reader(), algorithm, None)
            storage.set_state(state)
            storage.after_gradients({}, {})
        assert storage.int_reward_moments.var.item() == pytest.approx(1.300382, abs=1e-4)
        return last

    assert storage_with([3]) == pytest.approx([0.0, 2.630788], abs=1e-4)
    assert storage_with([2, 1]) == pytest.approx([0.0, 2.630788], abs=1e-4)
    assert storage_with([1, 1, 1]) == pytest.approx([0.0, 2.630788], abs=1e-4)
