"""PPO: the table of defaults, the loss and its gradient, and what each parameter changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pytorchrl.agent.algorithms import PPO
from pytorchrl.functional import losses
from pytorchrl.keys import ACT, ADV, DONE, LOGP, OBS, RET, RHS, VAL

DEFAULTS = {
    "lr": 1e-4,
    "eps": 1e-8,
    "gamma": 0.99,
    "num_epochs": 4,
    "clip_param": 0.2,
    "num_mini_batch": 1,
    "test_every": 1000,
    "max_grad_norm": 0.5,
    "entropy_coef": 0.01,
    "value_loss_coef": 0.5,
    "num_test_episodes": 5,
    "use_clipped_value_loss": True,
    "policy_loss_addons": [],
}

RATIOS = [0.7, 1.0, 1.5, 0.5]
ADVANTAGES = [1.0, -1.0, 2.0, -0.5]


def column(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 1)


def table_batch(log_probs: Tensor, **columns: Any) -> dict[str, Any]:
    """A batch for the actor whose parameters are its predictions: only the given columns matter."""
    zeros = torch.zeros_like(log_probs)
    unread = {OBS: zeros, RHS: {}, DONE: zeros, ACT: zeros, LOGP: zeros, ADV: zeros, VAL: zeros, RET: zeros}
    return unread | columns


def test_one_table_of_defaults() -> None:
    for function in (PPO, PPO.create_factory):
        parameters = inspect.signature(function).parameters
        stated = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
        assert {name: stated[name] for name in DEFAULTS} == DEFAULTS
        assert [name for name in parameters if name in DEFAULTS] == list(DEFAULTS)


def test_the_factorys_arguments_arrive(make_ppo: Callable[..., PPO]) -> None:
    chosen = {
        "lr": 2e-3,
        "eps": 1e-5,
        "gamma": 0.5,
        "num_epochs": 7,
        "clip_param": 0.3,
        "num_mini_batch": 3,
        "test_every": 11,
        "max_grad_norm": 0.7,
        "entropy_coef": 0.02,
        "value_loss_coef": 0.9,
        "num_test_episodes": 2,
        "use_clipped_value_loss": False,
        "policy_loss_addons": [],
    }
    assert chosen.keys() == DEFAULTS.keys()
    for expected, ppo in ((chosen, make_ppo(**chosen)), (DEFAULTS, make_ppo())):
        assert {name: getattr(ppo, name) for name in expected} == expected
        group = ppo.optimizers[0].param_groups[0]
        assert (group["lr"], group["eps"]) == (expected["lr"], expected["eps"])
    assert (ppo.start_steps, ppo.update_every, ppo.mini_batch_size) == (0, None, None)
    with pytest.raises(ValueError, match="Did you mean 'gamma'"):
        make_ppo(gama=0.9)


def test_the_worked_surrogate_and_its_gradient_in_log_pi(table: Any) -> None:
    """CONTRACTS §10: −0.425. Rows 2 and 3 are clipped; elsewhere the derivative is −ρA / 4."""
    log_probs = column([-1.0, -0.5, -2.0, -0.1])
    actor = table(log_probs, column([0.0] * 4))
    ppo = PPO("cpu", None, actor, clip_param=0.2, value_loss_coef=0.0, entropy_coef=0.0)
    batch = table_batch(log_probs, **{LOGP: log_probs - column(RATIOS).log(), ADV: column(ADVANTAGES)})
    gradients, info = ppo.compute_gradients(batch)
    assert info["loss"].item() == pytest.approx(-0.425, abs=1e-9)
    assert info["action_loss"].item() == pytest.approx(-0.425, abs=1e-9)
    assert gradients[0] is not None
    assert gradients[0].flatten().tolist() == pytest.approx([-0.175, 0.25, 0.0, 0.0], abs=1e-9)


def numpy_loss(
    columns: dict[str, Any], entropy: float, clip: float, value_coef: float, entropy_coef: float, clipped: bool
) -> tuple[float, float, float]:
    """Total, policy and value loss, written from the paper and CONTRACTS §7."""
    ratio = np.exp(columns["log_prob"] - columns["old_log_prob"])
    surrogate = np.minimum(ratio * columns["adv"], np.clip(ratio, 1 - clip, 1 + clip) * columns["adv"])
    errors = (columns["value"] - columns["ret"]) ** 2
    if clipped:
        moved = np.clip(columns["value"] - columns["old_value"], -clip, clip)
        errors = np.maximum(errors, (columns["old_value"] + moved - columns["ret"]) ** 2)
    policy_loss, value_loss = -surrogate.mean(), 0.5 * errors.mean()
    return policy_loss + value_coef * value_loss - entropy_coef * entropy, policy_loss, value_loss


@pytest.mark.parametrize("clipped", [True, False])
@pytest.mark.parametrize("value_coef", [0.0, 0.5, 2.0])
def test_the_loss_of_an_independent_formula(table: Any, clipped: bool, value_coef: float) -> None:
    random = np.random.default_rng(3)
    names = ("log_prob", "old_log_prob", "adv", "value", "old_value", "ret")
    columns = {name: random.normal(size=(64, 1)) * 0.5 for name in names}
    predicted = [torch.tensor(columns[name]) for name in ("log_prob", "value")]
    ppo = PPO(
        "cpu",
        None,
        table(*predicted, entropy=1.7),
        clip_param=0.1,
        value_loss_coef=value_coef,
        entropy_coef=0.3,
        use_clipped_value_loss=clipped,
    )
    keys = {LOGP: "old_log_prob", ADV: "adv", VAL: "old_value", RET: "ret"}
    batch = table_batch(predicted[0], **{key: torch.tensor(columns[name]) for key, name in keys.items()})
    gradients, info = ppo.compute_gradients(batch)
    expected = numpy_loss(columns, 1.7, 0.1, value_coef, 0.3, clipped)
    found = [info[name].item() for name in ("loss", "action_loss", "value_loss", "entropy_loss")]
    assert found == pytest.approx([*expected, 1.7], abs=1e-10)
    # The gradient, by differences of the formula; entropy is maximized.
    for gradient, name in zip(gradients[:2], ("log_prob", "value"), strict=True):
        for row in range(0, 64, 9):
            shifted = []
            for step in (1e-6, -1e-6):
                moved = {key: value.copy() for key, value in columns.items()}
                moved[name][row] += step
                shifted.append(numpy_loss(moved, 1.7, 0.1, value_coef, 0.3, clipped)[0])
            assert gradient is not None
            assert gradient[row].item() == pytest.approx((shifted[0] - shifted[1]) / 2e-6, abs=1e-6)
    assert gradients[2] is not None
    assert gradients[2].item() == pytest.approx(-0.3)


def test_the_loss_uses_the_shared_functions_of_the_actors_own_predictions(
    make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]
) -> None:
    for space in ("discrete", "box"):
        ppo = make_ppo(space, value_loss_coef=0.7, entropy_coef=0.2)
        batch = batch_of(ppo.actor)
        log_prob, entropy, _ = ppo.actor.evaluate_actions(batch[OBS], batch[RHS], batch[DONE], batch[ACT])
        value = ppo.actor.get_value(batch[OBS], batch[RHS], batch[DONE])["value_net1"]
        expected = (
            losses.clipped_surrogate(log_prob - batch[LOGP], batch[ADV], 0.2)
            + 0.7 * losses.clipped_value_loss(value, batch[VAL], batch[RET], 0.2)
            - 0.2 * entropy.mean()
        )
        loss, info = ppo.compute_loss(batch)
        torch.testing.assert_close(loss, expected)
        assert {name: tensor.dim() for name, tensor in info.items()} == dict.fromkeys(
            ("loss", "value_loss", "action_loss", "entropy_loss", "approx_kl", "clip_fraction"), 0
        )
        assert not any(tensor.requires_grad for tensor in info.values())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("space", ["discrete", "box"])
def test_every_network_gets_its_gradient(
    make_ppo: Callable[..., PPO], batch_of: Callable[..., Any], space: str, shared: bool
) -> None:
    """On shared features both losses act; on features of their own each loss sees its half alone."""
    found: dict[str, dict[str, Tensor]] = {}
    for which, parameters in {
        "policy": {"value_loss_coef": 0.0, "entropy_coef": 0.0},
        "value": {"value_loss_coef": 1.0, "entropy_coef": 0.0},
    }.items():
        ppo = make_ppo(space, shared, use_clipped_value_loss=False, **parameters)
        batch = batch_of(ppo.actor)
        if which == "value":
            batch[ADV] = torch.zeros_like(batch[ADV])
        gradients, _ = ppo.compute_gradients(batch)
        found[which] = {}
        for (name, parameter), gradient in zip(ppo.actor.named_parameters(), gradients, strict=True):
            gradient = torch.zeros_like(parameter) if gradient is None else gradient
            if name.startswith("features") and not shared:  # policy and value side by side
                found[which] |= {f"policy_net.{name}": gradient[0], f"value_{name}": gradient[1]}
            else:
                found[which][name] = gradient
    for name in found["policy"]:
        sees = {which: bool(found[which][name].abs().sum() > 0) for which in found}
        is_value, is_policy_head = name.startswith("value_"), name.startswith("policy_net")
        in_shared_features = shared and not is_value and not is_policy_head
        assert sees["policy"] == (not is_value), name
        assert sees["value"] == (is_value or in_shared_features), name


def changes(ppo: PPO, batch: Any, name: str, value: Any) -> bool:
    """Whether a parameter's new value changes the weights after the next update."""
    twin_weights = {key: tensor.clone() for key, tensor in ppo.actor.state_dict().items()}
    state = ppo.get_state()
    results = []
    for new in (None, value):
        ppo.set_weights(twin_weights)
        ppo.set_state(state)
        if new is not None:
            ppo.update_algorithm_parameter(name, new)
        ppo.compute_gradients(batch)
        ppo.apply_gradients()
        results.append(torch.cat([parameter.detach().flatten() for parameter in ppo.actor.parameters()]).clone())
    return not torch.equal(*results)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 1e-2),
        ("eps", 1e-1),
        ("clip_param", 0.01),
        ("max_grad_norm", 1e-6),
        ("entropy_coef", 0.5),
        ("value_loss_coef", 3.0),
        ("use_clipped_value_loss", False),
    ],
)
def test_an_updated_parameter_acts_in_the_next_update(
    make_ppo: Callable[..., PPO], batch_of: Callable[..., Any], name: str, value: Any
) -> None:
    ppo = make_ppo()
    batch = batch_of(ppo.actor)
    assert not changes(ppo, batch, name, getattr(ppo, name))
    assert changes(ppo, batch, name, value)
    assert getattr(ppo, name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", 0.5),
        ("num_epochs", 9),
        ("num_mini_batch", 2),
        ("test_every", 0),
        ("num_test_episodes", 1),
        ("target_kl", 0.02),
    ],
)
def test_an_updated_property_is_what_others_read(make_ppo: Callable[..., PPO], name: str, value: Any) -> None:
    ppo = make_ppo()
    ppo.update_algorithm_parameter(name, value)
    assert getattr(ppo, name) == value
    assert getattr(make_ppo(), name) == DEFAULTS.get(name)


