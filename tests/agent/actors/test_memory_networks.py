"""Memory networks: one pass over many steps is the same as stepping, and nothing is changed in place."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.memory_networks import GRU, LSTM, MEMORY_NETWORKS, make_memory
from pytorchrl.errors import ConfigError

NETWORKS = [
    ("GRU", {"output_size": 16}, (16,)),
    ("LSTM", {"layer_size": 8, "num_layers": 1}, (2, 8)),
    ("LSTM", {"layer_size": 8, "num_layers": 3}, (6, 8)),
]
L, N, F = 12, 3, 5


def test_defaults() -> None:
    assert GRU(4).num_features == 256
    assert GRU(4).initial(2).shape == (2, 256)
    assert LSTM(4).num_features == 512
    assert LSTM(4).initial(2).shape == (2, 6, 512)


@pytest.mark.parametrize(("name", "kwargs", "shape"), NETWORKS)
@pytest.mark.parametrize("resets", ["none", "some", "all", "first"])
def test_one_pass_equals_stepping_with_resets_inside(
    name: str, kwargs: dict[str, Any], shape: tuple[int, ...], resets: str
) -> None:
    memory = make_memory(F, name, kwargs)
    x, rhs = torch.randn(L * N, F), torch.randn(N, *shape)
    chance = {"none": 0.0, "some": 0.2, "all": 1.0, "first": 0.0}[resets]
    done = (torch.rand(L * N, 1) < chance).float()
    if resets == "first":
        done[0] = 1.0
    whole, last = memory(x, rhs, done)
    state, steps = rhs, []
    for t in range(L):
        rows = slice(t * N, (t + 1) * N)
        y, state = memory(x[rows], state, done[rows])
        steps.append(y)
    torch.testing.assert_close(whole, torch.cat(steps), rtol=0, atol=1e-6)
    torch.testing.assert_close(last, state, rtol=0, atol=1e-6)
    assert last.shape == rhs.shape == (N, *shape)


@pytest.mark.parametrize(("name", "kwargs", "shape"), NETWORKS)
def test_a_reset_comes_before_the_observation(name: str, kwargs: dict[str, Any], shape: tuple[int, ...]) -> None:
    memory = make_memory(F, name, kwargs)
    x, rhs = torch.randn(2, F), torch.full((2, *shape), torch.nan)
    rhs[1] = 0.5
    before = rhs.clone()
    y, following = memory(x, rhs, torch.tensor([[1.0], [0.0]]))
    fresh, _ = memory(x, memory.initial(2), torch.zeros(2, 1))
    torch.testing.assert_close(y[0], fresh[0])
    assert not torch.allclose(y[1], fresh[1])
    torch.testing.assert_close(rhs, before, equal_nan=True)
    assert following.data_ptr() != rhs.data_ptr()
    assert following[0].abs().sum() > 0


@pytest.mark.parametrize(("name", "kwargs", "shape"), NETWORKS)
def test_gradients_do_not_cross_a_reset(name: str, kwargs: dict[str, Any], shape: tuple[int, ...]) -> None:
    memory = make_memory(F, name, kwargs)
    x = torch.randn(4, F, requires_grad=True)  # four steps of one sequence
    y, _ = memory(x, memory.initial(1), torch.tensor([[1.0], [0.0], [1.0], [0.0]]))
    y[3].sum().backward()
    assert x.grad is not None
    assert x.grad[:2].abs().sum() == 0
    assert (x.grad[2:].abs().sum(1) > 0).all()


def test_weights_begin_orthogonal_and_biases_at_zero() -> None:
    for name, parameter in LSTM(6, 8, 2).named_parameters():
        if "weight" in name:
            torch.testing.assert_close(parameter.T @ parameter, torch.eye(parameter.shape[1]), rtol=0, atol=1e-5)
        else:
            assert not parameter.any()


class Sum(nn.Module):
    """A user's memory: the sum of everything since the episode began."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.num_features = size

    def initial(self, num_envs: int) -> Tensor:
        return torch.zeros(num_envs, self.num_features)

    def forward(self, x: Tensor, rhs: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        following = rhs * (1 - done) + x
        return following, following


def test_a_memory_of_ones_own_and_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEMORY_NETWORKS, "Sum", Sum)
    assert type(make_memory(3, Sum, None)) is Sum
    with pytest.raises(ConfigError, match="Did you mean 'LSTM'"):
        make_memory(3, "LSTN", None)
    with pytest.raises(ConfigError, match="Did you mean 'num_layers'"):
        make_memory(3, "LSTM", {"num_layer": 2})
