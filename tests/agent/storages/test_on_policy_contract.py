"""What every storage of one rollout must do, over all of them: a new one is one more line in ``conftest.STORAGES``."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces

from pytorchrl.keys import ACT, ADV, DONE, LOGP, OBS, RET, REW, RHS, TERMINAL, VAL
from pytorchrl.tree import leaves

SIZE = 6


@pytest.mark.parametrize("recurrent", [False, "GRU", "LSTM"])
@pytest.mark.parametrize("handed_over", [False, True], ids=["local", "handed-over"])
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("steps", [1, 4, SIZE], ids=["one-step", "partial", "full"])
def test_every_transition_reaches_a_batch_once_per_epoch(
    make_case: Callable[..., Any],
    assert_once_each: Callable[..., None],
    normalized: Callable[[list[float]], list[float]],
    storage_name: str,
    kind: str,
    steps: int,
    num_envs: int,
    handed_over: bool,
    recurrent: bool | str,
) -> None:
    case = make_case(
        storage_name, kind=kind, recurrent=recurrent, num_envs=num_envs, size=SIZE, handed_over=handed_over
    )
    documented = case.factory.storage_tensors
    epochs, parts = 2, min(2, num_envs) if recurrent else 4
    for _ in range(3):  # a first rollout and later ones
        storage = case.collect(steps)
        assert storage.size == steps
        rows = case.world.last(steps)
        known = {row.code: row for row in rows}
        returns = dict(zip(known, case.world.returns(steps, case.gae_lambda), strict=True))
        advantages = dict(zip(known, normalized([returns[row.code] - row.value for row in rows]), strict=True))
        units = num_envs if recurrent else len(rows)
        seen: list[int] = []
        sizes = []
        for batch in storage.generate_batches(parts, None, epochs):
            storage.after_gradients(batch, {})
            codes = case.codes(batch)
            transitions = [known[code] for code in codes]
            columns = {
                DONE: [row.done for row in transitions],
                ACT: [row.action for row in transitions],
                REW: [row.reward for row in transitions],
                VAL: [row.value for row in transitions],
                LOGP: [row.log_prob for row in transitions],
                TERMINAL: [row.terminal for row in transitions],
                RET: [returns[code] for code in codes],
                ADV: [advantages[code] for code in codes],
            }
            assert {OBS, RHS, *columns} == set(batch)
            for key, expected in columns.items():
                assert batch[key].dtype == (torch.int64 if key == ACT else torch.float32)
                assert batch[key].flatten().tolist() == pytest.approx(expected, abs=2e-5), key
            example = case.world.actor.encode(torch.tensor(codes))
            torch.testing.assert_close(batch[OBS], example, rtol=0, atol=0)
            if recurrent:  # whole sequences, time-major, with the hidden state of their first step
                sequences = len(codes) // steps
                first = transitions[:sequences]
                assert [row.env for row in transitions] == [row.env for row in first] * steps
                hidden = [value for row in first for value in row.hidden]
                assert batch[RHS]["policy"].flatten().tolist() == pytest.approx(hidden)
                sizes.append(sequences)
            else:
                assert batch[RHS]["policy"].tolist() == [[0.0]] * num_envs
                sizes.append(len(codes))
            seen += codes
        per_epoch = len(sizes) // epochs
        assert per_epoch == min(parts, units)
        assert max(sizes) - min(sizes) <= 1
        for epoch in range(epochs):
            assert sum(sizes[epoch * per_epoch : (epoch + 1) * per_epoch]) == units
            assert_once_each(seen[epoch * len(rows) : (epoch + 1) * len(rows)], [row.code for row in rows])
    assert case.factory.storage_tensors is documented
    assert TERMINAL not in documented


def test_row_0_is_what_was_acted_on(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name, num_envs=2, size=3, ends=0.0)
    for terminated, truncated in [([True, False], [False, True]), ([False, False], [True, False])]:
        case.collect(2)
        case.collecting.insert_transition(case.world.sample(terminated, truncated))  # the rollout ends with episodes
        case.collecting.before_gradients()
        case.collecting.after_gradients({}, {})
        acted_on, done = case.world.codes.tolist(), case.world.done.tolist()
        storage = case.collect(1)
        first = next(storage.generate_batches(1, None, shuffle=False))
        assert case.codes(first)[:2] == acted_on
        assert first[DONE][:2].tolist() == done
        case.collecting.after_gradients({}, {})


def test_shuffle_false_keeps_the_order(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    storage = case.collect(5)
    codes = [code for batch in storage.generate_batches(4, None, 2, shuffle=False) for code in case.codes(batch)]
    assert codes == [row.code for row in case.world.last(5)] * 2


def test_shuffle_false_keeps_the_order_of_sequences(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name, recurrent=True)
    storage = case.collect(5)
    batches = list(storage.generate_batches(2, None, shuffle=False))
    rows = case.world.last(5)
    assert case.codes(batches[0]) == [row.code for row in rows if row.env in (0, 1)]
    assert case.codes(batches[1]) == [row.code for row in rows if row.env == 2]


def test_shuffling_shuffles_differently_each_epoch(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    storage = case.collect(SIZE)
    first, second = (case.codes(batch) for batch in storage.generate_batches(1, None, 2))
    assert first != second
    assert first != [row.code for row in case.world.last(SIZE)]


def test_num_mini_batch_decides_over_mini_batch_size(make_case: Callable[..., Any], storage_name: str) -> None:
    storage = make_case(storage_name).collect(SIZE)
    assert [len(batch[REW]) for batch in storage.generate_batches(5, 3)] == [4, 4, 4, 3, 3]
    assert [len(batch[REW]) for batch in storage.generate_batches(None, 5)] == [5, 5, 4, 4]
    assert [len(batch[REW]) for batch in storage.generate_batches(None, 100)] == [18]
    assert [len(batch[REW]) for batch in storage.generate_batches(100, None)] == [1] * 18
    with pytest.raises(ValueError, match="num_mini_batch or mini_batch_size"):
        next(storage.generate_batches(None, None))


def test_more_mini_batches_than_sequences_are_refused(make_case: Callable[..., Any], storage_name: str) -> None:
    storage = make_case(storage_name, recurrent=True).collect(SIZE)
    with pytest.raises(ValueError, match="there are 3"):
        next(storage.generate_batches(4, None))


def test_rows_are_fixed_at_the_first_next(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    storage = case.collect(4)
    expected = [row.code for row in case.world.last(4)]
    batches = storage.generate_batches(3, None, 2, shuffle=False)
    codes = case.codes(next(batches))
    storage.after_gradients({}, {})
    storage.reset()
    codes += [code for batch in batches for code in case.codes(batch)]
    assert codes == expected * 2


def test_batches_are_copies(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    storage = case.collect(4)
    for batch in storage.generate_batches(1, None):
        for key in (OBS, REW, ADV, RET):
            batch[key].zero_()
    again = next(storage.generate_batches(1, None, shuffle=False))
    assert case.codes(again) == [row.code for row in case.world.last(4)]


def test_samples_are_neither_changed_nor_kept(make_case: Callable[..., Any], storage_name: str, kind: str) -> None:
    case = make_case(storage_name, kind=kind, recurrent=True)
    for _ in range(4):
        sample = case.world.sample()
        tensors = [leaf for value in sample.values() for leaf in leaves(value) if torch.is_tensor(leaf)]
        before = [tensor.clone() for tensor in tensors]
        case.collecting.insert_transition(sample)
        assert all(torch.equal(tensor, copy) for tensor, copy in zip(tensors, before, strict=True))
        assert len(sample) == 12
        # What the collector does with its tensors afterwards is its own business.
        case.world.rhs = {key: value.clone() for key, value in case.world.rhs.items()}
        case.world.done = case.world.done.clone()
        for tensor in tensors:
            tensor.fill_(77)
    storage = case.collecting
    storage.before_gradients()
    rows = case.world.last(4)
    batch = next(storage.generate_batches(1, None, shuffle=False))
    assert case.codes(batch) == [row.code for row in rows]
    assert batch[RET].flatten().tolist() == pytest.approx(case.world.returns(4, case.gae_lambda), abs=2e-5)


@pytest.mark.parametrize("steps", [1, 5, SIZE, SIZE + 2])
def test_k_inserts_give_k_transitions(make_case: Callable[..., Any], storage_name: str, steps: int) -> None:
    """Beyond the capacity a new rollout begins."""
    case = make_case(storage_name)
    storage = case.collect(steps)
    held = steps if steps <= SIZE else steps - SIZE
    data = storage.get_all_buffer_data()
    assert storage.size == held
    assert len(data[REW]) == held
    assert len(data[OBS]) == len(data[VAL]) == held + 1
    assert case.codes(next(storage.generate_batches(1, None, shuffle=False))) == [
        row.code for row in case.world.last(held)
    ]


def test_a_partial_rollout_is_followed_by_a_new_one(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    storage = case.collect(4)
    storage.after_gradients({}, {})
    storage = case.collect(2)
    assert case.codes(next(storage.generate_batches(1, None, shuffle=False))) == [
        row.code for row in case.world.last(2)
    ]


def test_an_unfinished_rollout_goes_on(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    case.collect(2)
    storage = case.collect(3)  # no gradients in between
    batch = next(storage.generate_batches(1, None, shuffle=False))
    assert case.codes(batch) == [row.code for row in case.world.last(5)]
    assert batch[RET].flatten().tolist() == pytest.approx(case.world.returns(5, case.gae_lambda), abs=2e-5)


def test_handed_over_data_are_copies(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    source = case.collect(SIZE)
    rows = case.world.last(SIZE)
    data = source.get_all_buffer_data()
    source.after_gradients({}, {})
    case.collect(SIZE)
    other = case.make()
    other.insert_data_slice(data)
    data[REW].zero_()
    other.before_gradients()
    batch = next(other.generate_batches(1, None, shuffle=False))
    assert case.codes(batch) == [row.code for row in rows]
    assert batch[REW].flatten().tolist() == [row.reward for row in rows]


def test_a_slice_of_another_length_replaces_everything(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    source = case.collect(SIZE)
    rows = case.world.last(SIZE)
    small = case.make(size=4)
    small.insert_data_slice(source.get_all_buffer_data())
    small.before_gradients()
    assert case.codes(next(small.generate_batches(1, None, shuffle=False))) == [row.code for row in rows]
    small.insert_transition(case.world.sample())  # it was full: a new rollout begins
    assert small.size == 1
    small.insert_data_slice({})
    assert small.size == 0


@pytest.mark.parametrize(("held", "size"), [(6, 3), (4, 3), (4, 4), (4, 5), (4, 9), (6, 9), (2, 5)])
@pytest.mark.parametrize("recurrent", [False, True])
def test_a_new_size_keeps_the_newest_rows(
    make_case: Callable[..., Any], storage_name: str, held: int, size: int, recurrent: bool
) -> None:
    case = make_case(storage_name, recurrent=recurrent)
    storage = case.collecting
    for _ in range(held):
        storage.insert_transition(case.world.sample())
    storage.update_storage_parameter("size", size)
    kept = min(held, size)
    assert (storage.max_size, storage.size) == (size, kept)
    storage.before_gradients()
    batch = next(storage.generate_batches(1, None, shuffle=False))
    assert case.codes(batch) == [row.code for row in case.world.last(kept)]
    assert batch[RET].flatten().tolist() == pytest.approx(case.world.returns(kept, case.gae_lambda), abs=2e-5)
    # An open rollout that still has room goes on, a full one is followed by a new one.
    storage.insert_transition(case.world.sample())
    assert storage.size == (kept + 1 if held < SIZE and kept < size else 1)


def test_a_new_size_does_not_reopen_what_was_learned_from(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    storage = case.collect(4)
    storage.after_gradients({}, {})
    storage.update_storage_parameter("size", 9)
    storage.insert_transition(case.world.sample())
    assert storage.size == 1
    for _ in range(8):
        storage.insert_transition(case.world.sample())
    assert storage.size == 9


def test_parameters_change_by_name_only(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    storage = case.collecting
    with pytest.raises(ValueError, match="Did you mean 'size'"):
        storage.update_storage_parameter("sise", 3)
    with pytest.raises(ValueError, match="at least 1"):
        storage.update_storage_parameter("size", 0)
    with pytest.raises(ValueError, match="no parameter"):
        storage.update_storage_parameter("device", "cpu")
    storage.update_storage_parameter("size", 2)
    assert storage.max_size == 2
    assert case.make().max_size == SIZE
    assert case.algorithm.__dict__ == {"gamma": 0.9}


def test_nothing_to_learn_from_is_an_error(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    with pytest.raises(Exception, match="no transitions"):
        case.make().before_gradients()
    storage = case.collect(3)
    storage.reset()
    assert (storage.size, storage.step) == (0, 0)
    with pytest.raises(Exception, match="no transitions"):
        storage.before_gradients()


def test_after_gradients_returns_the_info_and_touches_no_data(make_case: Callable[..., Any], storage_name: str) -> None:
    storage = make_case(storage_name).collect(4)
    before = {key: value for key, value in storage.get_all_buffer_data().items() if torch.is_tensor(value)}
    info = {"loss": torch.tensor(1.0)}
    assert storage.after_gradients({}, info) == info
    assert storage.step == 0
    after = storage.get_all_buffer_data()
    assert all(torch.equal(after[key], value) for key, value in before.items())


def test_the_state_brings_back_rollout_and_stream(make_case: Callable[..., Any], storage_name: str) -> None:
    """Saved in the middle of a rollout, with a size that was changed: the copy goes on exactly alike."""
    case = make_case(storage_name, recurrent=True, ends=0.8)
    storage = case.collecting
    storage.update_storage_parameter("size", 5)
    case.collect(3)
    state = storage.get_state()
    copy = case.make()
    copy.set_state(state)
    assert copy.max_size == 5
    for _ in range(2):  # whoever goes on must not write into the saved state or into the other one
        for sample in [case.world.sample(), case.world.sample()]:
            storage.insert_transition(sample)
            copy.insert_transition(sample)
        storage.before_gradients()
        copy.before_gradients()
        assert storage.size == copy.size
        for mine, other in zip(storage.generate_batches(2, None, 2), copy.generate_batches(2, None, 2), strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=0)
        storage.after_gradients({}, {})
        copy.after_gradients({}, {})
    late = case.make()
    late.set_state(state)
    late.before_gradients()
    rows = [transition for row in case.world.history[:3] for transition in row]
    batch = next(late.generate_batches(1, None, shuffle=False))
    assert case.codes(batch) == [row.code for row in rows]
    assert batch[REW].flatten().tolist() == [row.reward for row in rows]


def test_more_than_the_memory_is_refused_before_it_is_allocated(
    make_case: Callable[..., Any], storage_name: str
) -> None:
    case = make_case(storage_name)
    box = spaces.Box(0, 255, (4, 84, 84), dtype="uint8")
    for space in (box, spaces.Dict({"image": box, "speed": spaces.Box(-1, 1, (3,))})):
        envs = SimpleNamespace(
            num_envs=8, observation_space=space, action_space=spaces.Discrete(6), env_kwargs={"frame_stack": 4}
        )
        create = case.factory.create_factory(size=10**9)
        with pytest.raises(ValueError, match=r"needs 20[56].* TiB of memory"):
            create("cpu", case.world.actor, case.algorithm, envs)
        storage = case.factory.create_factory(size=8)("cpu", case.world.actor, case.algorithm, envs)
        with pytest.raises(ValueError, match="of memory"):
            storage.update_storage_parameter("size", 10**9)
        assert storage.max_size == 8


def test_without_next_terminal_every_end_is_one_of_the_mdp(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name)
    for _ in range(SIZE):
        sample = case.world.sample()
        del sample[TERMINAL]
        case.collecting.insert_transition(sample)
        assert TERMINAL not in sample
        for row in case.world.history[-1]:
            row.terminal = row.next_done
    case.collecting.before_gradients()
    batch = next(case.collecting.generate_batches(1, None, shuffle=False))
    assert batch[RET].flatten().tolist() == pytest.approx(case.world.returns(SIZE, case.gae_lambda), abs=2e-5)


def test_the_bootstrap_comes_from_the_live_weights(make_case: Callable[..., Any], storage_name: str) -> None:
    case = make_case(storage_name, num_envs=1, ends=0.0)
    for _ in range(2):
        case.collecting.insert_transition(case.world.sample())
    case.collecting.insert_transition(case.world.sample([False], [True]))
    case.collecting.insert_transition(case.world.sample())
    case.collecting.before_gradients()
    before = case.collecting.get_all_buffer_data()[RET].flatten().tolist()
    value = case.world.actor.get_value
    case.world.actor.get_value = lambda *inputs: {"value_net1": value(*inputs)["value_net1"] + 10}
    case.collecting.before_gradients()
    after = case.collecting.get_all_buffer_data()[RET].flatten().tolist()
    # The last row of each part sees its bootstrap, the truncated successor's and the cut's, whole.
    assert after[2] - before[2] == pytest.approx(9.0, abs=1e-5)
    assert after[3] - before[3] == pytest.approx(9.0, abs=1e-5)
    assert after[4] - before[4] == pytest.approx(10.0, abs=1e-5)
