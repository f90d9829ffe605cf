"""World models: what they learn, how sure they are of it, and what they say that plans earn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.world_model import Scaler, WorldModel
from pytorchrl.errors import ConfigError, SpaceError

OBSERVATIONS = spaces.Box(-5.0, 5.0, (3,), np.float32)
ACTIONS = spaces.Box(-2.0, 2.0, (1,), np.float32)
# s' = s + D s + B a, r = c·s + d·a.
D = torch.tensor([[-0.1, 0.2, 0.0], [0.0, -0.1, 0.1], [-0.2, 0.0, -0.05]])
B = torch.tensor([[0.0], [0.1], [0.3]])
C = torch.tensor([[0.2, -0.1, 0.1]])


def make(seed: int = 0, actions: Any = ACTIONS, **kwargs: Any) -> WorldModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return WorldModel(OBSERVATIONS, actions, **kwargs)


def fit(model: WorldModel, inputs: Tensor, labels: Tensor, updates: int, lr: float = 5e-3, batch: int = 128) -> None:
    """Adam on random batches, its rate annealed to zero."""
    model.scaler.fit(inputs)
    model.label_scaler.fit(labels)
    x = model.scaler.transform(inputs)
    optimizer = torch.optim.Adam(model.parameters(), lr, fused=True)
    random = torch.Generator().manual_seed(1)
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = lr * (1 - update / updates)
        rows = torch.randint(len(x), (batch,), generator=random)
        optimizer.zero_grad()
        model.loss(x[rows], labels[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def linear_system(rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    obs = 2 * torch.rand(rows, 3, generator=random) - 1
    action = 4 * torch.rand(rows, 1, generator=random) - 2
    return obs, action, obs + obs @ D.T + action @ B.T, obs @ C.T + 0.1 * action


@pytest.mark.parametrize("kwargs", [{}, {"num_members": 3, "num_elites": 2, "probabilistic": True}])
def test_a_linear_system_to_a_thousandth(kwargs: dict[str, Any]) -> None:
    model = make(hidden_size=48, **kwargs)
    obs, action, obs2, reward = linear_system(2000, 0)
    fit(model, torch.cat([obs, action], 1), torch.cat([obs2 - obs, reward], 1), 2000, lr=1e-2, batch=256)
    obs, action, obs2, reward = linear_system(500, 1)
    found, earned = model.predict(obs, action)
    assert (found - obs2).square().mean().sqrt().item() < 1e-3
    assert (earned - reward).square().mean().sqrt().item() < 1e-3


def test_nine_of_ten_lie_in_intervals_of_nine_tenths() -> None:
    """An ensemble of Gaussians on noise that grows with the first column: the mixture's 90 % cover 80 to 97 %."""
    random = torch.Generator().manual_seed(0)
    model = make(hidden_size=32, num_members=5, probabilistic=True, reward_function="Pendulum")

    def world(rows: int) -> tuple[Tensor, Tensor, Tensor]:
        inputs = 2 * torch.rand(rows, 4, generator=random) - 1
        spread = 0.05 + 0.3 * inputs[:, :1].abs()
        change = torch.sin(2 * inputs[:, :3]) + inputs[:, 3:] ** 2
        return inputs, change + spread * torch.randn(rows, 3, generator=random), spread

    inputs, labels, _ = world(3000)
    fit(model, inputs, labels, 800)
    inputs, labels, spread = world(2000)
    x = model.scaler.transform(inputs)
    with torch.no_grad():
        mean, logvar, _ = model.outputs(x.expand(5, *x.shape), model.members())
        assert logvar is not None
        drawn = mean + torch.exp(0.5 * logvar) * torch.randn(40, *mean.shape, generator=random)[:, :, :]
        drawn = model.label_scaler.inverse(drawn).flatten(0, 1)
    low, high = drawn.quantile(0.05, dim=0), drawn.quantile(0.95, dim=0)
    inside = ((labels >= low) & (labels <= high)).float()
    for part in (spread > 0.2, spread < 0.2, spread > 0):  # where it is noisy, where it is not, everywhere
        assert 0.80 < inside[part.flatten()].mean().item() < 0.97
    assert (logvar <= model.max_logvar + 1e-6).all()
    assert (logvar >= model.min_logvar - 1e-6).all()


