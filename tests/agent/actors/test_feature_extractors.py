"""Networks that read observations: shapes, scaling, initialization, choice by space, name and class."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.agent.actors.conftest import IMAGE, OBSERVATIONS, VECTOR
from torch import Tensor, nn

from pytorchrl.agent.actors.feature_extractors import (
    FEATURE_EXTRACTORS,
    MLP,
    DictNet,
    FixupCNN,
    ImpalaCNN,
    NatureCNN,
    make_extractor,
)
from pytorchrl.errors import ConfigError, SpaceError

SMALL = spaces.Box(0, 255, (3, 7, 7), np.uint8)


class Mine(nn.Module):
    """A user's network."""

    def __init__(self, space: gym.Space[Any], width: int = 5) -> None:
        super().__init__()
        self.layer = nn.Linear(int(np.prod(space.shape or ())), width)
        self.num_features = width

    def forward(self, obs: Tensor) -> Tensor:
        return self.layer(obs)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("space", "expected", "size"),
    [
        (VECTOR, MLP, 64),
        (spaces.Box(-1, 1, (2, 3), np.float32), MLP, 64),
        (IMAGE, NatureCNN, 512),
        (SMALL, ImpalaCNN, 256),
        (OBSERVATIONS["dict"], DictNet, 256 + 64),
    ],
)
def test_the_space_chooses(space: gym.Space[Any], expected: type, size: int, rows: Callable[..., Any]) -> None:
    network = make_extractor(space, None, None)
    assert type(network) is expected
    assert network.num_features == size
    assert network(rows(space, 5)).shape == (5, size)


@pytest.mark.parametrize("network", [NatureCNN, ImpalaCNN, FixupCNN])
def test_images_of_any_shape_from_the_smallest_on(network: type[nn.Module], rows: Callable[..., Any]) -> None:
    for shape in ((1, 36, 50), (4, 84, 84), *([(2, 1, 9)] if network is not NatureCNN else [])):
        space = spaces.Box(0, 255, shape, np.uint8)
        features = make_extractor(space, network, {"output_size": 10})(rows(space, 2))
        assert features.shape == (2, 10)
        assert features.dtype == torch.float32


@pytest.mark.parametrize("network", [MLP, NatureCNN, ImpalaCNN, FixupCNN])
def test_uint8_is_scaled_inside_and_floats_are_not(network: type[nn.Module], rows: Callable[..., Any]) -> None:
    read = make_extractor(IMAGE, network, None)
    pixels = rows(IMAGE, 3)
    torch.testing.assert_close(read(pixels), read(pixels.float() / 255))
    assert not torch.allclose(read(pixels), read(pixels.float()))


def test_small_whole_numbers_are_scaled_by_their_bound() -> None:
    read = make_extractor(spaces.Box(0, 1, (4,), np.uint8), "MLP", {"hidden_sizes": ()})
    assert read(torch.ones(1, 4, dtype=torch.uint8)).tolist() == [[1.0] * 4]


def test_an_mlp_without_layers_passes_vectors_on(rows: Callable[..., Any]) -> None:
    read, obs = make_extractor(VECTOR, "MLP", {"hidden_sizes": []}), rows(VECTOR, 4)
    assert read.num_features == 3
    torch.testing.assert_close(read(obs), obs)


def test_the_gain_that_is_asked_for_reaches_every_layer_once() -> None:
    for network, space, kwargs in (
        (MLP, VECTOR, {"hidden_sizes": [8, 8, 8]}),
        (NatureCNN, IMAGE, {}),
    ):
        for layer in make_extractor(space, network, {"gain": 0.3, **kwargs}).modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                matrix = layer.weight.detach().flatten(1)
                gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
                torch.testing.assert_close(gram, 0.09 * torch.eye(len(gram)), rtol=0, atol=1e-5)
                assert not layer.bias.any()


