"""Exploration noise: its moments, its memory, its place."""

import pytest
import torch

from pytorchrl.agent.actors.noise import GaussianNoise, OrnsteinUhlenbeckNoise, make_noise
from pytorchrl.errors import ConfigError

QUIET = torch.zeros(1, 1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_gaussian_noise_is_independent_in_every_environment_and_dimension() -> None:
    drawn = make_noise("Gauss")(torch.zeros(20_000, 3), torch.zeros(20_000, 1), generator())  # type: ignore[misc]
    torch.testing.assert_close(drawn.mean(0), torch.zeros(3), rtol=0, atol=4e-3)
    torch.testing.assert_close(drawn.T.cov(), 0.01 * torch.eye(3), rtol=0, atol=5e-4)


@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_ou_noise_has_mean_mu_and_the_deviation_of_the_process(mu: float) -> None:
    noise, random = OrnsteinUhlenbeckNoise(mu=mu), generator(1)
    action, done = torch.zeros(2_000, 2), torch.zeros(2_000, 1)
    for _ in range(60):
        noise(action, done, random)
    assert noise.x is not None
    torch.testing.assert_close(noise.x.mean(0), torch.full((2,), mu), rtol=0, atol=0.05)
    # stationary variance of x ← (1 − θ)x + σε
    expected = 0.2 / (1 - 0.85**2) ** 0.5
    torch.testing.assert_close(noise.x.std(0), torch.full((2,), expected), rtol=0.1, atol=0)
    assert abs(float(noise.x.T.corrcoef()[0, 1])) < 0.1


def test_ou_noise_is_the_recurrence_and_begins_anew_with_an_episode() -> None:
    noise = OrnsteinUhlenbeckNoise()
    action = torch.zeros(2, 1)
    eps = [0.2 * torch.empty(2, 1).normal_(generator=random) for random in [generator(3)] for _ in range(3)]
    random = generator(3)
    first = noise(action, torch.ones(2, 1), random)
    torch.testing.assert_close(first, eps[0])
    second = noise(action, torch.zeros(2, 1), random)
    torch.testing.assert_close(second, 0.85 * eps[0] + eps[1])
    third = noise(action, torch.tensor([[1.0], [0.0]]), random)
    torch.testing.assert_close(third[0], eps[2][0])
    torch.testing.assert_close(third[1], 0.85 * second[1] + eps[2][1])


def test_a_saved_noise_goes_on_as_if_nothing_had_happened() -> None:
    noise, random = OrnsteinUhlenbeckNoise(), generator()
    action, done = torch.zeros(3, 2), torch.zeros(3, 1)
    noise(action, done, random)
    state, stream = noise.get_state(), random.get_state()
    expected = noise(action, done, random)
    noise(action, done, random)
    again, copied = OrnsteinUhlenbeckNoise(), generator(9)
    again.set_state(state)
    copied.set_state(stream)
    torch.testing.assert_close(again(action, done, copied), expected, rtol=0, atol=0)
    fresh = OrnsteinUhlenbeckNoise()
    fresh.set_state(OrnsteinUhlenbeckNoise().get_state())
    assert fresh.x is None


def test_noise_ends_at_the_bounds_and_leaves_its_input_alone() -> None:
    action = torch.full((500, 1), 0.95)
    for noise in (GaussianNoise(1.0), OrnsteinUhlenbeckNoise(sigma=1.0)):
        assert noise(action, torch.zeros(500, 1), generator()).abs().max() == 1.0
    assert (action == 0.95).all()


def test_names() -> None:
    assert make_noise("NoNoise") is None
    with pytest.raises(ConfigError, match="Did you mean 'Gauss'"):
        make_noise("Gaus")
