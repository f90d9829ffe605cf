"""The examples run as they are written, and learn."""

import ast
from pathlib import Path

import pytest
from examples import (
    a2c,
    ddpg,
    ddqn,
    mpc_cem,
    mpc_pddm,
    mpc_rs,
    mpo,
    ppo,
    ppo_by_hand,
    ppod,
    rnd_ppo,
    sac,
    sac_by_hand,
    td3,
)

from pytorchrl import registry

EXAMPLES = Path(__file__).parents[1] / "examples"
ALGORITHMS = {
    "ppo": ppo,
    "a2c": a2c,
    "rnd_ppo": rnd_ppo,
    "ppod": ppod,
    "ddqn": ddqn,
    "ddpg": ddpg,
    "td3": td3,
    "sac": sac,
    "mpo": mpo,
    "mpc_rs": mpc_rs,
    "mpc_cem": mpc_cem,
    "mpc_pddm": mpc_pddm,
}


@pytest.mark.parametrize(
    ("name", "steps", "low", "high"),
    [
        ("ppo", 2048, 8, 500),
        ("a2c", 2048, 8, 500),
        ("ddqn", 1100, 8, 500),
        ("ddpg", 1100, -2000, 0),
        ("td3", 1100, 1100, 1100),
        ("sac", 1200, -2000, 0),
        ("mpo", 1100, -2000, 0),
        ("rnd_ppo", 2048, 0, 1),
        ("ppod", 10_000, 0.5, 1),
        ("mpc_rs", 12, 0, 0.2),
        ("mpc_cem", 210, -2500, 0),
        ("mpc_pddm", 210, -2500, 0),
    ],
)
def test_each_algorithm_has_one_that_runs(
    name: str, steps: int, low: float, high: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert low <= ALGORITHMS[name].main(steps=steps) <= high


def test_no_algorithm_is_without() -> None:
    assert set(ALGORITHMS) == {name.lower() for name in registry.ALGORITHMS}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_is_short_and_says_what_it_is(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text("utf-8")
    assert len(text.splitlines()) <= 60
    assert f"Run: python examples/{name}.py" in (ast.get_docstring(ast.parse(text)) or "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [("ppo", 400), ("a2c", 40), ("ddqn", 200), ("ddpg", -300), ("sac", -250), ("rnd_ppo", 0.9), ("mpc_cem", -300)],
)
def test_it_learns(name: str, least: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ALGORITHMS[name].main() >= least


@pytest.mark.slow
def test_td3_solves_its_task_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert td3.main() < 20_000


def test_ppo_by_hand_runs_and_starts_to_learn(capsys: pytest.CaptureFixture[str]) -> None:
    assert ppo_by_hand.main(steps=8192) > 50  # a random policy reaches 22
    assert capsys.readouterr().out.count("mean return") == 8


def test_sac_by_hand_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert -2000 < sac_by_hand.main(steps=1000) < 0
    assert capsys.readouterr().out.count("mean return") == 1


def test_the_same_seed_gives_the_same_run() -> None:
    assert ppo_by_hand.main(steps=2100, seed=3) == ppo_by_hand.main(steps=2100, seed=3)
    assert sac_by_hand.main(steps=700, seed=3) == sac_by_hand.main(steps=700, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_ppo_by_hand_learns(seed: int) -> None:
    assert ppo_by_hand.main(seed=seed) >= 400


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_sac_by_hand_learns(seed: int) -> None:
    assert sac_by_hand.main(seed=seed) >= -250