def test_members_learn_by_their_weights_alone_and_the_best_predict() -> None:
    model = make(num_members=3, num_elites=2)
    inputs, labels = torch.randn(10, 4), torch.randn(10, 4)
    model.scaler.fit(inputs)
    model.label_scaler.fit(labels)
    x = model.scaler.transform(inputs)
    weights = torch.zeros(3, 10)
    weights[0], weights[2, 0] = 1, 3
    model.loss(x, labels, weights=weights).backward()  # type: ignore[no-untyped-call]
    moved = [bool(model.layers[0].weight.grad[k].any()) for k in range(3)]  # type: ignore[index,union-attr]
    assert moved == [True, False, True]
    once = make(num_members=3, num_elites=2)
    once.load_state_dict(model.state_dict())
    once.loss(x[:1].repeat(10, 1), labels[:1].repeat(10, 1), weights=weights).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(
        model.layers[0].weight.grad[2],  # type: ignore[index,union-attr]
        once.layers[0].weight.grad[2],  # type: ignore[index,union-attr]
    )
    errors = model.errors(x, labels)
    assert errors.shape == (3,)
    model.select_elites(torch.tensor([3.0, 1.0, 2.0]))
    assert model.elites.tolist() == [1, 2]
    by_hand = []
    for k in (1, 2):
        model.elites.copy_(torch.tensor([k, k]))
        by_hand.append(model(x))
    model.elites.copy_(torch.tensor([1, 2]))
    torch.testing.assert_close(model(x), torch.stack(by_hand).mean(0))
    torch.testing.assert_close(errors[1], ((by_hand[0] - labels) / model.label_scaler.std).square().mean())


