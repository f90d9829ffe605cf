"""PPODBuffer: which demonstrations are kept and drawn, and what their replay leaves in a rollout."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy.stats import chisquare
from tests.agent.storages.demo_world import buffer, live, save, scheme

from pytorchrl.agent.storages import PPODBuffer
from pytorchrl.agent.storages.demos import MAX_VALUE, TOTAL, OpenEpisodes, value_probabilities
from pytorchrl.errors import RLError
from pytorchrl.keys import ACT, OBS, REW


def totals(demos: list[dict[str, Any]]) -> list[float]:
    return [demo[TOTAL] for demo in demos]


class TestWhichDemosAreKept:
    def test_an_episode_that_earned_something(self) -> None:
        storage = buffer()
        live(storage, [0.0, 0.5, -1.0, 2.0, -0.25, 0.0])
        (demo,) = storage.reward_demos
        assert demo[TOTAL] == 1.5
        assert demo["DemoLength"] == 4
        assert demo[OBS].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3]]
        assert demo[ACT].tolist() == [[3]] * 4
        assert demo[REW].flatten().tolist() == [0.0, 0.5, -1.0, 2.0]
        assert storage.value_demos == []

    def test_an_episode_that_earned_nothing(self) -> None:
        storage = buffer()
        live(storage, [0.0, -1.0, 0.0], values=[0.5, 3.0, -4.0])
        (demo,) = storage.value_demos
        assert (demo[MAX_VALUE], demo["DemoLength"]) == (3.0, 3)
        assert storage.reward_demos == []

    @pytest.mark.parametrize(("threshold", "kept"), [(None, 0), (0.0, 2), (0.5, 1), (-2.0, 3)])
    def test_a_threshold_of_0_is_one(self, threshold: float | None, kept: int) -> None:
        storage = buffer(initial_reward_threshold=threshold)
        for rewards in ([-1.0, 0.0], [0.0, 0.0], [0.0, 1.0]):  # what earned more raises the threshold: it comes last
            live(storage, rewards)
        assert len(storage.reward_demos) == (1 if threshold is None else kept)

    def test_the_threshold_is_the_largest_of_what_is_known(self, tmp_path: Path) -> None:
        save(tmp_path, "a", Reward=np.array([0, 0, 0, 3.0]))
        save(tmp_path, "b", Reward=np.array([0, 0, 0, 2.0]))
        storage = buffer(initial_human_demos_dir=str(tmp_path))
        assert storage.reward_threshold == 2.0
        live(storage, [1.5])
        assert (len(storage.reward_demos), len(storage.value_demos)) == (2, 1)
        live(storage, [2.0])
        assert (len(storage.reward_demos), len(storage.value_demos)) == (3, 1)
        assert buffer(initial_human_demos_dir=str(tmp_path), initial_reward_threshold=5).reward_threshold == 5

    def test_the_threshold_rises_with_the_worst_demo(self) -> None:
        storage = buffer(total_buffer_demo_capacity=2)
        for earned in (1.0, 2.0, 3.0, 1.5):
            live(storage, [earned])
        assert totals(storage.reward_demos) == [2.0, 3.0]
        assert storage.reward_threshold == 2.0

    def test_value_demos_go_first_then_the_worst_and_longest_of_the_agents(self, tmp_path: Path) -> None:
        save(tmp_path / "human", Reward=np.array([0.5, 0, 0, 0]))
        storage = buffer(total_buffer_demo_capacity=4, initial_human_demos_dir=str(tmp_path / "human"))
        live(storage, [0.0], [1.0])
        live(storage, [0.0], [3.0])
        live(storage, [0.0], [2.0])
        live(storage, [0.0], [0.5])  # no room, and nobody is worth less
        assert [demo[MAX_VALUE] for demo in storage.value_demos] == [1.0, 3.0, 2.0]
        live(storage, [0.0], [2.5])
        assert [demo[MAX_VALUE] for demo in storage.value_demos] == [3.0, 2.0, 2.5]
        for rewards in ([1.0], [0.0, 1.0], [1.0]):
            live(storage, rewards)
        assert storage.value_demos == []
        assert [(demo[TOTAL], demo["DemoLength"]) for demo in storage.reward_demos] == [
            (0.5, 4),
            (1, 1),
            (1, 2),
            (1, 1),
        ]
        live(storage, [2.0])
        assert [(demo[TOTAL], demo["DemoLength"]) for demo in storage.reward_demos] == [
            (0.5, 4),
            (1, 1),
            (1, 1),
            (2, 1),
        ]
        for _ in range(5):
            live(storage, [9.0])
        assert totals(storage.reward_demos) == [0.5, 9.0, 9.0, 9.0]  # the human's stays
        live(storage, [0.0], [99.0])
        assert storage.value_demos == []

    def test_after_anything_the_capacity_holds_and_the_shares_add_up(self) -> None:
        storage, random = buffer(total_buffer_demo_capacity=5), np.random.default_rng(0)
        for _ in range(60):
            length = int(random.integers(1, 5))
            live(storage, random.normal(size=length).tolist(), random.normal(size=length).tolist())
            assert len(storage.reward_demos) + len(storage.value_demos) <= 5
            assert storage.rho + storage.phi == pytest.approx(0.4)
            assert storage.rho >= 0.1
            assert storage.phi >= 0
        storage.update_storage_parameter("total_buffer_demo_capacity", 2)
        assert len(storage.reward_demos) + len(storage.value_demos) == 2

    def test_annealing_step_by_step(self, tmp_path: Path) -> None:
        save(tmp_path)
        storage = buffer(initial_human_demos_dir=str(tmp_path))
        for added in range(1, 53):
            live(storage, [1.0 + added])
            assert storage.rho == pytest.approx(min(0.1 + 0.3 * added / 50, 0.4))
            assert storage.phi == pytest.approx(max(0.3 - 0.3 * added / 50, 0.0))
        assert storage.phi == 0.0
        full = buffer(initial_human_demos_dir=str(tmp_path), total_buffer_demo_capacity=1)
        live(full, [5.0])
        assert (full.rho, full.phi) == (0.1, 0.3)

    def test_only_the_open_episodes_are_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pytorchrl.agent.storages.demos.LONGEST_EPISODE", 1000)
        episodes = OpenEpisodes()
        for t in range(3000):
            episodes.append({REW: torch.tensor([[t], [-t]])})
            if t % 100 == 99:
                assert episodes.episode(0)[REW].flatten().tolist() == list(range(t - 99, t + 1))  # type: ignore[index]
                episodes.begin(0)
        assert episodes.episode(1) is None  # it was too long
        assert len(episodes.columns[REW]) <= 4096
        episodes.begin(1)
        episodes.append({REW: torch.tensor([[7], [8]])})
        assert episodes.episode(1)[REW].tolist() == [[8]]  # type: ignore[index]


class TestDraws:
    def test_sources_and_value_demos_in_proportion(self, tmp_path: Path) -> None:
        save(tmp_path, "a")
        save(tmp_path, "b")
        storage = buffer(initial_human_demos_dir=str(tmp_path), alpha=2)
        for value in (1.0, 2.0, 3.0):
            live(storage, [0.0], [value])
        count = 100_000
        drawn: Counter[Any] = Counter()
        for _ in range(count):
            demo = storage.sample_demo(0)
            drawn[None if demo is None else demo["ID"]] += 1
        first, second = (demo["ID"] for demo in storage.reward_demos)
        values = [demo["ID"] for demo in storage.value_demos]
        expected = {None: 0.6, first: 0.05, second: 0.05}
        expected |= dict(zip(values, (0.3 * 1 / 14, 0.3 * 4 / 14, 0.3 * 9 / 14), strict=True))
        assert chisquare([drawn[key] for key in expected], [count * p for p in expected.values()]).pvalue > 1e-4

    @pytest.mark.parametrize("lists", ["reward", "value"])
    def test_an_empty_list_means_a_real_episode(self, lists: str) -> None:
        storage = buffer(rho=0.5, phi=0.5)
        live(storage, [0.0 if lists == "value" else 1.0])
        share = sum(storage.sample_demo(0) is not None for _ in range(4000)) / 4000
        assert share == pytest.approx(storage.phi if lists == "value" else storage.rho, abs=0.03)

    @pytest.mark.parametrize("alpha", [1, 2, 9, 10])
    def test_negative_values_keep_their_order(self, alpha: float) -> None:
        found = value_probabilities([-3.0, -1.0, 2.0], alpha)
        expected = np.array([0.0, 2.0, 5.0]) ** alpha
        assert found == pytest.approx(expected / expected.sum())

    def test_extremes(self) -> None:
        assert value_probabilities([0.0, 0.0], 10).tolist() == [0.5, 0.5]
        assert value_probabilities([-1.0, -1.0], 10).tolist() == [0.5, 0.5]
        assert value_probabilities([1.0, 2.0], 0).tolist() == [0.5, 0.5]
        assert value_probabilities([1e-300, 1e-290, 2e-290], 200)[2] == pytest.approx(1.0)
        assert value_probabilities([1e200, 2e200], 1000).tolist() == pytest.approx([0.0, 1.0])

    @pytest.mark.parametrize(("rho", "phi"), [(0.6, 0.5), (1.1, 0.0), (-0.1, 0.3)])
    def test_shares_of_more_than_1_are_refused(self, rho: float, phi: float) -> None:
        with pytest.raises(ValueError, match=r"rho|phi"):
            PPODBuffer(8, "cpu", SimpleNamespace(is_recurrent=False), None, None, rho, phi)  # type: ignore[arg-type]

    def test_parameters_change_at_once(self) -> None:
        storage = buffer()
        storage.update_storage_parameter("rho", 0.7)
        assert storage.rho == 0.7
        with pytest.raises(ValueError, match="together at most 1"):
            storage.update_storage_parameter("phi", 0.4)
        with pytest.raises(ValueError, match="Did you mean 'alpha'"):
            storage.update_storage_parameter("alhpa", 3)


class TestRequestsThatCannotWork:
    @pytest.mark.parametrize(
        ("changed", "told"),
        [
            ({"normalize_rewards": True}, "cannot be normalized"),
            ({"rho": 0.5, "phi": 0.5}, "no episode would be real"),
        ],
    )
    def test_with_a_collector(self, changed: dict[str, Any], told: str) -> None:
        with pytest.raises(ValueError, match=told):
            scheme(**changed)

    def test_environments_that_cannot_wait(self) -> None:
        with pytest.raises(ValueError, match="none can wait"):
            buffer().check_collection(SimpleNamespace(backend_name="vector"), False)

    def test_a_capacity_below_the_demos_of_humans(self, tmp_path: Path) -> None:
        save(tmp_path)
        with pytest.raises(ValueError, match="demos of humans"):
            buffer(initial_human_demos_dir=str(tmp_path)).update_storage_parameter("total_buffer_demo_capacity", 0)

    @pytest.mark.parametrize("dtypes", [{"Observation": "words"}, {"Observation": object}, {"Reword": "float32"}])
    def test_number_types(self, dtypes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="demo_dtypes"):
            buffer(demo_dtypes=dtypes)


def test_supplementary_demos(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Taken up once if they earned enough; what cannot be read is said once, and tried again."""
    storage = buffer(supplementary_demos_dir=str(tmp_path), initial_reward_threshold=1.0)
    save(tmp_path, "good")
    save(tmp_path, "poor", Reward=np.array([0, 0, 0, 0.5]))
    whole = save(tmp_path, "slow", Reward=np.array([0, 0, 0, 2.0])).read_bytes()
    (tmp_path / "slow.npz").write_bytes(whole[: len(whole) // 2])
    with caplog.at_level(logging.WARNING, logger="pytorchrl"):
        for _ in range(3):
            live(storage, [0.0])
            storage.before_gradients()
            assert totals(storage.reward_demos) == [1.0]
    assert len(caplog.records) == 1
    assert "slow.npz" in caplog.text
    (tmp_path / "slow.npz").write_bytes(whole)
    storage.before_gradients()
    assert totals(storage.reward_demos) == [1.0, 2.0]
    assert storage.rho == pytest.approx(0.1 + 2 * 0.3 / 51)


def test_the_best_are_saved_and_load_again(tmp_path: Path) -> None:
    save(tmp_path / "human", Reward=np.array([9.0, 0, 0, 0]))
    chosen = {"num_agent_demos_to_save": 2, "save_demos_every": 3, "initial_reward_threshold": 0.5}
    storage = buffer(target_agent_demos_dir=str(tmp_path / "new" / "best"), **chosen)
    for earned in (1.0, 3.0, 2.0):
        live(storage, [0.0, earned])
    for _ in range(3):
        assert not (tmp_path / "new").exists()
        storage.before_gradients()
    assert sorted(path.name for path in (tmp_path / "new" / "best").iterdir()) == [
        "reward_demo_1.npz",
        "reward_demo_2.npz",
    ]
    again = buffer(
        initial_human_demos_dir=str(tmp_path / "human"), initial_agent_demos_dir=str(tmp_path / "new" / "best")
    )
    assert totals(again.reward_demos) == [9.0, 3.0, 2.0]
    assert again.num_human_demos == 1
    for key in (OBS, ACT, REW):
        np.testing.assert_array_equal(again.reward_demos[1][key], storage.reward_demos[1][key])
    with np.load(tmp_path / "new" / "best" / "reward_demo_1.npz") as file:
        assert file["Action"].dtype == np.int64
        assert (file["FrameSkip"], file["FrameStack"]) == (0, 1)


def test_collection_workers_save_beside_each_other(tmp_path: Path) -> None:
    for worker in (1, 2):
        vector, choices = spaces.Box(-9, 9, (2,)), spaces.Discrete(5)
        envs = SimpleNamespace(num_envs=1, observation_space=vector, action_space=choices, env_kwargs={})
        envs.index_col_worker = worker
        storage = buffer(envs=envs, target_agent_demos_dir=str(tmp_path), save_demos_every=1)
        live(storage, [1.0])
        storage.before_gradients()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reward_demo_1.npz", "reward_demo_1_2.npz"]
    assert scheme(num_envs=1).envs.index_col_worker == 1


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    storage = buffer(target_agent_demos_dir=str(tmp_path / "file" / "best"), save_demos_every=1)
    live(storage, [1.0])
    with pytest.raises(RLError, match="best: demos cannot be saved"):
        storage.before_gradients()
