"""Statistics of few runs, against numbers known from elsewhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import trim_mean

from pytorchrl.report.statistics import curve_of, interval_of, iqm, profile_of, resampled


class TestIqm:
    @pytest.mark.parametrize(
        ("scores", "mean"),
        [([3.0], 3.0), ([1.0, 2.0, 6.0], 3.0), ([0.0, 1.0, 3.0, 100.0], 2.0), ([8, 1, 7, 2, 6, 3, 5, 4], 4.5)],
    )
    def test_by_hand(self, scores: list[float], mean: float) -> None:
        assert iqm(scores) == mean

    @pytest.mark.parametrize("count", [1, 2, 5, 11, 40])
    def test_it_is_the_mean_trimmed_by_a_quarter(self, count: int) -> None:
        scores = np.random.default_rng(count).normal(size=(count, 3))
        assert iqm(scores, axis=0) == pytest.approx(trim_mean(scores, 0.25, axis=0))
        assert iqm(scores) == pytest.approx(trim_mean(scores.reshape(-1), 0.25))


class TestBootstrap:
    def test_interval_of_all_resamples(self) -> None:
        """Every resample of four scores is as likely: 4^4 of them, written out."""
        scores = np.array([1.0, 2.0, 4.0, 8.0])
        every = [iqm(np.array(drawn)) for drawn in itertools.product(scores, repeat=4)]
        low, high = np.quantile(every, [0.025, 0.975])
        found = interval_of([scores], repetitions=40_000)
        assert found.center == 3.0
        assert (found.low, found.high) == pytest.approx((low, high), abs=0.06)

    def test_mean_of_normal_scores(self) -> None:
        """The bootstrap of a mean is normal with the scores' standard deviation over √n."""
        scores = np.random.default_rng(0).normal(10.0, 2.0, size=400)
        found = interval_of([scores], np.mean, repetitions=20_000)
        half = 1.95996 * scores.std() / np.sqrt(len(scores))
        assert found == pytest.approx((scores.mean() - half, scores.mean(), scores.mean() + half), abs=0.015)

    def test_strata_keep_their_sizes(self) -> None:
        drawn = resampled([np.zeros(3), np.ones(5)], repetitions=50)
        assert drawn.shape == (50, 8)
        assert (drawn.sum(axis=1) == 5).all()
        assert interval_of([np.zeros(3), np.ones(5)], np.mean) == (0.625, 0.625, 0.625)

    def test_the_seed_decides(self) -> None:
        scores = [np.arange(10.0)]
        assert interval_of(scores, seed=1) == interval_of(scores, seed=1) != interval_of(scores, seed=2)

    def test_one_run_has_no_spread(self) -> None:
        assert interval_of([np.array([7.0])]) == (7.0, 7.0, 7.0)

    def test_curves_are_scored_point_by_point(self) -> None:
        curves = np.random.default_rng(3).normal(size=(5, 4))
        found = curve_of(curves)
        assert [point.center for point in found] == pytest.approx(trim_mean(curves, 0.25, axis=0))
        assert found[2] == pytest.approx(interval_of([curves[:, 2]]))


class TestProfile:
    def test_by_hand(self) -> None:
        levels = np.array([0.0, 1.0, 2.5, 3.0, 9.0])
        found = profile_of([np.array([1.0, 2.0]), np.array([3.0, 4.0])], levels)
        assert [share.center for share in found] == [1.0, 0.75, 0.5, 0.25, 0.0]
        assert found[0] == (1.0, 1.0, 1.0)
        assert found[3].low == 0.0
        assert found[3].high == 0.5  # one of two tasks alone can score above 3

    def test_intervals_hold_the_share(self) -> None:
        scores = np.random.default_rng(0).uniform(size=30)
        for share in profile_of([scores], np.linspace(0, 1, 11)):
            assert 0.0 <= share.low <= share.center <= share.high <= 1.0