def test_the_end_is_learned() -> None:
    """An end at s'_0 > 0.5, told by the state and an action that moves it; rewards behind it do not count."""
    model = make(hidden_size=32, terminal_function="learned", reward_function="CartPole")
    random = torch.Generator().manual_seed(0)
    obs, action = 2 * torch.rand(3000, 3, generator=random) - 1, 4 * torch.rand(3000, 1, generator=random) - 2
    change = torch.cat([0.2 * action, torch.zeros(3000, 2)], 1)
    over = (obs[:, :1] + change[:, :1] > 0.5).float()
    inputs = torch.cat([obs, action], 1)
    model.fit_scalers(inputs, change)
    x = model.scaler.transform(inputs)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3, fused=True)
    for _ in range(200):
        rows = torch.randint(3000, (256,), generator=random)
        optimizer.zero_grad()
        model.loss(x[rows], change[rows], over[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    plans = torch.tensor([2.0, -2.0]).view(1, 2, 1, 1).expand(1, 2, 6, 1)
    to_the_end, away = model.returns(torch.tensor([[-0.2, 0.0, 0.0]]), plans, 1, "TSinf", random)[0].tolist()
    assert to_the_end == pytest.approx(2, abs=0.3)  # −0.2 → 0.2 → 0.6
    assert away == pytest.approx(6, abs=0.3)


def test_discrete_actions_are_columns_and_functions_see_what_storages_hold() -> None:
    seen = []

    def earned(obs: Tensor, action: Tensor, obs2: Tensor) -> Tensor:
        seen.append((obs.shape, action.dtype, action.shape, obs2.shape))
        return action.float()

    model = make(actions=spaces.Discrete(4, start=3), reward_function=earned)
    assert model.encoded(torch.tensor([[2], [0]])).tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]
    plans = torch.tensor([[1, 2], [3, 0]]).view(1, 2, 2, 1)
    returns = model.returns(torch.zeros(1, 3), plans, 3, "TSinf", torch.Generator())
    assert returns.tolist() == [[3, 3]]
    assert seen[0] == ((6, 3), torch.int64, (6, 1), (6, 3))


class Known(WorldModel):
    """Member k adds k + 1 and noise is 0; the reward is the first number of the next observation."""

    fitted = True

    def step(self, obs: Tensor, action: Tensor, layers: Any, generator: Any) -> tuple[Tensor, Tensor, Tensor]:
        obs2 = obs + layers[0][0][:, :1, :1] + 0 * action
        return obs2, obs2[..., :1], torch.zeros_like(obs2[..., :1])


def known(members: int) -> Known:
    model = Known(OBSERVATIONS, ACTIONS, num_members=members)
    with torch.no_grad():
        model.layers[0].weight[:] = torch.arange(1.0, members + 1).view(-1, 1, 1)  # type: ignore[index,operator]
    return model


def test_particles_keep_to_their_member_or_change_it() -> None:
    plans, random = torch.zeros(2, 5, 3, 1), torch.Generator().manual_seed(0)
    obs = torch.tensor([[0.0, 0, 0], [10.0, 0, 0]])
    returns = known(3).returns(obs, plans, 6, "TSinf", random)
    # Member k earns k·(1 + 2 + 3), from wherever it begins.
    assert returns.tolist() == [[12.0] * 5, [42.0] * 5]
    drawn = torch.cat([known(3).returns(obs, plans, 2000, "TS1", random)[:, :1] for _ in range(2)], 1)
    torch.testing.assert_close(drawn, torch.tensor([[12.0, 12.0], [42.0, 42.0]]), atol=0.2, rtol=0)
    assert drawn[0, 0] != drawn[0, 1]


def test_noise_is_that_of_the_model_and_the_same_for_all_candidates() -> None:
    model = make(probabilistic=True, reward_function="CartPole")
    model.label_scaler.std.fill_(2.0)
    obs, action = torch.zeros(20000, 1, 3), torch.zeros(20000, 1, 1)
    layers = model.members(torch.zeros(20000, dtype=torch.long))
    with torch.no_grad():
        obs2, _, _ = model.step(obs, action, layers, torch.Generator().manual_seed(0))
        mean, _, _ = model.step(obs[:1], action[:1], model.members(), None)
        _, logvar, _ = model.outputs(torch.zeros(1, 1, 4), model.members())
    assert logvar is not None
    torch.testing.assert_close(obs2.std(0), 2 * torch.exp(0.5 * logvar[0]), atol=0.0, rtol=0.03)
    torch.testing.assert_close(obs2.mean(0), mean[0], atol=0.05, rtol=0)
    plans = torch.ones(1, 4, 3, 1)
    returns = make(probabilistic=True, num_members=3).returns(obs[:1, 0], plans, 6, "TSinf", torch.Generator())
    torch.testing.assert_close(returns, returns[:, :1].expand(1, 4))


def test_the_scaler_is_saved_and_constant_columns_stay_what_they_are() -> None:
    scaler, other = Scaler(2), Scaler(2)
    rows = torch.cat([torch.randn(1000, 1), torch.full((1000, 1), 0.3)], 1)
    scaler.fit(rows)
    assert scaler.std[1] == 1
    other.load_state_dict(scaler.state_dict())
    torch.testing.assert_close(other.inverse(other.transform(rows)), rows)
    assert other.transform(rows)[:, 0].std(correction=0).item() == pytest.approx(1, abs=1e-4)
    assert not make().fitted
    model = make()
    model.fit_scalers(torch.randn(3, 4), torch.randn(3, 4))
    assert model.fitted


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_elites is 3, and there are 2"):
        make(num_members=2, num_elites=3)
    with pytest.raises(SpaceError, match="Supported: Discrete, Box"):
        make(actions=spaces.MultiBinary(2))
