"""The examples run as they are written, and learn."""

import pytest
from examples import ppo_by_hand, sac_by_hand


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
