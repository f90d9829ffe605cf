"""RND-PPO: its delta to PPO, the predictor and what it reads, the moments and when they move."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import PPO, RND_PPO
from pytorchrl.agent.algorithms.on_policy.distillation import CHUNK, Distillation
from pytorchrl.keys import ACT, ADV, DONE, IADV, IRET, IREW, IVAL, LOGP, MASK, OBS, OBS2, RET, RHS, VAL

VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 8, 8), np.uint8)
DICT = spaces.Dict({"pixels": spaces.Box(0, 255, (1, 8, 8), np.uint8), "speed.x": VECTOR})

OWN = {
    "gamma_intrinsic": 0.99,
    "ext_adv_coeff": 2.0,
    "int_adv_coeff": 1.0,
    "predictor_proportion": 2.0,
    "pre_normalization_steps": 50,
    "pre_normalization_length": 128,
    "intrinsic_rewards_network": None,
    "intrinsic_rewards_target_network_kwargs": None,
    "intrinsic_rewards_predictor_network_kwargs": None,
}
SMALL = {"hidden_sizes": [8]}


def make(space: gym.Space[Any] = VECTOR, seed: int = 0, envs: Any = None, **parameters: Any) -> RND_PPO:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        kwargs = SMALL if space is VECTOR else None
        networks = {f"intrinsic_rewards_{which}_network_kwargs": kwargs for which in ("target", "predictor")}
        create, name = RND_PPO.create_factory(**networks | parameters)
        actor = OnPolicyActor.create_factory(space, spaces.Discrete(3), name, feature_extractor_kwargs=kwargs)("cpu")
        algorithm = create("cpu", actor, envs)
    assert isinstance(algorithm, RND_PPO)
    return algorithm


@pytest.fixture
def batch(batch_of: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """A batch as a storage yields it to a curious algorithm."""
    generator = torch.Generator().manual_seed(5)

    def column() -> Tensor:
        return torch.randn(12, 1, generator=generator)

    more = {key: column() for key in (IADV, IRET, IVAL)} | {IREW: column().abs()}
    return batch_of(make().actor) | more | {OBS2: torch.rand(12, 4, generator=generator) * 2 - 1}


def predictor_of(algorithm: RND_PPO) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in algorithm.distillation.predictor.parameters()]


def test_the_default_table_is_that_of_ppo_and_its_own() -> None:
    for function, base in ((RND_PPO, PPO), (RND_PPO.create_factory, PPO.create_factory)):
        stated = {name: p.default for name, p in inspect.signature(function).parameters.items()}
        theirs = {name: p.default for name, p in inspect.signature(base).parameters.items()}
        assert {name: stated[name] for name in OWN} == OWN
        assert stated.items() >= theirs.items()
        assert set(stated) == set(theirs) | set(OWN)


class Predictions(nn.Module):
    """An actor whose predictions are its parameters."""

    is_recurrent = False
    feature_space = VECTOR

    def __init__(self, log_probs: Tensor, values: Tensor, ivalues: Tensor) -> None:
        super().__init__()
        self.log_probs, self.values = nn.Parameter(log_probs), nn.Parameter(values)
        self.ivalue_net1 = nn.Parameter(ivalues)

    def readable(self, obs: Any) -> Any:
        return obs

    def forward(self, obs: Any, rhs: Any, done: Any) -> Any:
        dist = SimpleNamespace(log_prob=lambda action: self.log_probs, entropy=lambda: torch.zeros(12, 1))
        return dist, {"value_net1": self.values, "ivalue_net1": self.ivalue_net1}, rhs


@pytest.mark.parametrize("clipped", [True, False])
def test_the_loss_of_an_independent_formula(batch: dict[str, Any], clipped: bool) -> None:
    random = np.random.default_rng(2)
    log_probs, values, ivalues = (random.normal(size=(12, 1)).astype(np.float32) for _ in range(3))
    actor: Any = Predictions(*map(torch.tensor, (log_probs, values, ivalues)))
    algorithm = RND_PPO(
        "cpu",
        None,
        actor,
        clip_param=0.1,
        value_loss_coef=0.7,
        entropy_coef=0.0,
        use_clipped_value_loss=clipped,
        ext_adv_coeff=3.0,
        int_adv_coeff=0.5,
    )
    given = {key: value.numpy() for key, value in batch.items() if torch.is_tensor(value)}
    advantage = 3.0 * given[ADV] + 0.5 * given[IADV]
    ratio = np.exp(log_probs - given[LOGP])
    action_loss = -np.minimum(ratio * advantage, np.clip(ratio, 0.9, 1.1) * advantage).mean()

    def critic(value: Any, old: Any, target: Any) -> Any:
        errors = (value - target) ** 2
        if clipped:
            errors = np.maximum(errors, (old + np.clip(value - old, -0.1, 0.1) - target) ** 2)
        return 0.5 * errors.mean()

    value_loss, ivalue_loss = critic(values, given[VAL], given[RET]), critic(ivalues, given[IVAL], given[IRET])
    with torch.no_grad():
        rnd_loss = algorithm.distillation(batch[OBS2]).mean().item()
    loss, info = algorithm.compute_loss(batch)
    expected = {
        "loss": action_loss + 0.7 * (value_loss + ivalue_loss) + rnd_loss,
        "action_loss": action_loss,
        "value_loss": value_loss,
        "ivalue_loss": ivalue_loss,
        "rnd_loss": rnd_loss,
        "entropy_loss": 0.0,
        "approx_kl": (ratio - 1 - np.log(ratio)).mean(),
        "clip_fraction": (np.abs(ratio - 1) > 0.1).mean(),
        "mean_intrinsic_rewards": given[IREW].mean(),
        "min_intrinsic_rewards": given[IREW].min(),
        "max_intrinsic_rewards": given[IREW].max(),
    }
    assert {name: info[name].item() for name in expected} == pytest.approx(expected, abs=1e-5)
    assert set(info) == {*expected, "approx_kl", "clip_fraction"}
    assert loss.item() == pytest.approx(expected["loss"], abs=1e-5)
    assert not any(value.requires_grad for value in info.values())


def test_without_curiosity_it_is_ppo(batch: dict[str, Any]) -> None:
    """Same weights, the same losses of policy and value, and the same gradients in them."""
    curious = make(int_adv_coeff=0.0, ext_adv_coeff=1.0)
    plain = PPO("cpu", None, curious.actor)
    for parameter in curious.actor.ivalue_net1.parameters():  # type: ignore[union-attr]
        parameter.data.zero_()
    batch[IRET] = batch[IVAL] = torch.zeros(12, 1)  # nothing to learn for the second critic
    wanted, expected = plain.compute_gradients(batch)
    gradients, info = curious.compute_gradients(batch)
    assert {name: info[name] for name in expected if name != "loss"} == {
        name: value for name, value in expected.items() if name != "loss"
    }
    for gradient, other in zip(gradients, wanted, strict=False):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient) if other is None else other)


def test_order_networks_then_predictor_and_the_target_is_nowhere(batch: dict[str, Any]) -> None:
    algorithm = make(lr=0.01)
    names = [id(p) for p in [*algorithm.actor.parameters(), *algorithm.distillation.predictor.parameters()]]
    assert [id(p) for p in algorithm.trainable_parameters] == names
    owned = [p for optimizer in algorithm.optimizers for p in optimizer.param_groups[0]["params"]]
    assert sorted(map(id, owned)) == sorted(names)
    target = [p.clone() for p in algorithm.distillation.target.parameters()]
    predictor = predictor_of(algorithm)
    gradients, _ = algorithm.compute_gradients(batch)
    assert all(gradient is not None for gradient in gradients)
    assert all(p.grad is None for p in algorithm.distillation.target.parameters())
    algorithm.apply_gradients(gradients)
    assert all(torch.equal(*pair) for pair in zip(target, algorithm.distillation.target.parameters(), strict=True))
    assert not any(torch.equal(*pair) for pair in zip(predictor, predictor_of(algorithm), strict=True))


def test_the_predictors_gradient_is_clipped_apart(batch: dict[str, Any]) -> None:
    """Large errors of the predictor do not slow the policy down, and the other way round."""
    algorithm = make(max_grad_norm=1e-3)
    algorithm.compute_gradients(batch)
    algorithm.apply_gradients()
    for part in (algorithm.actor, algorithm.distillation.predictor):
        norm = torch.cat([p.grad.flatten() for p in part.parameters() if p.grad is not None]).norm()
        assert norm.item() == pytest.approx(1e-3, rel=1e-2)


def test_the_predictor_learns_from_a_share_of_the_rows_and_where_the_mask_is_1(batch: dict[str, Any]) -> None:
    algorithm = make()
    errors = algorithm.distillation(batch[OBS2]).detach()
    assert algorithm.distillation_loss(batch).item() == pytest.approx(errors.mean().item())
    mask = torch.tensor([1.0, 0.0, 0.0] * 4)[:, None]
    kept = errors[::3].mean().item()
    assert algorithm.distillation_loss(batch | {MASK: mask}).item() == pytest.approx(kept)
    assert algorithm.distillation_loss(batch | {MASK: 0 * mask}).item() == 0.0
    algorithm.update_algorithm_parameter("predictor_proportion", 0.0)
    assert algorithm.distillation_loss(batch).item() == 0.0
    algorithm.update_algorithm_parameter("predictor_proportion", 0.25)
    batch[OBS2] = batch[OBS2].repeat(1000, 1)
    one, other = (algorithm.distillation_loss(batch) for _ in range(2))
    assert one.item() != other.item()  # drawn anew
    assert one.item() == pytest.approx(errors.mean().item(), rel=0.1)


def test_what_was_learned_from_is_no_longer_new(batch: dict[str, Any]) -> None:
    algorithm = make(lr=3e-3, max_grad_norm=100.0)
    seen, unseen = batch[OBS2], batch[OBS2] + 3.0
    before = [algorithm.distillation.surprise(obs).mean().item() for obs in (seen, unseen)]
    for _ in range(300):
        algorithm.compute_gradients(batch)
        algorithm.apply_gradients()
    after = [algorithm.distillation.surprise(obs).mean().item() for obs in (seen, unseen)]
    assert after[0] < 0.2 * before[0]
    assert after[1] > 0.3 * before[1]


def test_rewards_are_errors_by_the_moments_before_and_then_the_moments_move() -> None:
    algorithm = make()
    first, second = torch.randn(64, 4) * 3 + 1, torch.randn(32, 4)
    algorithm.observe(first)
    networks = algorithm.distillation
    mean, std = first.double().mean(0), (first.double().var(0, correction=0) + 1e-8).sqrt()
    whitened = ((second - mean) / std).clamp(-5, 5).float()
    with torch.no_grad():
        expected = (networks.predictor(whitened) - networks.target(whitened)).square().mean(1, keepdim=True)
    torch.testing.assert_close(algorithm.intrinsic_rewards(second), expected, rtol=1e-3, atol=1e-5)
    both = torch.cat([first, second]).double()
    torch.testing.assert_close(networks.whitening.mean, both.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(networks.whitening.var, both.var(0, correction=0), rtol=1e-4, atol=1e-5)


def test_many_rows_at_once_are_those_in_parts() -> None:
    networks = make().distillation
    obs = torch.randn(CHUNK + 7, 4)
    with torch.no_grad():
        torch.testing.assert_close(networks.surprise(obs), networks(obs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("space", "frame_stack"), [(IMAGE, 4), (IMAGE, 1), (VECTOR, 2), (DICT, 1)])
def test_only_the_newest_frame_is_read(space: gym.Space[Any], frame_stack: int) -> None:
    networks = Distillation(space, frame_stack, None, None, None)
    space.seed(0)
    obs: Any = [space.sample() for _ in range(5)]
    if isinstance(space, spaces.Dict):
        rows: Any = {key: torch.as_tensor(np.stack([row[key] for row in obs])) for key in space.spaces}
    else:
        rows = torch.as_tensor(np.stack(obs))
    networks.observe(rows)
    assert networks.has_observed
    rewards = networks.surprise(rows)
    assert rewards.shape == (5, 1)
    assert torch.equal(networks.surprise(networks.newest(rows)), rewards)  # storages keep no more
    if frame_stack > 1:
        changed = rows.clone()
        changed[:, : -(rows.shape[1] // frame_stack)] = 0
        assert torch.equal(networks.surprise(changed), rewards)
    changed = {key: value.clone() for key, value in rows.items()} if isinstance(rows, dict) else rows.clone()
    for leaf in changed.values() if isinstance(changed, dict) else [changed]:
        leaf[:, -1] += 1
        assert not torch.equal(networks.surprise(changed), rewards)


def test_acting_predicts_both_values() -> None:
    algorithm = make()
    obs, rhs, done = torch.rand(6, 4), algorithm.actor.initial_rhs(6), torch.ones(6, 1)
    _, _, _, other = algorithm.acting_step(obs, rhs, done)
    values = algorithm.actor.get_value(obs, rhs, done)
    assert set(other) == {VAL, IVAL, LOGP}
    assert torch.equal(other[VAL], values["value_net1"])
    assert torch.equal(other[IVAL], values["ivalue_net1"])


def test_an_actor_without_an_intrinsic_value_is_refused() -> None:
    actor = OnPolicyActor("cpu", VECTOR, spaces.Discrete(3), "PPO")
    with pytest.raises(ValueError, match="intrinsic value"):
        RND_PPO("cpu", None, actor)


def test_parameters_act_at_once_or_are_fixed(batch: dict[str, Any]) -> None:
    algorithm = make()
    algorithm.update_algorithm_parameter("lr", 0.5)
    algorithm.update_algorithm_parameter("eps", 0.25)
    for optimizer in algorithm.optimizers:
        assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["eps"]) == (0.5, 0.25)
    before = algorithm.compute_loss(batch)[1]["action_loss"]
    for name in ("ext_adv_coeff", "int_adv_coeff"):
        algorithm.update_algorithm_parameter(name, 5.0)
        after = algorithm.compute_loss(batch)[1]["action_loss"]
        assert after != before
        before = after
    algorithm.update_algorithm_parameter("gamma_intrinsic", 0.5)
    assert algorithm.gamma_intrinsic == 0.5
    for name in OWN:
        if name.startswith(("pre_", "intrinsic_rewards_")):
            with pytest.raises(ValueError, match=f"{name}: fixed"):
                algorithm.update_algorithm_parameter(name, OWN[name])
    with pytest.raises(ValueError, match="Did you mean 'gamma_intrinsic'"):
        make(gamma_intrinsc=0.9)


def test_the_state_continues_bitwise(batch: dict[str, Any]) -> None:
    """Predictor, moments, both optimizers and the draw of rows."""

    def learn(algorithm: RND_PPO) -> list[Tensor]:
        for _ in range(3):
            algorithm.intrinsic_rewards(batch[OBS2])
            algorithm.compute_gradients(batch)
            algorithm.apply_gradients()
        moments = [value.clone() for value in algorithm.distillation.whitening.state_dict().values()]
        return [*(p.detach().clone() for p in algorithm.actor.parameters()), *predictor_of(algorithm), *moments]

    algorithm = make(predictor_proportion=0.5)
    learn(algorithm)
    weights = {name: value.clone() for name, value in algorithm.actor.state_dict().items()}
    state = algorithm.get_state()
    expected = learn(algorithm)
    for seed in (1, 2):
        other = make(seed=seed, predictor_proportion=0.5)
        other.set_weights(weights)
        other.set_state(state)
        assert other.random_steps_wanted == 0
        assert all(torch.equal(*pair) for pair in zip(learn(other), expected, strict=True))


def test_networks_by_name_and_of_ones_own() -> None:
    class Doubled(nn.Module):
        num_features = 8

        def __init__(self, space: gym.Space[Any]) -> None:
            super().__init__()
            assert (space.low.min(), space.high.max()) == (-5.0, 5.0)  # type: ignore[attr-defined]

        def forward(self, obs: Tensor) -> Tensor:
            return torch.cat([obs, obs], 1)

    none = dict.fromkeys(OWN, None)
    kwargs = {name: none[name] for name in none if name.endswith("kwargs")}
    algorithm = make(intrinsic_rewards_network=Doubled, **kwargs)
    assert isinstance(algorithm.distillation.predictor[0], Doubled)
    assert algorithm.intrinsic_rewards(torch.randn(3, 4)).shape == (3, 1)
    with pytest.raises(ValueError, match="Did you mean 'MLP'"):
        make(intrinsic_rewards_network="MLPP")
    wider = make(intrinsic_rewards_predictor_network_kwargs={"hidden_sizes": [32]})
    assert wider.intrinsic_rewards(torch.randn(3, 4)).shape == (3, 1)


def test_a_batch_needs_no_more_than_is_read(batch: dict[str, Any]) -> None:
    read = (OBS, RHS, DONE, ACT, LOGP, ADV, RET, VAL, IADV, IRET, IVAL, IREW, OBS2)
    make().compute_gradients({key: batch[key] for key in read})
