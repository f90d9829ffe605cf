"""PPOBuffer against the definition of GAE, worked numbers, and a list that remembers every path."""

import copy
import math
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import chisquare
from src.buffers.PPOBuffer import PPOBuffer, discount_cumsum

from pytorchrl.errors import ConfigError, NonFiniteError


@dataclass
class Act:
    """What an agent decided."""

    action: Any = 0.0
    value: Any = 0.0
    logp: Any = 0.0


def new(size: int = 8, batch_size: int = 100, **chosen: Any) -> PPOBuffer:
    return PPOBuffer(1, 1, size, batch_size, **chosen)


def add(buffer: PPOBuffer, obs: float, rew: float = 0.0, value: float = 0.0, **more: Any) -> None:
    buffer.store({"obs": [obs], "act": Act([obs], value, -obs), "rew": rew, **more})


def add_path(buffer: PPOBuffer, rewards: Any, values: Any, v_last: float | None = None, start: int = 0) -> None:
    """A path whose observations count from `start`."""
    for t, (rew, value) in enumerate(zip(rewards, values, strict=True)):
        add(buffer, start + t, rew, value)
    buffer.finish_path(None if v_last is None else Act(value=v_last))


def drawn(buffer: PPOBuffer) -> list[int]:
    return sorted(int(obs) for obs in buffer.sample_batch()["obs"][:, 0])


def definition(rewards: Any, values: Any, v_last: float, gamma: float, lam: float) -> tuple[list[float], list[float]]:
    """Advantages and returns as sums over everything that follows, O(T²)."""
    T = len(rewards)
    successors = [*values[1:], v_last]
    deltas = [rewards[t] + gamma * successors[t] - values[t] for t in range(T)]
    advantages = [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, T)) for t in range(T)]
    returns = [sum(gamma ** (k - t) * rewards[k] for k in range(t, T)) + gamma ** (T - t) * v_last for t in range(T)]
    return advantages, returns


