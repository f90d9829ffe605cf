"""Side by side: RND-PPO finds the end of a chain of 60 places, PPO never sees it, in the same number of steps."""

from __future__ import annotations

from typing import Any

import pytest
from tests.learning.long_chain import LongChain
from torch import Tensor

from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import PPO, RND_PPO
from pytorchrl.agent.env import VecEnv
from pytorchrl.agent.storages import GAEBuffer
from pytorchrl.keys import ADV, IADV
from pytorchrl.learner import Learner
from pytorchrl.scheme import Scheme

STEPS = 61_440
COMMON = {"lr": 2e-3, "num_mini_batch": 4, "use_clipped_value_loss": False, "test_every": 0}
CURIOUS = {"predictor_proportion": 0.25, "pre_normalization_steps": 4, "pre_normalization_length": 64}


def success(algorithm: type[PPO], seed: int, **parameters: Any) -> tuple[float, float]:
    """(share of the last 100 training episodes that reached the end, share of all of them)."""
    envs_factory, action_space, observation_space = VecEnv.create_factory(LongChain, {}, 16, backend="sync")
    algo_factory, name = algorithm.create_factory(**COMMON, **parameters)
    actor_factory = OnPolicyActor.create_factory(
        observation_space, action_space, name, feature_extractor_kwargs={"hidden_sizes": [64]}
    )
    scheme = Scheme(algo_factory, actor_factory, GAEBuffer.create_factory(size=64), envs_factory, seed=seed)
    learner = Learner(scheme, STEPS)
    returns = []
    while not learner.done():
        returns += [episode.ret for _, episode in learner.step().episodes]
    return sum(returns[-100:]) / 100, sum(returns) / len(returns)


def side_by_side(seed: int) -> None:
    curious, plain = success(RND_PPO, seed, **CURIOUS), success(PPO, seed)
    assert curious[0] >= 0.9, curious
    assert plain == (0.0, 0.0)


def test_curiosity_reaches_the_end_and_chance_does_not() -> None:
    side_by_side(2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_with_every_seed(seed: int) -> None:
    side_by_side(seed)


advantages, distillation_loss = RND_PPO.advantages, RND_PPO.distillation_loss


def nothing_is_new(self: RND_PPO, batch: Any) -> Tensor:
    return self.ext_adv_coeff * batch[ADV]  # type: ignore[no-any-return]


def bored_of_the_new(self: RND_PPO, batch: Any) -> Tensor:
    return advantages(self, {**batch, IADV: -batch[IADV]})


def never_learns(self: RND_PPO, batch: Any) -> Tensor:
    return 0 * distillation_loss(self, batch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "broken"),
    [("advantages", nothing_is_new), ("advantages", bored_of_the_new), ("distillation_loss", never_learns)],
)
def test_a_broken_loss_is_noticed(method: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RND_PPO, method, broken)
    with pytest.raises(AssertionError):
        side_by_side(2)
