"""Networks side by side compute what each of them computes alone."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.agent.actors.conftest import IMAGE, OBSERVATIONS, VECTOR
from torch import nn

from pytorchrl.agent.actors.feature_extractors import MLP, NatureCNN
from pytorchrl.agent.actors.parallel import ParallelLinear, ParallelMLP, SideBySide, make_extractors


@pytest.mark.parametrize("hidden_sizes", [(), (8,), (8, 6)])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_perceptrons_together_are_perceptrons_apart(
    hidden_sizes: tuple[int, ...], activation: Any, rows: Callable[..., Any]
) -> None:
    apart = [MLP(VECTOR, hidden_sizes, activation) for _ in range(3)]
    together = ParallelMLP(copy.deepcopy(apart))
    obs = rows(VECTOR, 7)
    features = together(obs)
    for k, network in enumerate(apart):
        torch.testing.assert_close(features[k], network(obs))
    torch.testing.assert_close(together(obs, 2), features[:2])
    torch.testing.assert_close(together.each(torch.stack([obs] * 3)), features)
    if not hidden_sizes:
        return
    features.square().sum().backward()
    for k, network in enumerate(apart):
        network(obs).square().sum().backward()
        for layer, stacked in zip(network.layers, together.layers, strict=True):
            torch.testing.assert_close(stacked.weight.grad[k], layer.weight.grad.T)
            torch.testing.assert_close(stacked.bias.grad[k, 0], layer.bias.grad)


def test_others_run_one_after_the_other(rows: Callable[..., Any]) -> None:
    networks = make_extractors(2, IMAGE, NatureCNN, None)
    assert isinstance(networks, SideBySide)
    features = networks(rows(IMAGE, 3))
    assert features.shape == (2, 3, 512)
    assert not torch.allclose(features[0], features[1])
    assert networks(rows(IMAGE, 3), 1).shape == (1, 3, 512)
    assert make_extractors(2, OBSERVATIONS["dict"], None, None)(rows(OBSERVATIONS["dict"], 3)).shape == (2, 3, 320)


def test_a_subclass_of_mlp_keeps_its_forward() -> None:
    class Doubled(MLP):
        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(obs)

    assert isinstance(make_extractors(2, VECTOR, Doubled, None), SideBySide)


def test_heads() -> None:
    layers = [nn.Linear(4, 2) for _ in range(3)]
    x = torch.randn(3, 5, 4)
    expected = torch.stack([layer(rows) for layer, rows in zip(layers, x, strict=True)])
    torch.testing.assert_close(ParallelLinear(layers)(x), expected)
    torch.testing.assert_close(ParallelLinear(layers)(x[:1]), expected[:1])
