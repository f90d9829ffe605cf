"""What an algorithm decides about its data holds with workers too, and what cannot be done elsewhere is refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.scheme.test_distributed import make

import pytorchrl
from pytorchrl import ASYNC, ConfigError
from pytorchrl.precision import Products
from pytorchrl.scheme.together import learn_together

LAYOUTS: dict[str, dict[str, Any]] = {
    "central": {"num_col_workers": 2},
    "parallel": {"num_grad_workers": 2},
    "asynchronous": {"num_grad_workers": 2, "grad_workers_communication": ASYNC},
}
# No step is short enough once the policy has moved at all.
IMPATIENT = {"target_kl": 1e-12, "num_epochs": 3, "lr": 1e-2}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_workers_stop_where_the_policy_has_moved_too_far(layout: str) -> None:
    updates = []
    for parameters in (IMPATIENT, {**IMPATIENT, "target_kl": None}):
        scheme = make("PPO", algorithm_parameters=parameters, **LAYOUTS[layout])
        with closing(scheme):
            for _ in range(3):
                scheme.step()
            updates.append(scheme.algorithm.iter)
    assert 0 < updates[0] < updates[1]


def test_learners_among_themselves_stop_too(tmp_path: Path) -> None:
    scheme = make("PPO", algorithm_parameters=IMPATIENT)
    with closing(scheme):
        scheme.collector.collect(8)
        products = Products("fp32", scheme.actor)
        _, updates = learn_together(products, scheme.algorithm, scheme.storage, 0, 1, str(tmp_path / "meeting"))
        assert updates == scheme.algorithm.iter == 1


@pytest.mark.parametrize(("algorithm", "env"), [("RND_PPO", "CartPole-v1"), ("MPC_RS", "Pendulum-v1")])
def test_what_is_learned_while_acting_is_not_collected_elsewhere(algorithm: str, env: str, tmp_path: Path) -> None:
    overrides = {"scheme.engine": "local", "scheme.num_col_workers": 2}
    with pytest.raises(ConfigError, match=f"{algorithm} keeps what its acting depends on where it learns"):
        pytorchrl.train(algorithm, env, steps=100, overrides=overrides, run=tmp_path / "run")