def test_every_parameter_is_covered_by_one_of_the_two_tests() -> None:
    marks = [
        mark.args[1]
        for test in (
            test_an_updated_parameter_acts_in_the_next_update,
            test_an_updated_property_is_what_others_read,
        )
        for mark in test.pytestmark  # type: ignore[attr-defined]
    ]
    assert {name for cases in marks for name, _ in cases} == set(PPO.hyperparameters()) - set(PPO.fixed_parameters)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gama", 0.9, "Did you mean 'gamma'"),
        ("learning_rat", 0.9, "no parameter"),
        ("actor", None, "no parameter"),
        ("iter", 3, "no parameter"),
        ("gamma", 1.5, "between 0 and 1"),
        ("lr", -1.0, "at least 0"),
        ("num_epochs", 0, "at least 1"),
        ("use_clipped_value_loss", "maybe", "true or false"),
    ],
)
def test_a_wrong_update_is_refused(make_ppo: Callable[..., PPO], name: str, value: Any, message: str) -> None:
    ppo = make_ppo()
    before = {key: item for key, item in vars(ppo).items() if key != "optimizers"}
    with pytest.raises(ValueError, match=message):
        ppo.update_algorithm_parameter(name, value)
    assert {key: item for key, item in vars(ppo).items() if key != "optimizers"} == before


