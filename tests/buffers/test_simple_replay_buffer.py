"""SimpleReplayBuffer against a list that forgets its oldest entry."""

import math
import pickle
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scipy.stats import chisquare
from src.buffers.SimpleReplayBuffer import SimpleReplayBuffer

from pytorchrl.errors import ConfigError, NonFiniteError


@dataclass
class Act:
    action: Any


def transition(t: float) -> dict[str, Any]:
    """Every field tells which transition it belongs to."""
    return {"obs": [t, t + 0.25], "act": Act([-t]), "rew": 2 * t, "next_obs": [t + 1, t + 1.25], "done": t % 2}


def assert_aligned(batch: dict[str, torch.Tensor]) -> None:
    t = batch["obs"][:, 0]
    assert torch.equal(batch["obs"][:, 1], t + 0.25)
    assert torch.equal(batch["obs2"], batch["obs"] + 1)
    assert torch.equal(batch["act"][:, 0], -t)
    assert torch.equal(batch["rew"], 2 * t)
    assert torch.equal(batch["done"], t % 2)


class Model(RuleBasedStateMachine):
    """Any order of stores and draws."""

    @initialize(size=st.integers(1, 7), batch_size=st.integers(1, 9))
    def build(self, size: int, batch_size: int) -> None:
        self.buffer = SimpleReplayBuffer(2, 1, size, batch_size)
        self.newest: list[int] = []
        self.stored = 0

    @rule()
    def store(self) -> None:
        self.buffer.store(transition(self.stored))
        self.newest = [*self.newest, self.stored][-self.buffer.max_size :]
        self.stored += 1

    @rule()
    def finish_path(self) -> None:
        self.buffer.finish_path()
        self.buffer.finish_path(Act(0.0))

    @rule()
    def sample(self) -> None:
        batch = self.buffer.sample_batch()
        times = batch["obs"][:, 0].tolist()
        assert len(times) == min(self.buffer.batch_size, len(self.newest)) == len(set(times))
        assert set(times) <= set(self.newest)
        assert_aligned(batch)

    @invariant()
    def pointers(self) -> None:
        assert self.buffer.size == len(self.newest)
        assert self.buffer.ptr == self.stored % self.buffer.max_size
        assert sorted(self.buffer.obs_buf[: self.buffer.size, 0].tolist()) == self.newest


TestAgainstAList = Model.TestCase
TestAgainstAList.settings = settings(derandomize=True, deadline=None, max_examples=40, stateful_step_count=40)


def filled(size: int, batch_size: int, count: int | None = None) -> SimpleReplayBuffer:
    buffer = SimpleReplayBuffer(2, 1, size, batch_size)
    for t in range(size if count is None else count):
        buffer.store(transition(t))
    return buffer


def test_batch() -> None:
    batch = filled(20, 6).sample_batch()
    assert {key: tuple(value.shape) for key, value in batch.items()} == {
        "obs": (6, 2),
        "obs2": (6, 2),
        "act": (6, 1),
        "rew": (6,),
        "done": (6,),
    }
    assert {value.dtype for value in batch.values()} == {torch.float32}


def test_attributes() -> None:
    buffer = filled(5, 2, count=3)
    assert (buffer.ptr, buffer.size, buffer.max_size) == (3, 3, 5)
    arrays = (buffer.obs_buf, buffer.obs2_buf, buffer.act_buf, buffer.rew_buf, buffer.done_buf)
    assert [array.shape for array in arrays] == [(5, 2), (5, 2), (5, 1), (5,), (5,)]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}


def test_an_empty_buffer_gives_empty_tensors(recwarn: pytest.WarningsRecorder) -> None:
    batch = SimpleReplayBuffer(3, 2, 10, 4).sample_batch()
    assert {key: tuple(value.shape) for key, value in batch.items()} == {
        "obs": (0, 3),
        "obs2": (0, 3),
        "act": (0, 2),
        "rew": (0,),
        "done": (0,),
    }
    assert not recwarn.list


def test_rows_stay_aligned_after_several_rounds() -> None:
    buffer = filled(7, 7, count=7 * 5 + 3)
    batch = buffer.sample_batch()
    assert sorted(batch["obs"][:, 0].tolist()) == list(range(31, 38))
    assert_aligned(batch)


def test_every_row_is_equally_likely_at_every_place_of_the_batch() -> None:
    buffer = filled(20, 5, count=33)
    counts = np.zeros((5, 20))
    for _ in range(8000):
        counts[np.arange(5), buffer.sample_batch()["obs"][:, 0].long().numpy() - 13] += 1
    assert chisquare(counts.sum(0)).pvalue > 1e-4
    assert all(chisquare(place).pvalue > 1e-4 for place in counts)


