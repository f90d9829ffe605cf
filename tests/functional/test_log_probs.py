"""Log-probabilities, entropies and divergences against torch.distributions, published and hand-made numbers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.distributions import Categorical, Independent, Normal, TanhTransform, TransformedDistribution, kl_divergence
from torch.testing import assert_close

from pytorchrl.functional import (
    categorical_entropy,
    categorical_kl,
    categorical_log_prob,
    gaussian_entropy,
    gaussian_kl,
    gaussian_log_prob,
    squashed_log_prob,
    tanh_correction,
)


def close(actual: Tensor, expected: Any, rtol: float = 1e-10, atol: float = 1e-10) -> None:
    assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


def double(x: Any) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def normal(mean: Tensor, log_std: Tensor) -> Independent:
    return Independent(Normal(mean, log_std.exp()), 1)


def test_gaussian_is_that_of_torch_distributions() -> None:
    x, mean, log_std, other_mean, other_log_std = randn(5, 2, 7, 3)
    p, q = normal(mean, log_std), normal(other_mean, other_log_std)
    close(gaussian_log_prob(x, mean, log_std), p.log_prob(x)[..., None])
    close(gaussian_entropy(log_std), p.entropy()[..., None])
    close(gaussian_kl(mean, log_std, other_mean, other_log_std), kl_divergence(p, q)[..., None])


def test_one_log_std_serves_every_row() -> None:
    x, mean = randn(2, 7, 3)
    log_std = randn(3, seed=1)
    close(gaussian_log_prob(x, mean, log_std), gaussian_log_prob(x, mean, log_std.expand(7, 3)))
    close(gaussian_kl(x, log_std, mean, log_std), gaussian_kl(x, log_std.expand(7, 3), mean, log_std.expand(7, 3)))


def test_gaussian_of_rlax(oracles: dict[str, Any]) -> None:
    f = oracles["rlax/_src/distributions_test.py"]["gaussian"]
    mean, std, sample, other_mean, other_std = (
        double(f[key]) for key in ("mu", "sigma", "sample", "other_mu", "other_sigma")
    )
    close(gaussian_log_prob(sample, mean, std.log())[:, 0], f["logprob"], 0, 1e-4)
    close(gaussian_entropy(std.log())[:, 0], f["entropy"], 0, 1e-4)
    close(gaussian_kl(mean, std.log(), other_mean, other_std.log())[:, 0], f["kl"], 1e-4, 0)
    f = oracles["rlax/_src/distributions_test.py"]["mvn_kl"]
    mean, std, other_mean, other_std = (double(f[key]) for key in ("mu0", "s0", "mu1", "s1"))
    close(gaussian_kl(mean, std.log(), other_mean, other_std.log())[:, 0], f["expected"], 1e-5, 1e-6)


def test_kl_of_a_gaussian_to_itself_is_exactly_zero_and_keeps_its_precision_nearby() -> None:
    mean, log_std = torch.randn(2, 1000, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(gaussian_kl(mean, log_std, mean, log_std), torch.zeros(1000, 1))
    step = 1e-4  # KL ≈ dim · step² = 4e-8, below float32's resolution of 1
    nearby = gaussian_kl(mean, log_std, mean, log_std + step)
    assert_close(nearby, torch.full((1000, 1), 4 * step**2), rtol=5e-2, atol=0)


@pytest.mark.parametrize(("u", "expected"), [(0.8, -0.144284), (-2.0, -8.155786), (10.0, -169.792086)])
def test_example_of_the_squashed_gaussian(u: float, expected: float) -> None:
    actual = squashed_log_prob(double([u]), double([0.3]), double([0.5]).log())
    close(actual, [expected], 0, 1e-6)


def test_squashed_gaussian_is_that_of_torch_distributions() -> None:
    u, mean, log_std = randn(3, 50, 4)
    oracle = TransformedDistribution(normal(mean, log_std), [TanhTransform(cache_size=1)])
    action = oracle.transforms[0](u)  # fills the cache, so that the oracle needs no atanh
    close(squashed_log_prob(u, mean, log_std), oracle.log_prob(action)[:, None])


def test_squashed_density_integrates_to_one() -> None:
    a = torch.linspace(-1, 1, 200_001, dtype=torch.float64)[1:-1]
    log_prob = squashed_log_prob(a.atanh()[:, None], double([0.3]), double([0.5]).log())
    close(torch.trapezoid(log_prob[:, 0].exp(), a), 1.0, 0, 1e-6)


def test_tanh_correction_is_the_log_derivative() -> None:
    u = torch.linspace(-6, 6, 101, dtype=torch.float64)[:, None]
    close(tanh_correction(u), (1 - u.tanh().square()).log(), 1e-9, 0)
    pairs = randn(5, 2)
    close(tanh_correction(pairs), tanh_correction(pairs[:, :1]) + tanh_correction(pairs[:, 1:]))


def test_tanh_correction_far_out() -> None:
    """log(1 − tanh²u) → 2 log 2 − 2|u|, where the naive form is −inf; u = −10.1 is past softplus's threshold."""
    u = double([[-10.1], [10.1], [-1000.0], [1000.0]])
    exact = 2 * (math.log(2) - u.abs()) - 2 * torch.log1p(torch.exp(-2 * u.abs()))
    close(tanh_correction(u), exact, 1e-15, 1e-12)
    single = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    tanh_correction(single).sum().backward()
    assert single.grad is not None
    assert_close(single.grad, torch.tensor([[-2.0], [2.0]]))


