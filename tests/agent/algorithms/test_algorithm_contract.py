"""What every algorithm does with gradients, weights and its state, shown on PPO and on one with two optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytorchrl.agent.algorithms import PPO
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.errors import NonFiniteError
from pytorchrl.keys import ADV, REW


def weights_of(algorithm: Any) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in algorithm.actor.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def test_computing_gradients_changes_no_parameter(make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]) -> None:
    ppo = make_ppo()
    before, batch = weights_of(ppo), batch_of(ppo.actor)
    kept = {key: value.clone() for key, value in batch.items() if torch.is_tensor(value)}
    gradients, _ = ppo.compute_gradients(batch)
    assert same(before, weights_of(ppo))
    assert all(torch.equal(batch[key], value) for key, value in kept.items())
    assert ppo.iter == 0
    assert [None if g is None else g.shape for g in gradients] == [p.shape for p in ppo.trainable_parameters]
    assert [id(p) for p in ppo.trainable_parameters] == [id(p) for p in ppo.actor.parameters()]


def test_gradients_in_order_and_not_accumulated(make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]) -> None:
    ppo = make_ppo()
    batch = batch_of(ppo.actor)
    first, _ = ppo.compute_gradients(batch)
    second, _ = ppo.compute_gradients(batch)
    loss, _ = ppo.compute_loss(batch)
    expected = torch.autograd.grad(loss, ppo.trainable_parameters)
    for one, two, wanted in zip(first, second, expected, strict=True):
        assert one is not None
        assert two is not None
        assert torch.equal(one, two)
        torch.testing.assert_close(one, wanted)


def test_copies_on_the_cpu_outlive_the_next_call_and_live_ones_do_not(
    make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]
) -> None:
    ppo = make_ppo()
    copies, _ = ppo.compute_gradients(batch_of(ppo.actor), grads_to_cpu=True)
    live, _ = ppo.compute_gradients(batch_of(ppo.actor), grads_to_cpu=False)
    for copy, alive, parameter in zip(copies, live, ppo.trainable_parameters, strict=True):
        assert alive is parameter.grad
        assert copy is not None
        assert alive is not None
        assert torch.equal(copy, alive)
        assert copy.data_ptr() != alive.data_ptr()
        assert not copy.requires_grad


def test_given_and_local_gradients_do_the_same(make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]) -> None:
    local, given, live, late = (make_ppo(max_grad_norm=0.01) for _ in range(4))
    for seed in range(3):
        batch = batch_of(local.actor, seed=seed)
        local.compute_gradients(batch)
        local.apply_gradients()
        gradients, _ = given.compute_gradients(batch)
        kept = [None if g is None else g.clone() for g in gradients]
        given.apply_gradients(gradients)
        assert all(g is None or torch.equal(g, k) for g, k in zip(gradients, kept, strict=True))  # theirs, not ours
        late.compute_gradients(batch_of(local.actor, seed=99))  # what lies in .grad does not matter
        late.apply_gradients(gradients)
        alive, _ = live.compute_gradients(batch, grads_to_cpu=False)
        live.apply_gradients(alive)
    assert local.iter == given.iter == 3
    assert same(weights_of(local), weights_of(given))
    assert same(weights_of(local), weights_of(live))
    assert same(weights_of(local), weights_of(late))


def test_a_gradient_of_none_leaves_its_parameter_alone(
    make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]
) -> None:
    ppo = make_ppo()
    before = weights_of(ppo)
    gradients, _ = ppo.compute_gradients(batch_of(ppo.actor))
    gradients[0] = None
    ppo.apply_gradients(gradients)
    after = weights_of(ppo)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[2], after[2])
    with pytest.raises(ValueError, match="zip"):
        ppo.apply_gradients(gradients[:-1])


class TwoHalves(Algorithm):
    """Two weights, each with an optimizer of its own: θ ← θ − clipped gradient."""

    def __init__(self, max_grad_norm: float = 1.0) -> None:
        actor: Any = nn.Linear(1, 1)
        super().__init__("cpu", None, actor, gamma=0.9, test_every=0, num_test_episodes=0, max_grad_norm=max_grad_norm)
        self.optimizers = [torch.optim.SGD([parameter], lr=1.0) for parameter in actor.parameters()]

    def acting_step(self, *inputs: Any, **options: Any) -> Any:
        raise NotImplementedError

    def compute_gradients(self, batch: Any, grads_to_cpu: bool = True) -> Any:
        weight, bias = self.trainable_parameters
        loss = (weight.sum() * batch["weight"] + bias.sum() * batch["bias"]).sum()
        return self.gradients_of(loss, grads_to_cpu), {}


def test_each_optimizers_gradient_is_clipped_by_itself() -> None:
    algorithm = TwoHalves(max_grad_norm=0.5)
    before = [weight.item() for weight in weights_of(algorithm)]
    algorithm.apply_gradients([torch.full((1, 1), 40.0), torch.full((1,), 0.25)])
    moved = [old - new.item() for old, new in zip(before, weights_of(algorithm), strict=True)]
    assert moved == pytest.approx([0.5, 0.25], abs=1e-5)


def test_the_joint_norm_of_one_optimizer_is_clipped(make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]) -> None:
    for limit in (1e-3, 1e6):
        ppo = make_ppo(max_grad_norm=limit)
        gradients, _ = ppo.compute_gradients(batch_of(ppo.actor))
        before = torch.cat([g.flatten() for g in gradients if g is not None])
        ppo.apply_gradients()
        after = torch.cat([p.grad.flatten() for p in ppo.trainable_parameters if p.grad is not None])
        expected = before * min(1.0, limit / before.norm().item())
        torch.testing.assert_close(after, expected, rtol=1e-3, atol=1e-9)


def test_what_is_no_network_is_not_clipped() -> None:
    algorithm = TwoHalves(max_grad_norm=0.5)
    algorithm.unclipped = [algorithm.optimizers.pop()]
    before = [weight.item() for weight in weights_of(algorithm)]
    algorithm.apply_gradients([torch.full((1, 1), 40.0), torch.full((1,), 3.0)])
    moved = [old - new.item() for old, new in zip(before, weights_of(algorithm), strict=True)]
    assert moved == pytest.approx([0.5, 3.0], abs=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("unclipped", [False, True])
def test_a_gradient_that_is_not_finite_is_stopped_before_any_weight(value: float, which: int, unclipped: bool) -> None:
    """Also before those of an optimizer that comes first, and of a temperature or a dual, which nobody clips."""
    algorithm = TwoHalves()
    if unclipped:
        algorithm.unclipped = [algorithm.optimizers.pop()]
    before = weights_of(algorithm)
    gradients = [torch.ones(1, 1), torch.ones(1)]
    gradients[which] = gradients[which] * value
    with pytest.raises(NonFiniteError, match="TwoHalves, update 1: the gradient norm is"):
        algorithm.apply_gradients(gradients)
    assert same(before, weights_of(algorithm))
    assert algorithm.iter == 0
    algorithm.apply_gradients([torch.ones(1, 1), torch.ones(1)])  # and one can go on
    assert all(torch.isfinite(weight).all() for weight in weights_of(algorithm))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_stopped(
    make_ppo: Callable[..., PPO], batch_of: Callable[..., Any], value: float
) -> None:
    ppo = make_ppo()
    before, state = weights_of(ppo), ppo.get_state()
    batch = batch_of(ppo.actor)
    batch[ADV][3] = value
    with pytest.raises(NonFiniteError, match="PPO, update 1: the loss is"):
        ppo.compute_gradients(batch)
    assert same(before, weights_of(ppo))
    torch.testing.assert_close(ppo.get_state(), state, rtol=0, atol=0)


def test_set_weights_only_sets(make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]) -> None:
    ppo, other = make_ppo(seed=1), make_ppo(seed=2)
    for algorithm in (ppo, other):
        algorithm.compute_gradients(batch_of(ppo.actor))
        algorithm.apply_gradients()
    moments = ppo.get_state()
    weights = other.actor.state_dict()
    ppo.set_weights(weights)
    assert same(weights_of(ppo), weights_of(other))
    torch.testing.assert_close(ppo.get_state(), moments, rtol=0, atol=0)
    kept = weights_of(other)
    ppo.compute_gradients(batch_of(ppo.actor))
    ppo.apply_gradients()
    assert same(weights_of(other), kept)  # set, not shared


def test_the_state_continues_bitwise(make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]) -> None:
    """A copy from a saved state goes on exactly alike, twice from the same state, and leaves the state as it was."""
    ppo = make_ppo()

    def learn(algorithm: PPO, seeds: range) -> list[Tensor]:
        for seed in seeds:
            algorithm.compute_gradients(batch_of(ppo.actor, seed=seed))
            algorithm.apply_gradients()
        return weights_of(algorithm)

    batches = make_ppo()
    learn(ppo, range(3))
    weights, state = {key: value.clone() for key, value in ppo.actor.state_dict().items()}, ppo.get_state()
    expected = [weights_of(ppo)]
    fixed = [batch_of(batches.actor, seed=seed) for seed in range(4)]
    for batch in fixed:
        ppo.compute_gradients(batch)
        ppo.apply_gradients()
        expected.append(weights_of(ppo))
    for seed in (5, 6):
        copy = make_ppo(seed=seed)
        copy.set_weights(weights)
        copy.set_state(state)
        assert copy.iter == 3
        for batch, wanted in zip(fixed, expected[1:], strict=True):
            copy.compute_gradients(batch)
            copy.apply_gradients()
            assert same(weights_of(copy), wanted)


def test_the_same_seed_twice_is_bitwise_equal(make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]) -> None:
    results = []
    for seed in (7, 7, 8):
        ppo = make_ppo(seed=seed)
        batch = batch_of(ppo.actor)
        ppo.compute_gradients(batch)
        ppo.apply_gradients()
        actions = [ppo.acting_step(torch.ones(9, 4), ppo.actor.initial_rhs(9), torch.zeros(9, 1))[0] for _ in range(5)]
        results.append([*weights_of(ppo), *actions])
    assert same(results[0], results[1])
    assert not same(results[0], results[2])
    assert not torch.equal(results[0][-5], results[0][-1])


def test_constructing_and_learning_leave_the_global_stream_alone(
    make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]
) -> None:
    before = torch.get_rng_state()
    ppo = make_ppo()
    ppo.compute_gradients(batch_of(ppo.actor))
    ppo.apply_gradients()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_batch_may_hold_more_than_is_read(make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]) -> None:
    one, other = make_ppo(), make_ppo()
    batch = batch_of(one.actor)
    less = {key: value for key, value in batch.items() if key != REW}
    first, _ = one.compute_gradients(batch)
    second, _ = other.compute_gradients(less | {"anything": torch.zeros(1)})
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))  # type: ignore[arg-type]