def test_how_far_the_policy_went_is_told(make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]) -> None:
    ppo = make_ppo(clip_param=0.2)
    batch = batch_of(ppo.actor)
    log_prob, _, _ = ppo.actor.evaluate_actions(batch[OBS], batch[RHS], batch[DONE], batch[ACT])
    ratio = (log_prob - batch[LOGP]).exp().detach().numpy()
    _, info = ppo.compute_loss(batch)
    assert info["approx_kl"].item() == pytest.approx(np.mean(ratio - 1 - np.log(ratio)), rel=1e-4)
    assert info["clip_fraction"].item() == pytest.approx(np.mean(np.abs(ratio - 1) > 0.2))
    assert 0 < info["clip_fraction"].item() < 1


def test_the_approximate_kl_is_the_kl_of_many_samples() -> None:
    old, new = torch.tensor([0.5, 0.3, 0.2]).log(), torch.tensor([0.3, 0.3, 0.4]).log()
    drawn = torch.multinomial(old.exp(), 200_000, replacement=True, generator=torch.Generator().manual_seed(0))
    expected = (old.exp() * (old - new)).sum()
    assert losses.approximate_kl((new - old)[drawn]).item() == pytest.approx(expected.item(), rel=0.02)


def test_target_kl_stops_at_one_and_a_half_times_it(make_ppo: Callable[..., PPO]) -> None:
    far = {"approx_kl": torch.tensor(0.16)}
    assert not make_ppo().is_done_with_data(far)
    assert make_ppo(target_kl=0.1).is_done_with_data(far)
    assert not make_ppo(target_kl=0.11).is_done_with_data(far)


