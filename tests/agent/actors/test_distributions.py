"""Policy distributions against torch.distributions, by frequencies, and by their own consistency."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats
from tests.agent.actors.conftest import ACTIONS
from torch import Tensor
from torch import distributions as td

from pytorchrl.agent.actors.distributions import (
    Bernoulli,
    BoxScale,
    Categorical,
    Deterministic,
    DiagGaussian,
    MultiCategorical,
    SquashedGaussian,
    stochastic_head,
)
from pytorchrl.agent.actors.distributions.discrete import RULED_OUT, first_to_ring
from pytorchrl.agent.actors.distributions.heads import (
    CategoricalHead,
    DeterministicHead,
    MultiCategoricalHead,
    SquashedGaussianHead,
    StateGaussianHead,
)
from pytorchrl.errors import SpaceError

BOX = ACTIONS["box"]
B, A = 6, 2


def gaussians() -> tuple[Tensor, Tensor]:
    return torch.randn(B, A), torch.randn(B, A) * 0.5 - 0.5


def made() -> dict[str, tuple[Any, Any]]:
    """Of each class one with random parameters, and its twin in torch.distributions (in [−1, 1] units)."""
    scale = BoxScale(BOX)
    mean, log_std = gaussians()
    logits = torch.randn(B, 4)
    rows = torch.randn(B, 3, 4)
    rows[:, 1, 2:] = RULED_OUT
    switches = torch.randn(B, 3)
    normal = td.Independent(td.Normal(mean, log_std.exp()), 1)
    return {
        "categorical": (Categorical(logits), td.Categorical(logits=logits)),
        "multicategorical": (MultiCategorical(rows), td.Independent(td.Categorical(logits=rows), 1)),
        "bernoulli": (Bernoulli(switches), td.Independent(td.Bernoulli(logits=switches), 1)),
        "gaussian": (DiagGaussian(mean, log_std, scale), normal),
        "squashed": (
            SquashedGaussian(mean, log_std, scale),
            td.TransformedDistribution(normal, td.TanhTransform(cache_size=1)),
        ),
        "deterministic": (
            Deterministic(mean.tanh(), scale),
            td.Independent(td.Normal(mean.tanh(), torch.ones(B, A)), 1),
        ),
    }


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", list(made()))
def test_log_prob_and_entropy_are_those_of_torch_distributions(name: str) -> None:
    dist, oracle = made()[name]
    action = dist.sample(generator())
    units = action
    if isinstance(dist, DiagGaussian):
        units = (action - torch.tensor([-0.5, 2.5])) / torch.tensor([1.5, 2.5])
    if name == "categorical":
        units = action.squeeze(1)
    expected = oracle.log_prob(units.float() if name == "bernoulli" else units).unsqueeze(1)
    torch.testing.assert_close(dist.log_prob(action), expected, rtol=1e-3, atol=1e-3 if name == "squashed" else 1e-5)
    assert dist.log_prob(action).shape == dist.entropy().shape == (B, 1)
    if name == "squashed":
        draws = oracle.sample((200_000,)).clamp(-1 + 1e-6, 1 - 1e-6)
        estimate = -oracle.log_prob(draws).mean(0).unsqueeze(1)
        torch.testing.assert_close(dist.entropy(), estimate, rtol=0, atol=0.02)
    else:
        torch.testing.assert_close(dist.entropy(), oracle.entropy().unsqueeze(1))


@pytest.mark.parametrize("name", [name for name in made() if name != "squashed"])
def test_kl_is_that_of_torch_distributions(name: str) -> None:
    (p, p_oracle), (q, q_oracle) = made()[name], made()[name]
    torch.testing.assert_close(p.kl(q), td.kl_divergence(p_oracle, q_oracle).unsqueeze(1))
    torch.testing.assert_close(p.kl(p), torch.zeros(B, 1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", list(made()))
def test_no_probability_is_below_the_floor(name: str) -> None:
    """Of discrete actions; densities stay. What is ruled out of a shorter categorical stays so."""
    p, _ = made()[name]
    floored = p.floored(0.2)
    if name in ("gaussian", "squashed", "deterministic"):
        assert floored is p
    elif name == "bernoulli":
        torch.testing.assert_close(floored.logits.sigmoid(), p.logits.sigmoid().clamp(0.2, 0.8))
    else:
        raised = p.log_probs.exp().clamp(min=0.2)
        if name == "multicategorical":
            raised[:, 1, 2:] = 0.0
        torch.testing.assert_close(floored.log_probs.exp(), raised / raised.sum(-1, keepdim=True))
    torch.testing.assert_close(floored.kl(floored), torch.zeros(B, 1), rtol=0, atol=1e-6)


def test_kl_of_squashed_gaussians_is_that_of_the_gaussians() -> None:
    (p, _), (q, _) = made()["squashed"], made()["squashed"]
    p_normal, q_normal = (td.Independent(td.Normal(d.mean, d.log_std.exp()), 1) for d in (p, q))
    torch.testing.assert_close(p.kl(q), td.kl_divergence(p_normal, q_normal).unsqueeze(1))


def test_frequencies_of_discrete_draws() -> None:
    count = 20_000
    logits = torch.tensor([0.3, -1.0, 1.0, RULED_OUT])
    drawn = Categorical(logits.expand(count, 4)).sample(generator(1))
    assert drawn.shape == (count, 1)
    expected = logits[:3].double().softmax(0) * count
    assert stats.chisquare(drawn.flatten().bincount(minlength=4)[:3], expected).pvalue > 1e-4
    assert int((drawn == 3).sum()) == 0

    rows = torch.stack([logits, logits.flip(0)]).expand(count, 2, 4)
    pairs = MultiCategorical(rows).sample(generator(2))
    assert pairs.shape == (count, 2)
    joint = (pairs[:, 0] * 3 + pairs[:, 1] - 1).bincount(minlength=9)  # independent of each other
    single = logits[:3].double().softmax(0)
    assert stats.chisquare(joint, torch.outer(single, single.flip(0)).flatten() * count).pvalue > 1e-4

    chances = torch.tensor([0.1, 0.5, 0.8])
    drawn = Bernoulli(chances.logit().expand(count, 3)).sample(generator(3))
    for on, chance in zip(drawn.sum(0).tolist(), chances.tolist(), strict=True):
        assert stats.binomtest(on, count, chance).pvalue > 1e-4


def test_an_action_that_is_ruled_out_is_not_drawn_even_if_its_clock_shows_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda self, generator: self.copy_(torch.tensor([1.0, 0.0])))
    assert first_to_ring(torch.tensor([[0.0, RULED_OUT]]), generator()).tolist() == [0]


def test_continuous_draws_follow_their_density() -> None:
    count = 5_000
    scale = BoxScale(BOX)
    mean, log_std = torch.tensor([0.4, -0.2]).expand(count, 2), torch.tensor([-0.5, 0.1])
    normal = DiagGaussian(mean, log_std, scale).sample(generator(1))
    squashed = SquashedGaussian(mean, log_std.expand(count, 2), scale).sample(generator(2))
    u = ((squashed - scale.center) / scale.radius).atanh()
    for j in range(2):
        for z in (((normal - scale.center) / scale.radius)[:, j], u[:, j]):
            expected = stats.norm(mean[0, j].item(), log_std[j].exp().item()).cdf
            assert stats.kstest(z.numpy(), expected).pvalue > 1e-4


@pytest.mark.parametrize("name", ["gaussian", "squashed", "deterministic"])
def test_actions_live_in_the_box(name: str) -> None:
    dist, _ = made()[name]
    for action in (dist.executed(dist.sample(generator())), dist.executed(dist.mode())):
        for row in action.numpy():
            assert BOX.contains(row)
    extreme = SquashedGaussian(torch.tensor([[50.0, -50.0]]), torch.zeros(1, 2), BoxScale(BOX))
    torch.testing.assert_close(extreme.mode(), torch.tensor([[1.0, 0.0]]))


@pytest.mark.parametrize("name", ["gaussian", "squashed"])
def test_rsample_is_a_sample_with_its_log_prob_and_a_gradient(name: str) -> None:
    scale = BoxScale(BOX)
    mean, log_std = (parameter.requires_grad_() for parameter in gaussians())
    dist = {"gaussian": DiagGaussian, "squashed": SquashedGaussian}[name](mean, log_std, scale)
    action, log_prob = dist.rsample(generator(5))
    torch.testing.assert_close(action, dist.sample(generator(5)))
    torch.testing.assert_close(log_prob, dist.log_prob(action), rtol=1e-3, atol=2e-3)
    for output in (action.sum(), log_prob.sum()):
        grads = torch.autograd.grad(output, (mean, log_std), retain_graph=True, allow_unused=True)
        assert grads[1] is not None
        assert torch.isfinite(grads[1]).all()


def test_log_prob_of_a_tanh_is_finite_and_exact_far_out() -> None:
    scale = BoxScale(spaces.Box(-1.0, 1.0, (1,), np.float32))
    dist = SquashedGaussian(torch.tensor([[0.3]]), torch.tensor([[0.5]]).log(), scale)
    for u, expected in ((0.8, -0.144284), (-2.0, -8.155786)):  # CONTRACTS 10
        assert dist.log_prob(torch.tensor([[u]]).tanh()).item() == pytest.approx(expected, abs=1e-4)
    bound = torch.ones(1, 1, requires_grad=True)
    value = dist.log_prob(bound)
    value.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(value).all()
    assert torch.isfinite(bound.grad).all()  # type: ignore[arg-type]
    far = SquashedGaussian(torch.full((1, 1), 10.0), torch.tensor([[-20.0]]), scale)
    assert torch.isfinite(far.rsample(generator())[1]).all()
    assert torch.isfinite(far.entropy()).all()


@pytest.mark.parametrize("size", [2, 3])
def test_masks_rule_actions_out(size: int) -> None:
    head = CategoricalHead(4, spaces.Discrete(size), gain=1.0)
    features = torch.randn(500, 4)
    mask = torch.ones(500, size)
    mask[:, 0] = 0
    dist = head(features, mask)
    action = dist.sample(generator())
    assert not (action == 0).any()
    assert not (dist.mode() == 0).any()
    assert torch.isfinite(dist.entropy()).all()
    legal = td.Categorical(logits=head.linear(features)[:, 1:])
    torch.testing.assert_close(dist.log_prob(action), legal.log_prob(action.squeeze(1) - 1).unsqueeze(1))
    torch.testing.assert_close(dist.entropy(), legal.entropy().unsqueeze(1))
    (dist.entropy().sum() + dist.log_prob(action).sum()).backward()
    assert torch.isfinite(head.linear.weight.grad).all()  # type: ignore[arg-type]


def test_masks_of_several_categoricals() -> None:
    head = MultiCategoricalHead(4, spaces.MultiDiscrete([3, 2]), gain=1.0)
    mask = torch.tensor([[1, 0, 0, 1, 1]]).expand(100, 5)
    drawn = head(torch.randn(100, 4), mask).sample(generator())
    assert set(drawn[:, 0].tolist()) == {0}
    assert set(drawn[:, 1].tolist()) == {0, 1}


@pytest.mark.parametrize("action_space", list(ACTIONS))
@torch.no_grad()
def test_draws_of_a_head_belong_to_its_space(action_space: str) -> None:
    space = ACTIONS[action_space]
    dist = stochastic_head(5, space)(torch.randn(50, 5))
    for action in (dist.executed(dist.sample(generator())), dist.mode()):
        assert action.dtype == (torch.float32 if action_space == "box" else torch.int64)
        for row in action.numpy():
            assert space.contains((row[0] if action_space == "discrete" else row).astype(space.dtype))


def test_the_gain_reaches_heads_once() -> None:
    for space in ACTIONS.values():
        weight = stochastic_head(64, space, gain=0.01).linear.weight.detach()  # type: ignore[union-attr]
        torch.testing.assert_close(weight @ weight.T, 1e-4 * torch.eye(len(weight)), rtol=0, atol=1e-9)  # type: ignore[operator]


def test_predicted_deviations_stay_in_range() -> None:
    for head in (SquashedGaussianHead(3, BOX, 100.0), StateGaussianHead(3, BOX, 100.0)):
        dist = head(torch.randn(100, 3) * 10)
        assert dist.log_std.min() == -20
        assert dist.log_std.max() == 2
        assert dist.mean.shape == dist.log_std.shape == (100, 2)
    assert StateGaussianHead(3, BOX, 100.0)(torch.randn(100, 3)).mean.abs().max() <= 1
    assert DeterministicHead(3, BOX, 100.0)(torch.randn(100, 3)).mean.abs().max() <= 1


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-np.inf, 1, (2,), np.float32), "infinite or equal"),
        (spaces.Box(1, 1, (2,), np.float32), "infinite or equal"),
        (spaces.Text(3), "no stochastic policy"),
    ],
)
def test_spaces_without_a_policy_are_refused_by_name(space: gym.Space[Any], message: str) -> None:
    with pytest.raises(SpaceError, match=message) as caught:
        stochastic_head(4, space)
    assert str(space) in str(caught.value)


def test_the_draw_is_the_generators(rows: Callable[..., Any]) -> None:
    for dist, _ in made().values():
        torch.rand(3)  # the global stream does not matter
        torch.testing.assert_close(dist.sample(generator(4)), dist.sample(generator(4)))