def test_the_cost_of_a_draw_does_not_grow_with_the_buffer() -> None:
    def microseconds(size: int) -> float:
        buffer = SimpleReplayBuffer(2, 1, size, 64)
        buffer.size = size
        best = math.inf
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(20):
                buffer.sample_batch()
            best = min(best, time.perf_counter() - start)
        return best / 20 * 1e6

    assert microseconds(1_000_000) < 5 * microseconds(1_000) + 50  # a permutation of all rows takes 10 ms


@pytest.mark.parametrize(
    "vector", [[1.0, 2.0], np.array([1, 2]), np.array([[1.0, 2.0]]), torch.tensor([1, 2]), torch.ones(1, 2) * 1.5]
)
@pytest.mark.parametrize("wrap", [Act, lambda action: action])
def test_arrays_tensors_and_objects(vector: Any, wrap: Any) -> None:
    buffer = SimpleReplayBuffer(2, 2, 3, 3)
    done = np.bool_(True)
    buffer.store({"obs": vector, "act": wrap(vector), "rew": torch.tensor([3]), "next_obs": vector, "done": done})
    assert buffer.obs_buf[0].tolist() == buffer.obs2_buf[0].tolist() == buffer.act_buf[0].tolist()
    assert (buffer.rew_buf[0], buffer.done_buf[0]) == (3, 1)


def test_a_number_is_an_action_of_one_dimension() -> None:
    buffer = SimpleReplayBuffer(1, 1, 3, 3)
    buffer.store({"obs": 1, "act": np.int64(2), "rew": 0, "next_obs": 1, "done": False})
    assert buffer.act_buf[0, 0] == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_an_action_on_another_device() -> None:
    buffer = SimpleReplayBuffer(1, 1, 3, 3)
    one = torch.ones(1, 1, device="cuda", requires_grad=True)
    buffer.store({"obs": one, "act": Act(one), "rew": one, "next_obs": one, "done": one})
    assert buffer.act_buf[0, 0] == 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"obs": [1.0]}, ConfigError, r"obs: expected shape \(2,\) or \(1, 2\), got \(1,\)"),
        ({"next_obs": [[[1.0, 2.0]]]}, ConfigError, r"next_obs: expected shape"),
        ({"act": Act(None)}, NonFiniteError, "act"),
        ({"act": Act("left")}, ConfigError, "act: expected numbers, got str"),
        ({"rew": math.nan}, NonFiniteError, "rew"),
        ({"next_obs": [1.0, math.inf]}, NonFiniteError, "next_obs"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    buffer = SimpleReplayBuffer(2, 1, 3, 3)
    with pytest.raises(error, match=message):
        buffer.store(transition(1) | change)
    assert (buffer.ptr, buffer.size, buffer.obs_buf.sum()) == (0, 0, 0)


@pytest.mark.parametrize("missing", ["obs", "act", "rew", "next_obs", "done"])
def test_a_missing_key_is_named(missing: str) -> None:
    step = transition(1)
    del step[missing]
    with pytest.raises(ConfigError, match=f"needs '{missing}', got "):
        SimpleReplayBuffer(2, 1, 3, 3).store(step)


@pytest.mark.parametrize("name", ["obs_dim", "act_dim", "size", "batch_size"])
@pytest.mark.parametrize("bad", [0, -1, 3.5, "a", True])
def test_values_out_of_range_are_refused_however_it_is_built(name: str, bad: Any) -> None:
    config = {"obs_dim": 1, "act_dim": 1, "size": 2, "batch_size": 3} | {name: bad}
    for build in (SimpleReplayBuffer.instantiate_from_config_dict, lambda config: SimpleReplayBuffer(**config)):
        with pytest.raises(ConfigError, match=name):
            build(config)


def test_more_than_memory_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(ConfigError, match=r"a buffer of size 1000000000000 needs 25\.\d+ TiB"):
        SimpleReplayBuffer(2, 1, 10**12, 1)


def test_the_size_is_no_parameter_that_can_be_changed() -> None:
    buffer = filled(5, 2)
    buffer.update_parameter("batch_size", 4)
    assert len(buffer.sample_batch()["rew"]) == 4
    with pytest.raises(ConfigError, match="size: fixed once"):
        buffer.update_parameter("size", 3)
    assert buffer.size == 5


def test_numpys_seed_decides_and_is_left_alone() -> None:
    def run() -> tuple[list[list[float]], float]:
        np.random.seed(5)
        buffer = filled(20, 3)
        return [buffer.sample_batch()["rew"].tolist() for _ in range(5)], np.random.random()

    first, second = run(), run()
    assert first == second
    assert first[0][0] != first[0][1]


def test_copies_go_on_alike() -> None:
    buffer = filled(20, 3)
    copied = pickle.loads(pickle.dumps(buffer))
    assert torch.equal(buffer.sample_batch()["obs"], copied.sample_batch()["obs"])