def test_categorical_is_that_of_torch_distributions() -> None:
    logits, other = 2 * randn(2, 3, 8, 5)
    p, q = Categorical(logits=logits), Categorical(logits=other)
    action = torch.randint(5, (3, 8, 1), generator=torch.Generator().manual_seed(0))
    close(categorical_log_prob(logits, action), p.log_prob(action[..., 0])[..., None])
    close(categorical_entropy(logits), p.entropy()[..., None])
    close(categorical_kl(logits, other), kl_divergence(p, q)[..., None])
    close(categorical_kl(logits, logits + 3.0), torch.zeros(3, 8, 1))


def test_categorical_of_rlax(oracles: dict[str, Any]) -> None:
    f = oracles["rlax/_src/distributions_test.py"]["categorical_kl"]
    p, q = double(f["p_probs"]), double(f["q_probs"])
    expected = (p * (p.log() - q.log())).sum(-1, keepdim=True)
    close(categorical_kl(double(f["p_logits"]), double(f["q_logits"])), expected, 0, f["atol"])
    f = oracles["rlax/_src/policy_gradients_test.py"]["entropy_weighted"]
    entropy = categorical_entropy(double(f["logits"]))[..., 0]
    close(-(double(f["weights"]) * entropy).mean(-1), f["expected"], 0, f["atol"])


NO = -math.inf


def test_actions_that_are_ruled_out_add_nothing() -> None:
    """Masked logits equal a distribution over the actions that are left, in value and gradient."""
    p_small, q_small = double([[0.3, -0.7]]).requires_grad_(), double([[1.1, 0.4]]).requires_grad_()
    p_masked, q_masked = double([[0.3, NO, -0.7]]).requires_grad_(), double([[1.1, NO, 0.4]]).requires_grad_()
    kept = [0, 2]
    for small, masked in [
        (categorical_log_prob(p_small, torch.tensor([[1]])), categorical_log_prob(p_masked, torch.tensor([[2]]))),
        (categorical_entropy(p_small), categorical_entropy(p_masked)),
        (categorical_kl(p_small, q_small), categorical_kl(p_masked, q_masked)),
    ]:
        close(masked, small)
        small_grads = torch.autograd.grad(small.sum(), [p_small, q_small], allow_unused=True)
        masked_grads = torch.autograd.grad(masked.sum(), [p_masked, q_masked], allow_unused=True)
        for small_grad, masked_grad in zip(small_grads, masked_grads, strict=True):
            if small_grad is not None:
                close(masked_grad[:, kept], small_grad)
                assert masked_grad[0, 1] == 0


@pytest.mark.parametrize("hopeless", [NO, -1e4, -200.0])
def test_a_probability_of_zero_gives_no_nan(hopeless: float) -> None:
    p = torch.tensor([[0.0, hopeless]], requires_grad=True)
    q = torch.tensor([[0.0, 1.0]], requires_grad=True)
    entropy, kl = categorical_entropy(p), categorical_kl(p, q)
    assert_close(entropy, torch.zeros(1, 1))
    assert_close(kl, -torch.log_softmax(q, -1)[:, :1])
    for grad in torch.autograd.grad((entropy + kl).sum(), [p, q]):
        assert torch.isfinite(grad).all()
    assert categorical_log_prob(p, torch.tensor([[1]])).item() == pytest.approx(hopeless)


def test_kl_to_a_policy_that_rules_out_what_is_done_is_infinite_with_a_usable_gradient() -> None:
    p, q = double([[0.0, 0.0]]), double([[0.0, NO]]).requires_grad_()
    kl = categorical_kl(p, q)
    assert torch.isinf(kl).all()
    (grad,) = torch.autograd.grad(kl.sum(), q)
    assert torch.isfinite(grad).all()


def test_gradients_are_those_of_finite_differences() -> None:
    x, mean, log_std, other_mean, other_log_std = (z.requires_grad_() for z in randn(5, 4, 3).unbind())
    assert gradcheck(gaussian_log_prob, (x, mean, log_std))
    assert gradcheck(gaussian_kl, (mean, log_std, other_mean, other_log_std))
    assert gradcheck(squashed_log_prob, (x, mean, log_std))
    assert gradcheck(categorical_entropy, (x,))
    assert gradcheck(categorical_kl, (x, mean))