def test_fixup_blocks_begin_as_identities() -> None:
    blocks = [module for module in FixupCNN(IMAGE).modules() if type(module).__name__ == "FixupBlock"]
    assert len(blocks) == 6
    x = torch.randn(2, 16, 5, 5)
    torch.testing.assert_close(blocks[0](x), x)
    # He's standard deviation times L^(-1/2) in the first convolution of each block
    std = blocks[0].first.weight.std().item()  # type: ignore[union-attr]
    assert std == pytest.approx((2 / (16 * 9) / 6) ** 0.5, rel=0.1)


def test_entries_of_a_dict_have_networks_of_their_own(rows: Callable[..., Any]) -> None:
    space = OBSERVATIONS["dict"]
    network = DictNet(space, {"pixels": "FixupCNN"}, {"pixels": {"output_size": 7}, "speed.x": {"hidden_sizes": [3]}})
    obs = rows(space, 4)
    features = network(obs)
    assert features.shape == (4, 10)
    other = network({**obs, "speed.x": obs["speed.x"] + 1})
    torch.testing.assert_close(other[:, :7], features[:, :7])
    assert not torch.allclose(other[:, 7:], features[:, 7:])
    # the order of the observation's keys does not matter
    torch.testing.assert_close(network(dict(reversed(obs.items()))), features)


def test_a_network_of_ones_own_is_passed_and_then_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(FEATURE_EXTRACTORS, "Mine", raising=False)
    network = make_extractor(VECTOR, Mine, {"width": 6})
    assert network(torch.zeros(2, 3)).shape == (2, 6)
    assert type(make_extractor(VECTOR, "Mine", None)) is Mine


class NoSize(nn.Module):
    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("space", "network", "kwargs", "error", "message"),
    [
        (VECTOR, "NatureCCN", None, ConfigError, "Did you mean 'NatureCNN'"),
        (VECTOR, "MLP", {"hiden_sizes": [8]}, ConfigError, "Did you mean 'hidden_sizes'"),
        (VECTOR, "MLP", {"activation": "tahn"}, ConfigError, "tanh"),
        (VECTOR, "MLP", {"gain": -1.0}, ConfigError, "above 0"),
        (VECTOR, Mine, {"widht": 8}, ConfigError, "Did you mean 'width'"),
        (VECTOR, NoSize, None, ConfigError, "num_features"),
        (VECTOR, 3, None, ConfigError, "a name or a class"),
        (VECTOR, type("MLP", (nn.Module,), {}), None, ConfigError, "another name"),
        (VECTOR, "NatureCNN", None, SpaceError, "NatureCNN cannot read"),
        (VECTOR, "DictNet", None, SpaceError, "DictNet cannot read"),
        (SMALL, "NatureCNN", None, SpaceError, "36x36, got 7x7"),
        (OBSERVATIONS["dict"], "MLP", None, SpaceError, "MLP cannot read"),
        (OBSERVATIONS["dict"], "DictNet", {"networks": {"pixel": "MLP"}}, ConfigError, "Did you mean 'pixels'"),
    ],
)
def test_what_cannot_work_is_refused_by_name(
    space: gym.Space[Any], network: Any, kwargs: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_extractor(space, network, kwargs)
    assert set(FEATURE_EXTRACTORS) >= {"MLP", "NatureCNN"}
    assert "NoSize" not in FEATURE_EXTRACTORS


@pytest.mark.parametrize("network", [NatureCNN, ImpalaCNN, FixupCNN])
def test_gradients_lie_in_memory_as_their_parameters_do(network: type[nn.Module], rows: Callable[..., Any]) -> None:
    """Fused optimizers take it for granted: a step from autograd.grad is the step of an unfused one."""
    models = [make_extractor(IMAGE, network, {"output_size": 4}) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    obs = rows(IMAGE, 8)
    for model, fused in zip(models, (True, False), strict=True):
        parameters = list(model.parameters())
        optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=fused)
        for _ in range(2):
            for parameter, gradient in zip(
                parameters, torch.autograd.grad(model(obs).square().sum(), parameters), strict=True
            ):
                assert gradient.stride() == parameter.stride()
                parameter.grad = gradient
            optimizer.step()
    for fused_weight, weight in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(fused_weight, weight, rtol=1e-3, atol=1e-4)