def test_a_learning_rate_of_zero_still_gives_gradients(
    make_ppo: Callable[..., PPO], batch_of: Callable[..., Any]
) -> None:
    ppo = make_ppo(lr=0.0)
    before = [parameter.detach().clone() for parameter in ppo.actor.parameters()]
    gradients, info = ppo.compute_gradients(batch_of(ppo.actor))
    ppo.apply_gradients()
    assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)
    assert "loss" in info
    assert all(torch.equal(*pair) for pair in zip(before, ppo.actor.parameters(), strict=True))


@pytest.mark.parametrize("space", ["discrete", "box"])
def test_acting(make_ppo: Callable[..., PPO], space: str) -> None:
    ppo = make_ppo(space)
    obs, rhs, done = torch.rand(6, 4), ppo.actor.initial_rhs(6), torch.ones(6, 1)
    action, clipped, rhs2, other = ppo.acting_step(obs, rhs, done)
    assert not any(tensor.requires_grad for tensor in (action, clipped, *other.values()))
    assert rhs2 is not rhs
    assert set(other) == {VAL, LOGP}
    if space == "discrete":
        assert (action.dtype, tuple(action.shape)) == (torch.int64, (6, 1))
    else:
        low, high = torch.tensor([-2.0, -1.0]), torch.tensor([2.0, 3.0])
        for _ in range(50):
            action, clipped, _, other = ppo.acting_step(obs, rhs, done)
            assert torch.equal(clipped, action.clamp(low, high))
            if not torch.equal(clipped, action):
                break
        assert not torch.equal(clipped, action)  # the stored action is the sampled one
    log_prob, _, _ = ppo.actor.evaluate_actions(obs, rhs, done, action)
    torch.testing.assert_close(other[LOGP], log_prob.detach())
    torch.testing.assert_close(other[VAL], ppo.actor.get_value(obs, rhs, done)["value_net1"].detach())
    first, second = (ppo.acting_step(obs, rhs, done, deterministic=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_deterministic_acting_draws_nothing(make_ppo: Callable[..., PPO]) -> None:
    ppo = make_ppo()
    obs, rhs, done = torch.rand(6, 4), ppo.actor.initial_rhs(6), torch.ones(6, 1)
    stream, everyones = ppo.actor.generator.get_state(), torch.get_rng_state()
    ppo.acting_step(obs, rhs, done, deterministic=True)
    assert torch.equal(ppo.actor.generator.get_state(), stream)
    ppo.acting_step(obs, rhs, done)
    assert not torch.equal(ppo.actor.generator.get_state(), stream)
    assert torch.equal(torch.get_rng_state(), everyones)