class TestNumbers:
    @pytest.mark.parametrize(
        ("v_last", "adv", "ret"),
        [
            (None, [2.373068, 1.46525, 0.5], [2.9701, 1.99, 1]),
            (2.0, [4.124457, 3.32744, 2.48], [4.910698, 3.9502, 2.98]),
        ],
    )
    def test_worked_example(self, v_last: float | None, adv: list[float], ret: list[float]) -> None:
        buffer = new()
        add_path(buffer, [1, 1, 1], [0.5, 0.5, 0.5], v_last)
        np.testing.assert_allclose(buffer.adv_buf[:3], adv, rtol=1e-6)
        np.testing.assert_allclose(buffer.ret_buf[:3], ret, rtol=1e-6)

    @settings(derandomize=True, deadline=None, max_examples=60)
    @given(
        seed=st.integers(0, 10**6),
        length=st.integers(1, 40),
        gamma=st.sampled_from([0, 0.5, 0.99, 1]),
        lam=st.sampled_from([0, 0.8, 1]),
        bootstrap=st.booleans(),
    )
    def test_definition(self, seed: int, length: int, gamma: float, lam: float, bootstrap: bool) -> None:
        rng = np.random.default_rng(seed)
        rewards, values = rng.normal(size=(2, length)).astype(np.float32)
        v_last = 1.5 if bootstrap else None
        buffer = new(64, gamma=gamma, lam=lam)
        add_path(buffer, rewards, values, v_last)
        advantages, returns = definition(rewards.tolist(), values.tolist(), v_last or 0.0, gamma, lam)
        np.testing.assert_allclose(buffer.adv_buf[:length], advantages, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(buffer.ret_buf[:length], returns, rtol=1e-5, atol=1e-6)

    def test_each_path_is_its_own(self) -> None:
        together, alone = new(), new()
        add_path(together, [5, 6], [1, 2], 3.0)
        add_path(together, [1, 2, 3], [0, 1, 0])
        add_path(alone, [1, 2, 3], [0, 1, 0])
        np.testing.assert_array_equal(together.adv_buf[2:5], alone.adv_buf[:3])
        np.testing.assert_array_equal(together.ret_buf[2:5], alone.ret_buf[:3])

    @pytest.mark.parametrize("discount", [0.0, 0.9, 1.0])
    def test_discount_cumsum_is_a_linear_filter_backwards(self, discount: float) -> None:
        for shape in ((1,), (9,), (7, 3)):
            x = np.random.default_rng(0).normal(size=shape)
            expected = lfilter([1], [1, -discount], x[::-1], axis=0)[::-1]
            np.testing.assert_allclose(discount_cumsum(x, discount), expected, rtol=1e-12, atol=1e-12)


class TestEndOfPath:
    def test_no_action_and_a_terminal_do_not_bootstrap(self) -> None:
        buffers = [new() for _ in range(4)]
        for buffer, done in zip(buffers, (False, True, True, False), strict=True):
            add(buffer, 0, 1.0, 0.5)
            add(buffer, 1, 1.0, 0.5, done=done)
        buffers[0].finish_path()
        buffers[1].finish_path(Act(value=7.0))
        buffers[2].finish_path(Act(value=math.nan))
        buffers[3].finish_path(Act(value=7.0))
        for buffer in buffers[1:3]:
            np.testing.assert_array_equal(buffer.adv_buf, buffers[0].adv_buf)
            np.testing.assert_array_equal(buffer.ret_buf, buffers[0].ret_buf)
        assert buffers[3].ret_buf[1] == pytest.approx(1 + 0.99 * 7)

    def test_an_empty_path_changes_nothing(self) -> None:
        buffer = new()
        buffer.finish_path()
        add_path(buffer, [1, 2], [0, 0])
        before = copy.deepcopy(buffer)
        buffer.finish_path(Act(value=9.0))
        np.testing.assert_array_equal(buffer.adv_buf, before.adv_buf)
        assert (buffer.ptr, buffer.path_start_idx) == (before.ptr, before.path_start_idx) == (2, 2)

    def test_a_bad_last_value_leaves_the_path_open(self) -> None:
        buffer = new()
        add(buffer, 0, 1.0)
        with pytest.raises(NonFiniteError, match=r"action_obj\.value"):
            buffer.finish_path(Act(value=math.inf))
        buffer.finish_path()
        assert buffer.ret_buf[0] == 1

    @pytest.mark.parametrize("lead", range(6))
    @pytest.mark.parametrize("length", [1, 3, 5])
    def test_a_path_that_wraps_is_the_path_of_a_larger_buffer(self, lead: int, length: int) -> None:
        rng = np.random.default_rng(lead)
        small, large = new(5), new(50)
        for buffer in (small, large):
            add_path(buffer, [0.0] * lead, [0.0] * lead)
        rewards, values = rng.normal(size=(2, length))
        for buffer in (small, large):
            add_path(buffer, rewards, values, 2.0, start=100)
        here = (lead + np.arange(length)) % 5
        for name in ("obs_buf", "act_buf", "rew_buf", "val_buf", "logp_buf", "adv_buf", "ret_buf"):
            there = getattr(large, name)[lead : lead + length]
            np.testing.assert_array_equal(getattr(small, name)[here], there)

    def test_of_a_path_longer_than_the_buffer_the_newest_count(self) -> None:
        rewards, values = np.random.default_rng(0).normal(size=(2, 13))
        small, large = new(5), new(50)
        for buffer in (small, large):
            add_path(buffer, [9.0, 9.0], [9.0, 9.0], start=50)
            add_path(buffer, rewards, values, 2.0)
        assert drawn(small) == [8, 9, 10, 11, 12]
        newest = (2 + np.arange(8, 13)) % 5
        np.testing.assert_array_equal(small.ret_buf[newest], large.ret_buf[10:15])
        np.testing.assert_array_equal(small.adv_buf[newest], large.adv_buf[10:15])


class TestSampling:
    def test_batch(self) -> None:
        buffer = PPOBuffer(3, 2, 10, 4)
        for t in range(6):
            buffer.store({"obs": np.full(3, t), "act": Act(np.full(2, 10 * t), t, -t), "rew": 1})
        buffer.finish_path()
        batch = buffer.sample_batch()
        assert list(batch) == ["obs", "act", "ret", "adv", "logp"]
        assert {key: tuple(value.shape) for key, value in batch.items()} == {
            "obs": (4, 3),
            "act": (4, 2),
            "ret": (4,),
            "adv": (4,),
            "logp": (4,),
        }
        assert {value.dtype for value in batch.values()} == {torch.float32}
        t = batch["obs"][:, 0].long()
        assert len(set(t.tolist())) == 4
        assert torch.equal(batch["act"][:, 1], 10.0 * t)
        assert torch.equal(batch["logp"], -t.float())
        assert torch.equal(batch["ret"], torch.from_numpy(buffer.ret_buf)[t])

    def test_the_return_is_no_reward(self) -> None:
        buffer = new()
        add_path(buffer, [1, 1, 1], [0, 0, 0])
        assert sorted(buffer.sample_batch()["ret"].tolist()) == pytest.approx([1, 1.99, 2.9701])

    def test_advantages_are_normalized_with_the_population_std(self) -> None:
        buffer = new(gamma=0, eps=0.25)
        add_path(buffer, [1, 2, 6], [0, 0, 0])
        batch = buffer.sample_batch()
        raw = torch.tensor([1.0, 2.0, 6.0])[batch["obs"][:, 0].long()]
        torch.testing.assert_close(batch["adv"], (raw - 3) / (math.sqrt(14 / 3) + 0.25))

    def test_repeated_draws_do_not_drift(self) -> None:
        buffer = new()
        add_path(buffer, [1, 2, 6], [0, 1, 0])
        advantages = buffer.adv_buf.copy()
        draws = [buffer.sample_batch() for _ in range(20)]
        np.testing.assert_array_equal(buffer.adv_buf, advantages)
        for batch in draws:
            order = batch["obs"][:, 0].argsort()
            torch.testing.assert_close(batch["adv"][order], draws[0]["adv"][draws[0]["obs"][:, 0].argsort()])
        draws[0]["obs"].fill_(77)
        assert drawn(buffer) == [0, 1, 2]

    @pytest.mark.parametrize("eps", [0, 0.001])
    @pytest.mark.parametrize("rewards", [[0.1], [0.1, 0.1, 0.1]])
    def test_equal_advantages_become_zero(self, eps: float, rewards: list[float]) -> None:
        buffer = new(gamma=0, eps=eps)
        add_path(buffer, rewards, [0] * len(rewards))
        assert buffer.sample_batch()["adv"].tolist() == pytest.approx([0] * len(rewards), abs=1e-6)

    def test_an_empty_buffer_gives_empty_tensors(self, recwarn: pytest.WarningsRecorder) -> None:
        buffer = PPOBuffer(3, 2, 10, 4)
        for _ in range(2):
            batch = buffer.sample_batch()
            assert {key: tuple(value.shape) for key, value in batch.items()} == {
                "obs": (0, 3),
                "act": (0, 2),
                "ret": (0,),
                "adv": (0,),
                "logp": (0,),
            }
            buffer.store({"obs": [1, 1, 1], "act": Act([0, 0]), "rew": 1})  # unfinished
        assert not recwarn.list

    def test_unfinished_rows_are_neither_drawn_nor_in_the_statistics(self) -> None:
        buffer = new(gamma=0)
        add_path(buffer, [1, 2, 6], [0, 0, 0])
        alone = buffer.sample_batch()["adv"].sort().values
        buffer = new(gamma=0)
        add_path(buffer, [1, 2, 6], [0, 0, 0])
        add(buffer, 70, 1000.0)
        add(buffer, 71, 1000.0)
        assert drawn(buffer) == [0, 1, 2]
        torch.testing.assert_close(buffer.sample_batch()["adv"].sort().values, alone)

    def test_an_open_path_that_overwrites_takes_the_oldest_rows(self) -> None:
        buffer = new(5)
        add_path(buffer, [0] * 4, [0] * 4)
        for t in range(3):
            add(buffer, 50 + t)
        assert drawn(buffer) == [2, 3]
        buffer.finish_path()
        assert drawn(buffer) == [2, 3, 50, 51, 52]

    def test_every_finished_row_is_equally_likely(self) -> None:
        buffer = new(20, 4)
        add_path(buffer, [0] * 15, [0] * 15)
        add_path(buffer, [0] * 10, [0] * 10, start=15)
        counts = np.zeros(25)
        for _ in range(5000):
            rows = drawn(buffer)
            assert len(set(rows)) == 4
            counts[rows] += 1
        assert counts[:5].sum() == 0
        assert chisquare(counts[5:]).pvalue > 1e-4


class TestEpochs:
    def test_a_draw_with_no_path_open_ends_the_epoch(self) -> None:
        buffer = new(5)
        add_path(buffer, [0] * 4, [0] * 4)
        assert drawn(buffer) == [0, 1, 2, 3]
        assert (buffer.ptr, buffer.path_start_idx) == (0, 0)
        assert drawn(buffer) == [0, 1, 2, 3]  # still readable
        buffer.finish_path()  # empty
        assert drawn(buffer) == [0, 1, 2, 3]
        add(buffer, 50)
        assert buffer.ptr == 1
        assert drawn(buffer) == []
        buffer.finish_path()
        assert drawn(buffer) == [50]

    def test_a_draw_with_a_path_open_moves_no_pointer(self) -> None:
        buffer = new(5)
        add_path(buffer, [0, 0], [0, 0])
        add(buffer, 50, 1.0)
        assert drawn(buffer) == [0, 1]
        assert (buffer.ptr, buffer.path_start_idx) == (3, 2)
        add(buffer, 51, 1.0)
        buffer.finish_path()
        assert buffer.ret_buf[2] == pytest.approx(1.99)
        assert drawn(buffer) == [0, 1, 50, 51]

    def test_the_epoch_after_a_wrap_starts_at_row_zero(self) -> None:
        buffer = new(5)
        add_path(buffer, [0] * 7, [0] * 7)
        assert buffer.ptr == 2
        assert drawn(buffer) == drawn(buffer) == [2, 3, 4, 5, 6]
        add_path(buffer, [0, 0], [0, 0], start=50)
        assert buffer.obs_buf[:2, 0].tolist() == [50, 51]
        assert drawn(buffer) == [50, 51]

    @settings(derandomize=True, deadline=None, max_examples=200)
    @given(size=st.integers(1, 6), commands=st.lists(st.sampled_from(["store", "finish", "sample"]), max_size=60))
    def test_against_a_list(self, size: int, commands: list[str]) -> None:
        """The model: rows in order, each finished or not; the newest `size` of them exist."""
        buffer = new(size)
        finished: list[int] = []
        path: list[int] = []
        ended = False
        for t, command in enumerate(commands):
            if command == "store":
                if ended:
                    finished, ended = [], False
                add(buffer, t, rew=1.0)
                path = [*path, t][-size:]
                finished = finished[max(0, len(finished) + len(path) - size) :]
            elif command == "finish":
                buffer.finish_path()
                finished, path = finished + path, []
            else:
                ended = ended or not path
                assert drawn(buffer) == finished
                batch = buffer.sample_batch()
                assert torch.equal(batch["logp"], -batch["obs"][:, 0])
                assert torch.equal(batch["act"], batch["obs"])
            assert buffer.path_length == len(path)


class TestWhatIsStored:
    @pytest.mark.parametrize(
        "scalar", [2.5, np.float32(2.5), np.array(2.5), np.array([2.5]), torch.tensor(2.5), torch.tensor([[2.5]])]
    )
    @pytest.mark.parametrize("vector", [[1.0, 2.0], np.array([1, 2]), np.array([[1.0, 2.0]]), torch.tensor([[1, 2]])])
    def test_shapes_and_types(self, scalar: Any, vector: Any) -> None:
        buffer = PPOBuffer(2, 2, 3, 3)
        buffer.store({"obs": vector, "act": Act(vector, scalar, scalar), "rew": scalar, "done": False, "more": None})
        buffer.finish_path(Act(value=scalar))
        assert buffer.obs_buf[0].tolist() == buffer.act_buf[0].tolist() == [1, 2]
        assert buffer.rew_buf[0] == buffer.val_buf[0] == buffer.logp_buf[0] == 2.5
        assert buffer.ret_buf[0] == pytest.approx(2.5 + 0.99 * 2.5)

    def test_tensors_that_need_a_gradient_or_have_another_dtype(self) -> None:
        buffer = PPOBuffer(2, 1, 3, 3)
        value = torch.ones(1, requires_grad=True) * 2
        buffer.store({"obs": torch.ones(2, dtype=torch.bfloat16), "act": Act(np.int64(1), value, value), "rew": 1})
        assert (buffer.val_buf[0], buffer.act_buf[0, 0]) == (2, 1)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
    def test_tensors_on_another_device(self) -> None:
        buffer = new()
        one = torch.ones(1, device="cuda")
        buffer.store({"obs": one, "act": Act(one, one, one), "rew": one})
        assert buffer.act_buf[0, 0] == 1

    def test_what_is_stored_is_a_copy(self) -> None:
        buffer = new()
        obs = np.ones(1, np.float32)
        buffer.store({"obs": obs, "act": Act(obs), "rew": 0})
        obs[:] = 5
        assert buffer.obs_buf[0] == buffer.act_buf[0] == 1

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"obs": [1, 2, 3]}, r"obs: expected shape \(2,\) or \(1, 2\), got \(3,\)"),
            ({"obs": [[1], [2]]}, r"obs: expected shape \(2,\) or \(1, 2\), got \(2, 1\)"),
            ({"obs": "text"}, "obs: expected numbers, got str"),
            ({"obs": object()}, "obs: expected numbers, got object"),
            ({"rew": [1, 2]}, r"rew: expected shape \(1,\)"),
            ({"act": [1.0]}, r"act: expected an object with \.action, \.value and \.logp, got list"),
            ({"act": Act([1.0, 2.0])}, r"act\.action: expected shape \(1,\)"),
            ({"act": Act(value=[1.0, 2.0])}, r"act\.value: expected shape \(1,\)"),
        ],
    )
    def test_what_does_not_fit_is_refused_and_changes_nothing(self, change: dict[str, Any], message: str) -> None:
        buffer = PPOBuffer(2, 1, 3, 3)
        with pytest.raises(ConfigError, match=message):
            buffer.store({"obs": [1, 2], "act": Act(), "rew": 1} | change)
        assert (buffer.ptr, buffer.path_length, buffer.obs_buf.sum()) == (0, 0, 0)

    @pytest.mark.parametrize("field", ["obs", "rew", "done", "act.action", "act.value", "act.logp"])
    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_what_is_not_finite_is_refused_and_changes_nothing(self, field: str, bad: float) -> None:
        step: dict[str, Any] = {"obs": 1, "act": Act(), "rew": 1, "done": 0}
        if field.startswith("act."):
            setattr(step["act"], field[4:], bad)
        else:
            step[field] = bad
        buffer = new()
        with pytest.raises(NonFiniteError, match=field):
            buffer.store(step)
        assert (buffer.ptr, buffer.path_length) == (0, 0)

    @pytest.mark.parametrize("missing", ["obs", "act", "rew"])
    def test_a_missing_key_is_named(self, missing: str) -> None:
        step = {"obs": 1, "act": Act(), "rew": 1}
        del step[missing]
        with pytest.raises(ConfigError, match=f"needs '{missing}'"):
            new().store(step)


