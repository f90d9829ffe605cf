"""The sum tree against a plain list."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scipy.stats import chisquare

from pytorchrl.functional import SumTree


def filled(values: list[float]) -> SumTree:
    tree = SumTree(len(values))
    tree.set(range(len(values)), values)
    return tree


def first_above(values: list[float], x: float) -> int:
    """First index whose cumulative sum exceeds x."""
    total = 0.0
    for i, value in enumerate(values):
        total += value
        if total > x:
            return i
    return max(i for i, value in enumerate(values) if value > 0)


class AgainstAList(RuleBasedStateMachine):
    """Priorities are small multiples of 1/8, so that every sum is exact and ties are hit."""

    @initialize(capacity=st.integers(1, 20))
    def build(self, capacity: int) -> None:
        self.tree, self.model = SumTree(capacity), [0.0] * capacity

    @rule(data=st.data(), size=st.integers(0, 6))
    def set(self, data: st.DataObject, size: int) -> None:
        indices = data.draw(st.lists(st.integers(0, len(self.model) - 1), min_size=size, max_size=size))
        values = [v / 8 for v in data.draw(st.lists(st.integers(0, 24), min_size=size, max_size=size))]
        self.tree.set(indices, values)
        for i, value in zip(indices, values, strict=True):
            self.model[i] = value

    @rule(data=st.data())
    def set_all_to_one_value(self, data: st.DataObject) -> None:
        value = data.draw(st.integers(0, 3))
        self.tree.set(range(len(self.model)), value)
        self.model = [float(value)] * len(self.model)

    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        bad = data.draw(st.sampled_from([-1.0, -1e-9, math.nan, math.inf, -math.inf]))
        with pytest.raises(ValueError, match="finite"):
            self.tree.set([0, len(self.model) - 1], [1.0, bad])

    @rule()
    def save_and_load(self) -> None:
        state = self.tree.get_state()
        self.tree = SumTree(len(self.model))
        self.tree.set(range(len(self.model)), 5.0)  # what stood there before is gone
        self.tree.set_state(state)
        state["leaves"].fill_(-1.0)

    @precondition(lambda self: sum(self.model) > 0)
    @rule()
    def query_everywhere(self) -> None:
        x = np.arange(0, sum(self.model) + 1, 1 / 16)
        found = self.tree.query(x)
        assert found.tolist() == [first_above(self.model, value) for value in x]

    @precondition(lambda self: sum(self.model) == 0)
    @rule()
    def an_empty_tree_has_nothing_to_find(self) -> None:
        with pytest.raises(ValueError, match="every priority is 0"):
            self.tree.query([0.0])

    @invariant()
    def equals_the_list(self) -> None:
        assert self.tree.get(range(len(self.model))).tolist() == self.model
        assert self.tree.total == sum(self.model)


TestAgainstAList = AgainstAList.TestCase


def test_queries_of_dopamine(oracles: dict[str, Any]) -> None:
    f = oracles["dopamine sum_tree_test.py"]
    tree = filled(f["leaves"])
    assert tree.total == f["root"]
    for x, leaf in f["query"].items():
        assert tree.query(float(x)) == leaf
    tree.set(0, 0.25)
    assert tree.total == f["after_set0_025"]["root"]
    for x, leaf in f["after_set0_025"]["query"].items():
        assert tree.query(float(x)) == leaf
    assert f["ones8"]["query_k_returns_k"]
    assert filled([1.0] * 8).query(np.arange(8)).tolist() == list(range(8))


def test_of_duplicate_indices_the_last_one_wins() -> None:
    tree = SumTree(5)
    tree.set([3, 1, 3, 3], [9.0, 2.0, 7.0, 0.5])
    assert tree.get(range(5)).tolist() == [0.0, 2.0, 0.0, 0.5, 0.0]
    assert tree.total == 2.5


@given(
    st.lists(st.sampled_from([0.0, 0.0, 1e-300, 1e-9, 0.1, 0.3, 1.0, 1e9]), min_size=1, max_size=40).filter(any),
    st.integers(0, 99),
)
def test_no_rounding_leads_to_an_empty_leaf(values: list[float], seed: int) -> None:
    tree = filled(values)
    edges = np.cumsum(values)
    x = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf), [0.0, tree.total, 2 * tree.total]])
    x = np.append(x, np.random.default_rng(seed).random(100) * tree.total)
    found = tree.query(x)
    assert found.max() < len(values)
    assert (tree.get(found) > 0).all()


@pytest.mark.parametrize("capacity", [1, 7, 100])
def test_draws_follow_the_priorities(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    priorities = rng.random(capacity) + 0.05
    priorities[1::5] = 0.0
    tree = filled(priorities.tolist())
    counts = np.bincount(tree.query(rng.random(100_000) * tree.total), minlength=capacity)
    assert (counts[priorities == 0] == 0).all()
    alive = priorities > 0
    expected = priorities[alive] / priorities.sum() * 100_000
    assert alive.sum() == 1 or chisquare(counts[alive], expected).pvalue > 1e-4


def test_a_million_updates_leave_no_drift() -> None:
    rng = np.random.default_rng(0)
    tree = SumTree(1000)
    for _ in range(1000):
        tree.set(rng.integers(1000, size=1000), 10.0 ** rng.uniform(-6, 6, size=1000))
    tree.set(range(1000), 0.1)
    assert tree.total == pytest.approx(100.0, rel=1e-14)


def test_shapes_are_kept() -> None:
    tree = filled([1.0, 2.0, 3.0])
    assert tree.query(np.zeros((4, 2))).shape == (4, 2)
    assert tree.get(np.zeros((4, 2), dtype=int)).shape == (4, 2)
    assert tree.query([]).shape == (0,)


@pytest.mark.parametrize("index", [-1, 3, 4])
def test_indices_outside_are_refused(index: int) -> None:
    tree = filled([1.0, 2.0, 3.0])  # four leaves in memory: the fourth is not for sale
    with pytest.raises(IndexError, match=r"outside \[0, 3\)"):
        tree.get([0, index])
    with pytest.raises(IndexError, match=r"outside \[0, 3\)"):
        tree.set([0, index], 1.0)
    assert tree.total == 6.0


@pytest.mark.parametrize("x", [-0.5, math.nan])
def test_queries_below_zero_are_refused(x: float) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        filled([0.0, 1.0]).query([0.5, x])


def test_capacity_and_state_are_checked() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        SumTree(0)
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(4,\)"):
        SumTree(4).set_state(SumTree(3).get_state())
