"""What DDQN, DDPG, TD3 and both forms of SAC and MPO do with gradients, targets, weights and their state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.algorithms.policy_loss_addons.base import PolicyLossAddOn
from pytorchrl.errors import ConfigError, NonFiniteError
from pytorchrl.keys import N_STEP, OBS, OBS2, PER_WEIGHTS, REW

Make = Callable[..., Any]
Replayed = Callable[..., dict[str, Any]]

INFO = {
    "DDQN": {"loss_q", "epsilon"},
    "DDPG": {"loss_q1", "loss_pi"},
    "TD3": {"loss_q1", "loss_q2", "loss_pi"},
    "SAC": {"loss_q1", "loss_q2", "loss_pi", "loss_alpha", "alpha"},
    "MPO": {"loss_q", "loss_pi", "eta", "kl_mean", "kl_var", "alpha_mean", "alpha_var"},
    "MPO-discrete": {"loss_q", "loss_pi", "eta", "kl", "alpha"},
}
RATES = {
    "DDQN": ["lr"],
    "DDPG": ["lr_q", "lr_pi"],
    "TD3": ["lr_q", "lr_pi"],
    "SAC": ["lr_q", "lr_pi", "lr_alpha"],
    "MPO": ["lr_q", "lr_pi"],
}


def name_of(algorithm: Any) -> str:
    return type(algorithm).__name__


def weights_of(actor: Any) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in actor.parameters()]


def learned(algorithm: Any) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in algorithm.trainable_parameters]


def same(one: Any, other: Any) -> bool:
    """Bitwise, None only where the other is None."""
    return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in zip(one, other, strict=True))


def update(algorithm: Any, batch: Any) -> None:
    algorithm.compute_gradients(batch, grads_to_cpu=False)
    algorithm.apply_gradients()


def reseeded(algorithm: Any, seed: int = 3) -> Any:
    algorithm.generator.manual_seed(seed)
    return algorithm


# Gradients


def test_computing_gradients_changes_no_parameter(make: Make, replayed: Replayed, kind: str) -> None:
    algorithm = make(kind)
    before, targets, batch = learned(algorithm), weights_of(algorithm.target), replayed(algorithm)
    kept = {key: value.clone() for key, value in batch.items() if torch.is_tensor(value)}
    gradients, info = algorithm.compute_gradients(batch)
    assert same(before, learned(algorithm))
    assert same(targets, weights_of(algorithm.target))
    assert all(torch.equal(batch[key], value) for key, value in kept.items())
    assert algorithm.iter == 0
    assert [g.shape for g in gradients] == [p.shape for p in algorithm.trainable_parameters]
    assert all(g.abs().sum() > 0 for g in gradients)
    assert info.keys() == INFO.get(kind, INFO.get(name_of(algorithm)))
    assert all(value.ndim == 0 and not value.requires_grad for value in info.values())
    assert all(parameter.grad is None for parameter in algorithm.target.parameters())


def test_order_networks_then_addons_then_log_alpha(make: Make, kind: str) -> None:
    addon = Predictor()
    algorithm = make(kind, policy_loss_addons=[addon])
    expected = [*algorithm.actor.parameters(), *addon.parameters()]
    if name_of(algorithm) == "SAC":
        expected.append(algorithm.log_alpha)
    assert [id(p) for p in algorithm.trainable_parameters] == [id(p) for p in expected]
    held = [p for o in (*algorithm.optimizers, *algorithm.unclipped) for g in o.param_groups for p in g["params"]]
    assert sorted(map(id, held)) == sorted(map(id, expected))  # each by exactly one optimizer


@pytest.mark.parametrize("kind", ["DDPG", "TD3", "SAC", "SAC-discrete", "MPO", "MPO-discrete"])
def test_each_loss_reaches_its_own_networks_alone(make: Make, replayed: Replayed, kind: str) -> None:
    algorithm = make(kind)
    batch = replayed(algorithm)
    gradients, _ = reseeded(algorithm).compute_gradients(batch)
    loss_q = reseeded(algorithm).compute_loss_q(batch)[-2]
    found = algorithm.compute_loss_pi(batch)
    loss_pi, log_probs = found if name_of(algorithm) == "SAC" else (found, None)
    parts = [(loss_q, algorithm.critic), (loss_pi, algorithm.policy)]
    if log_probs is not None:
        parts.append((algorithm.compute_loss_alpha(log_probs), [algorithm.log_alpha]))
    expected = {}
    for loss, parameters in parts:
        expected |= dict(zip(parameters, torch.autograd.grad(loss, parameters), strict=True))
    for parameter, gradient in zip(algorithm.trainable_parameters, gradients, strict=True):
        torch.testing.assert_close(gradient, expected.pop(parameter))
    assert expected == {}
    unreached = torch.autograd.grad(reseeded(algorithm).compute_loss_q(batch)[-2], algorithm.policy, allow_unused=True)
    assert set(unreached) == {None}
    targets = [parameter.requires_grad for parameter in algorithm.target.parameters()]
    assert not any(targets)


def test_given_and_local_gradients_do_the_same(make: Make, replayed: Replayed, kind: str) -> None:
    once = {"mstep_iterations": 1} if kind.startswith("MPO") else {}
    local, given, live, late = (make(kind, max_grad_norm=0.01, **once) for _ in range(4))
    for seed in range(3):
        batch = replayed(local, seed)
        update(local, batch)
        gradients, _ = given.compute_gradients(batch)
        kept = [None if g is None else g.clone() for g in gradients]
        given.apply_gradients(gradients)
        assert same(gradients, kept)
        late.compute_gradients(replayed(local, 99))  # what lies in .grad does not matter
        late.apply_gradients(gradients)
        alive, _ = live.compute_gradients(batch, grads_to_cpu=False)
        assert all(g is p.grad for g, p in zip(alive, live.trainable_parameters, strict=True))
        live.apply_gradients(alive)
    assert local.iter == given.iter == 3
    for other in (given, live, late):
        assert same(learned(local), learned(other))
        assert same(weights_of(local.target), weights_of(other.target))


def test_weight_2_doubles_a_samples_gradient(make: Make, replayed: Replayed, kind: str) -> None:
    algorithm = make(kind)
    batch = replayed(algorithm)
    once, only = torch.ones(12, 1), torch.zeros(12, 1)
    only[4] = 1.0
    results = [reseeded(algorithm).compute_gradients(batch | {PER_WEIGHTS: w})[0] for w in (once, only, once + only)]
    unweighted = reseeded(algorithm).compute_gradients(batch)[0]
    assert any(g.abs().sum() > 0 for g in results[1])
    for plain, one, single, doubled in zip(unweighted, *results, strict=True):
        torch.testing.assert_close(plain, one)
        torch.testing.assert_close(one + single, doubled)


def test_n_step_as_tensor_as_int_and_as_float(make: Make, replayed: Replayed, kind: str) -> None:
    algorithm = make(kind, gamma=0.9)
    batch = replayed(algorithm)
    loss = algorithm.compute_loss if kind == "DDQN" else algorithm.compute_loss_q
    for m in (1, 3):
        tensor, *others = (reseeded(algorithm) and loss(batch, n) for n in (torch.full((12, 1), float(m)), m, float(m)))
        for other in others:
            for a, b in zip(tensor, other, strict=True):
                torch.testing.assert_close(a, b)
        in_batch = reseeded(algorithm).compute_gradients(batch | {N_STEP: torch.full((12, 1), m)})[1]
        torch.testing.assert_close(in_batch.get("loss_q1", in_batch.get("loss_q")), tensor[0].detach())
    assert not torch.equal(reseeded(algorithm) and loss(batch, 1)[0], reseeded(algorithm) and loss(batch, 3)[0])


def test_errors_for_priorities_only_when_there_are_weights(make: Make, replayed: Replayed, kind: str) -> None:
    algorithm = make(kind)
    batch = replayed(algorithm)
    _, info = reseeded(algorithm).compute_gradients(batch | {PER_WEIGHTS: torch.ones(12, 1)})
    errors = info.pop("errors")
    assert errors.shape == (12, 1)
    assert not errors.requires_grad
    assert (errors >= 0).all()
    loss = reseeded(algorithm).compute_loss if kind == "DDQN" else reseeded(algorithm).compute_loss_q
    assert torch.equal(errors, loss(batch)[-1])
    if kind in ("DDQN", "DDPG"):  # of a single critic
        torch.testing.assert_close(errors.square().mean(), info["loss_q" if kind == "DDQN" else "loss_q1"])


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("where", [REW, OBS])
def test_what_is_not_finite_is_stopped(make: Make, replayed: Replayed, kind: str, value: float, where: str) -> None:
    algorithm = make(kind)
    batch, before, state = replayed(algorithm), learned(algorithm), algorithm.get_state()
    batch[where][3] = value
    with pytest.raises(NonFiniteError, match=f"{name_of(algorithm)}, update 1: the loss is"):
        algorithm.compute_gradients(batch)
    assert same(before, learned(algorithm))
    after = algorithm.get_state()
    del state["generator"], after["generator"]  # noise was drawn
    torch.testing.assert_close(after, state, rtol=0, atol=0)
    gradients, _ = algorithm.compute_gradients(replayed(algorithm))
    gradients[-1] = gradients[-1] * value
    with pytest.raises(NonFiniteError, match="the gradient norm is"):
        algorithm.apply_gradients(gradients)
    assert same(before, learned(algorithm))
    assert algorithm.iter == 0


@pytest.mark.parametrize("actor", [{"recurrent_net": "GRU", "recurrent_net_kwargs": {"output_size": 8}}, {}, None])
def test_critics_that_are_not_learned_do_not_matter(make: Make, replayed: Replayed, actor: Any) -> None:
    """DDPG learns the first of the two critics that an actor has by default, also where they share no tensors."""
    images = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    ddpg = make("DDPG", actor=actor or {}, **({"observations": images} if actor is None else {}))
    batch = replayed(ddpg)
    if actor is None:
        batch |= {key: (127 * (batch[key] + 1)).byte() for key in (OBS, OBS2)}
    before = weights_of(ddpg.actor)
    gradients, _ = ddpg.compute_gradients(batch)
    ddpg.apply_gradients(gradients)
    moved = [not torch.equal(*pair) for pair in zip(before, weights_of(ddpg.actor), strict=True)]
    assert any(moved)
    assert [g is not None for g in gradients].count(True) >= 8


def test_td3_needs_two_critics(make: Make, replayed: Replayed) -> None:
    with pytest.raises(ConfigError, match="TD3 needs 2 critics, and the actor has 1"):
        make("TD3", actor={"num_critics": 1})
    for kind in ("SAC", "SAC-discrete"):
        sac = make(kind, actor={"num_critics": 1})
        _, info = sac.compute_gradients(replayed(sac))
        assert info["loss_q2"] == 0


# Targets


@pytest.mark.parametrize(("interval", "polyak"), [(1, 0.9), (3, 0.5), (2, 0.0), (2.0, 1.0)])
def test_targets_move_as_polyak_says(make: Make, replayed: Replayed, kind: str, interval: float, polyak: float) -> None:
    algorithm = make(kind, polyak=polyak, target_update_interval=interval)
    expected = weights_of(algorithm.target)
    assert same(expected, weights_of(algorithm.actor))
    for number in range(1, 7):
        update(algorithm, replayed(algorithm, number))
        if number % interval == 0:
            online = weights_of(algorithm.actor)
            kept = 0.0 if polyak == 1.0 and kind.startswith("MPO") else polyak  # there it means to copy
            expected = [kept * old + (1 - kept) * new for old, new in zip(expected, online, strict=True)]
        torch.testing.assert_close(weights_of(algorithm.target), expected, rtol=1e-5, atol=1e-7)
    assert polyak == 1.0 or not same(expected, weights_of(make(kind).target))


def test_a_part_of_an_update_is_no_interval(make: Make, kind: str) -> None:
    for wrong in (0.5, 1.5):
        with pytest.raises(ConfigError, match="expected a whole number of updates"):
            make(kind, target_update_interval=wrong)
        with pytest.raises(ConfigError, match="expected a whole number of updates"):
            make(kind).update_algorithm_parameter("target_update_interval", wrong)


def test_the_targets_buffers_are_copied(make: Make, replayed: Replayed, kind: str) -> None:
    algorithm = make(kind, actor={"normalize_observations": True}, target_update_interval=2)
    algorithm.actor.update_normalizer(3 + torch.randn(64, 4, generator=torch.Generator().manual_seed(0)))
    for moved in (False, True):
        update(algorithm, replayed(algorithm))
        assert same(algorithm.target.buffers(), algorithm.actor.buffers()) is moved


def test_td3_moves_policy_and_targets_at_every_dth_update(make: Make, replayed: Replayed) -> None:
    td3 = make("TD3", target_update_interval=2)
    fixed = set(map(id, td3.policy))
    reported = []
    for number in range(1, 5):
        policy, critic, targets = (
            [p.detach().clone() for p in ps] for ps in (td3.policy, td3.critic, td3.target.parameters())
        )
        gradients, info = td3.compute_gradients(replayed(td3, number))
        delayed = {id(p) for p, g in zip(td3.trainable_parameters, gradients, strict=True) if g is None}
        assert delayed == (fixed if number % 2 else set())
        td3.apply_gradients(gradients)
        assert same(policy, td3.policy) is bool(number % 2)
        assert same(targets, td3.target.parameters()) is bool(number % 2)
        assert not any(torch.equal(*pair) for pair in zip(critic, td3.critic, strict=True))
        assert info["loss_pi"].grad_fn is None
        reported.append(info["loss_pi"].item())
    assert reported[0] == 0.0
    assert reported[1] == reported[2] != reported[3]


def test_ddpg_does_not_delay_its_policy(make: Make, replayed: Replayed) -> None:
    ddpg = make("DDPG", target_update_interval=2)
    gradients, _ = ddpg.compute_gradients(replayed(ddpg))
    assert None not in gradients


# Weights and state


def test_set_weights_sets_and_counts_for_the_targets(make: Make, replayed: Replayed, kind: str) -> None:
    algorithm, other = make(kind, polyak=0.5, target_update_interval=2), make(kind, seed=2)
    update(algorithm, replayed(algorithm))
    before, targets = algorithm.get_state(), weights_of(algorithm.target)
    weights = other.actor.state_dict()
    algorithm.set_weights(weights)
    assert same(weights_of(algorithm.actor), weights_of(other.actor))
    expected = [0.5 * old + 0.5 * new for old, new in zip(targets, weights_of(other.actor), strict=True)]
    torch.testing.assert_close(weights_of(algorithm.target), expected)
    after = algorithm.get_state()
    assert (before.pop("iter"), after.pop("iter")) == (1, 2)
    del before["target"], after["target"]
    torch.testing.assert_close(after, before, rtol=0, atol=0)  # no optimizer step, no ε decay, no step of α
    algorithm.set_weights(weights)
    torch.testing.assert_close(weights_of(algorithm.target), expected)  # not at update 3
    kept = weights_of(other.actor)
    update(algorithm, replayed(algorithm))
    assert same(weights_of(other.actor), kept)  # set, not shared


def test_the_state_continues_bitwise(make: Make, replayed: Replayed, kind: str) -> None:
    parameters = {"target_update_interval": 2, "polyak": 0.9, "policy_loss_addons": [Predictor()]}
    algorithm = make(kind, **parameters)
    batches = [replayed(algorithm, seed) for seed in range(7)]
    for batch in batches[:3]:
        update(algorithm, batch)
    weights = {key: value.clone() for key, value in algorithm.actor.state_dict().items()}
    state, acting = algorithm.get_state(), algorithm.actor.get_state()

    def goes_on(one: Any) -> list[Tensor]:
        for batch in batches[3:]:
            update(one, batch)
        obs, rhs, done = torch.ones(9, 4), one.actor.initial_rhs(9), torch.zeros(9, 1)
        acted = one.acting_step(obs, rhs, done)[0]
        epsilon = torch.tensor(getattr(one, "epsilon", 0.0))
        return [*learned(one), *weights_of(one.target), acted, epsilon]

    expected = goes_on(algorithm)
    for seed in (5, 6):  # twice from the same state, which stays as it is
        copy = make(kind, seed=seed, **parameters | {"policy_loss_addons": [Predictor()]})
        copy.actor.load_state_dict(weights)
        copy.actor.set_state(acting)
        copy.set_state(state)
        assert copy.iter == 3
        assert same(goes_on(copy), expected)


def test_the_same_seed_twice_is_bitwise_equal(make: Make, replayed: Replayed, kind: str) -> None:
    results = []
    for seed in (7, 7, 8):
        before = torch.get_rng_state()
        algorithm = make(kind, seed=seed)
        for number in range(2):
            update(algorithm, replayed(algorithm, number))
        acted = algorithm.acting_step(torch.ones(9, 4), algorithm.actor.initial_rhs(9), torch.zeros(9, 1))[0]
        results.append([*learned(algorithm), acted])
        assert torch.equal(torch.get_rng_state(), before)
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


# Parameters


def test_rates_reach_their_optimizers(make: Make, replayed: Replayed, kind: str) -> None:
    name = kind.partition("-")[0]
    for number, rate in enumerate(RATES[name]):
        algorithm = make(kind, **{rate: 0.001 * (number + 1)})
        optimizers = [*algorithm.optimizers, *algorithm.unclipped]
        rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
        assert rates[number] == 0.001 * (number + 1)
        algorithm.update_algorithm_parameter(rate, 0.25)
        assert [optimizer.param_groups[0]["lr"] for optimizer in optimizers] == [
            *rates[:number],
            0.25,
            *rates[number + 1 :],
        ]
        assert getattr(algorithm, rate) == 0.25


def test_published_properties_follow_their_parameters(make: Make, kind: str) -> None:
    chosen = {"start_steps": 7, "update_every": 3, "test_every": 11, "num_test_episodes": 2, "mini_batch_size": 5}
    chosen |= {"gamma": 0.5}
    algorithm = make(kind, num_updates=4, **chosen)
    assert {name: getattr(algorithm, name) for name in chosen} == chosen
    assert (algorithm.num_epochs, algorithm.num_mini_batch) == (1, 4)
    for name, value in chosen.items():
        changed = 0.25 if name == "gamma" else int(value) + 1
        algorithm.update_algorithm_parameter(name, changed)
        assert getattr(algorithm, name) == changed
    algorithm.update_algorithm_parameter("num_updates", 9)
    assert algorithm.num_mini_batch == 9
    with pytest.raises(ConfigError, match="Did you mean 'polyak'"):
        algorithm.update_algorithm_parameter("poliak", 0.5)
    with pytest.raises(ConfigError, match="policy_loss_addons: fixed"):
        algorithm.update_algorithm_parameter("policy_loss_addons", [])


ALL = ["DDQN", "DDPG", "TD3", "SAC", "SAC-discrete", "MPO", "MPO-discrete"]
CHANGES: dict[str, tuple[float, list[str]]] = {
    "gamma": (0.1, ALL),
    "polyak": (0.1, ALL),
    "max_grad_norm": (1e-9, ALL),
    "target_update_interval": (5, ALL),
    "lr": (0.1, ["DDQN"]),
    "lr_q": (0.1, ALL[1:]),
    "lr_pi": (0.1, ALL[1:]),
    "lr_alpha": (0.1, ["SAC", "SAC-discrete"]),
    "initial_alpha": (0.1, ["SAC", "SAC-discrete"]),
    "target_entropy": (50.0, ["SAC", "SAC-discrete"]),
    "policy_noise": (0.0, ["TD3"]),
    "noise_clip": (0.01, ["TD3"]),
    "epsilon_decay": (0.5, ["DDQN"]),
    "initial_epsilon": (0.5, ["DDQN"]),
    "final_epsilon": (0.9999, ["DDQN"]),
    "dual_constraint": (0.5, ["MPO", "MPO-discrete"]),
    "mstep_iterations": (2, ["MPO", "MPO-discrete"]),
    "sample_action_num": (3, ["MPO"]),
    "kl_mean_constraint": (1.0, ["MPO"]),
    "kl_var_constraint": (1.0, ["MPO"]),
    "kl_constraint": (1.0, ["MPO-discrete"]),
    "alpha_mean_scale": (1e9, ["MPO"]),
    "alpha_var_scale": (1e9, ["MPO"]),
    "alpha_scale": (1e9, ["MPO-discrete"]),
    "alpha_mean_max": (0.0, ["MPO"]),
    "alpha_var_max": (0.0, ["MPO"]),
    "alpha_max": (0.0, ["MPO-discrete"]),
}


@pytest.mark.parametrize(("name", "which"), [(name, kind) for name, (_, kinds) in CHANGES.items() for kind in kinds])
def test_a_changed_parameter_changes_the_next_update(make: Make, replayed: Replayed, name: str, which: str) -> None:
    tight = {"kl_mean_constraint": 1e-9, "kl_var_constraint": 1e-9, "kl_constraint": 1e-9}  # so that constraints act
    results = []
    for changed in (False, True):
        algorithm = make(which, **tight if which.startswith("MPO") else {})
        if changed:
            algorithm.update_algorithm_parameter(name, CHANGES[name][0])
        for number in range(2):
            update(algorithm, replayed(algorithm, number))
        epsilon = torch.tensor(algorithm.epsilon if which == "DDQN" else 0.0)
        results.append([*learned(algorithm), *weights_of(algorithm.target), epsilon])
    assert not same(*results)


def test_no_target_entropy_is_the_default_again(make: Make) -> None:
    for kind, default in (("SAC", -2.0), ("SAC-discrete", 0.98 * math.log(3))):
        sac = make(kind, target_entropy=0.0)
        assert sac.target_entropy == 0.0
        sac.update_algorithm_parameter("target_entropy", None)
        assert sac.target_entropy == pytest.approx(default)


# Acting


def test_acting_step(make: Make, kind: str) -> None:
    algorithm = make(kind)
    N = 400
    generator = torch.Generator().manual_seed(0)
    obs, rhs, done = torch.rand(N, 4, generator=generator), algorithm.actor.initial_rhs(N), torch.zeros(N, 1)
    action, clipped, rhs2, other = algorithm.acting_step(obs, rhs, done)
    assert action is clipped
    assert other == {}
    assert rhs2.keys() == rhs.keys()
    assert not action.requires_grad
    space = algorithm.actor.action_space
    rows = action.flatten() if isinstance(space, spaces.Discrete) else action
    assert (action.shape, action.dtype) == (((N, 1), torch.int64) if rows.ndim == 1 else ((N, 2), torch.float32))
    assert all(space.contains(row) for row in rows.numpy())
    best, again = (algorithm.acting_step(obs, rhs, done, deterministic=True)[0] for _ in range(2))
    assert torch.equal(best, again)
    assert not torch.equal(action, best)


def test_epsilon_is_the_share_of_random_actions(make: Make, replayed: Replayed) -> None:
    ddqn = make("DDQN", initial_epsilon=0.5, epsilon_decay=0.5, final_epsilon=0.1)
    N = 3000
    inputs = torch.ones(N, 4), ddqn.actor.initial_rhs(N), torch.zeros(N, 1)
    best = ddqn.acting_step(*inputs, deterministic=True)[0]
    others = (ddqn.acting_step(*inputs)[0] != best).float().mean().item()
    assert others == pytest.approx(0.5 * 2 / 3, abs=0.03)  # a random action may be the best one
    for expected in (0.25, 0.125, 0.1, 0.1):
        _, info = ddqn.compute_gradients(replayed(ddqn))
        assert info["epsilon"].item() == pytest.approx(ddqn.epsilon)
        ddqn.apply_gradients()
        assert ddqn.epsilon == pytest.approx(expected)
    ddqn.set_weights(ddqn.actor.state_dict())
    assert ddqn.epsilon == pytest.approx(0.1)
    ddqn.update_algorithm_parameter("initial_epsilon", 0.0)
    assert torch.equal(ddqn.acting_step(*inputs)[0], best)


# Add-ons


class Predictor(PolicyLossAddOn):
    """½·(w − 3)², and something of the policy."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.zeros(()))
        self.setups = 0

    def setup(self, actor: Any, device: torch.device) -> None:
        self.setups += 1

    def compute_loss_term(self, batch: Any, dist: Any, info: Any) -> tuple[Tensor, dict[str, Tensor]]:
        loss = 0.5 * (self.weight - 3).square() - 0.01 * dist.log_prob(dist.mode().detach()).mean()
        return loss, {"predicted": self.weight.detach().clone()}

    def parameters(self) -> list[nn.Parameter]:
        return [self.weight]


@pytest.mark.parametrize("alone", [False, True])
def test_an_addons_term_joins_and_its_parameters_learn(make: Make, replayed: Replayed, kind: str, alone: bool) -> None:
    addon = Predictor()
    given: Any = addon if alone else [addon]
    rate = "lr" if kind == "DDQN" else "lr_pi"
    algorithm = make(kind, policy_loss_addons=given, max_grad_norm=100, **{rate: 0.1})
    assert addon.setups == 1
    assert alone or given == [addon]
    for number in range(40):
        gradients, info = algorithm.compute_gradients(replayed(algorithm, number))
        if number == 0:
            position = [id(p) for p in algorithm.trainable_parameters].index(id(addon.weight))
            assert gradients[position].item() == pytest.approx(-3.0)
            assert info["predicted"] == 0.0
        algorithm.apply_gradients(gradients)
    assert addon.weight.item() > 1.5


def test_lists_of_addons_are_not_shared(make: Make, kind: str) -> None:
    one, other = make(kind), make(kind)
    assert one.policy_loss_addons == []
    assert one.policy_loss_addons is not other.policy_loss_addons