class TestConstruction:
    @pytest.mark.parametrize(
        "change",
        [
            *({name: bad} for name in ("obs_dim", "act_dim", "size", "batch_size") for bad in (0, -1, 3.5, "a", True)),
            *({name: bad} for name in ("gamma", "lam") for bad in (-0.1, 1.1, math.nan, "0.9", None)),
            *({"eps": bad} for bad in (-1e-9, math.inf)),
        ],
    )
    def test_values_out_of_range_are_refused_however_it_is_built(self, change: dict[str, Any]) -> None:
        config = {"obs_dim": 1, "act_dim": 1, "size": 2, "batch_size": 3} | change
        for build in (PPOBuffer.instantiate_from_config_dict, lambda config: PPOBuffer(**config)):
            with pytest.raises(ConfigError, match=next(iter(change))):
                build(config)

    def test_more_than_memory_is_refused_before_it_is_allocated(self) -> None:
        with pytest.raises(ConfigError, match="a buffer of size 1000000000000 needs"):
            new(10**12)

    def test_a_parameter_that_may_change_changes_the_next_result(self) -> None:
        buffer = new()
        buffer.update_parameter("gamma", 0)
        buffer.update_parameter("batch_size", 2)
        add_path(buffer, [1, 1, 1], [0, 0, 0])
        assert buffer.ret_buf[:3].tolist() == [1, 1, 1]
        assert len(drawn(buffer)) == 2
        with pytest.raises(ConfigError, match="size: fixed once a PPOBuffer is built"):
            buffer.update_parameter("size", 3)
        with pytest.raises(ConfigError, match="gamma"):
            buffer.update_parameter("gamma", 2)

    def test_numpys_seed_decides_and_is_left_alone(self) -> None:
        def run() -> tuple[list[list[int]], float]:
            np.random.seed(5)
            buffer = new(20, 3)
            after = np.random.get_state()[1].tolist()  # type: ignore[union-attr]
            add_path(buffer, [0] * 20, [0] * 20)
            draws = [drawn(buffer) for _ in range(5)]
            assert np.random.get_state()[1].tolist() == after  # type: ignore[union-attr]
            return draws, np.random.random()

        first, second = run(), run()
        assert first == second
        assert len({tuple(draw) for draw in first[0]}) > 1

    def test_copies_go_on_alike(self) -> None:
        buffer = new(20, 3)
        add_path(buffer, [0] * 20, [0] * 20)
        copied = pickle.loads(pickle.dumps(buffer))
        assert [drawn(buffer) for _ in range(5)] == [drawn(copied) for _ in range(5)]
