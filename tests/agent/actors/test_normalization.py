"""Observation normalizers: numpy's moments, moved by update alone, part of the weights."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tests.agent.actors.conftest import ACTIONS, IMAGE, OBSERVATIONS, VECTOR

from pytorchrl.agent.actors import OffPolicyActor, OnPolicyActor
from pytorchrl.agent.actors.normalization import DictNormalizer, ObservationNormalizer, Unchanged, make_normalizer


def test_moments_are_those_of_numpy_however_the_data_are_cut() -> None:
    data = torch.randn(500, 3) * torch.tensor([1e-3, 1.0, 1e4]) + torch.tensor([5.0, 0.0, -1e5])
    once, often = ObservationNormalizer((3,)), ObservationNormalizer((3,))
    once.update(data)
    for part in (data[:100].view(20, 5, 3), data[100:101], data[101:]):
        often.update(part)
    expected = data.double().numpy()
    for normalizer in (once, often):
        np.testing.assert_allclose(normalizer.mean, expected.mean(0), rtol=1e-5)
        np.testing.assert_allclose(normalizer.var[1:], expected.var(0)[1:], rtol=1e-4)
        z = normalizer(data)
        assert z.dtype == torch.float32
        reference = (expected - normalizer.mean.numpy()) / np.sqrt(normalizer.var.numpy() + 1e-8)
        np.testing.assert_allclose(z, reference, rtol=1e-4, atol=1e-5)
    assert once.mean.dtype == torch.float64


def test_forward_is_clipped_and_moves_nothing() -> None:
    normalizer = ObservationNormalizer((2,))
    normalizer.update(torch.randn(50, 2))
    before = copy.deepcopy(normalizer.state_dict())
    assert normalizer(torch.tensor([[1e6, -1e6]])).tolist() == [[10.0, -10.0]]
    normalizer.train()(torch.randn(8, 2))
    for name, value in normalizer.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_what_is_normalized(rows: Callable[..., Any]) -> None:
    assert type(make_normalizer(VECTOR)) is ObservationNormalizer
    assert type(make_normalizer(IMAGE)) is Unchanged
    normalizer = make_normalizer(OBSERVATIONS["dict"])
    assert isinstance(normalizer, DictNormalizer)
    obs = rows(OBSERVATIONS["dict"], 6)
    normalizer.update(obs)
    result = normalizer(obs)
    assert result["pixels"] is obs["pixels"]
    torch.testing.assert_close(result["speed.x"].mean(0), torch.zeros(2), rtol=0, atol=1e-3)


def test_an_actors_normalizer_is_learned_on_request_and_travels_with_the_weights(rows: Callable[..., Any]) -> None:
    for kind, algorithm in ((OnPolicyActor, "PPO"), (OffPolicyActor, "SAC")):
        for name, space in OBSERVATIONS.items():
            actor, other = (
                kind("cpu", space, ACTIONS["discrete"], algorithm, normalize_observations=True) for _ in range(2)
            )
            obs, rhs, done = rows(space, 5), actor.initial_rhs(5), torch.zeros(5, 1)
            before = actor.evaluate_actions(obs, rhs, done, torch.zeros(5, 1, dtype=torch.long))[0]
            actor.get_action(obs, rhs, done)
            still = actor.evaluate_actions(obs, rhs, done, torch.zeros(5, 1, dtype=torch.long))[0]
            torch.testing.assert_close(before, still, rtol=0, atol=0)
            actor.update_normalizer(obs)
            after = actor.evaluate_actions(obs, rhs, done, torch.zeros(5, 1, dtype=torch.long))[0]
            assert torch.equal(before, after) == (name == "image")
            other.load_state_dict(actor.state_dict())
            loaded = other.evaluate_actions(obs, rhs, done, torch.zeros(5, 1, dtype=torch.long))[0]
            torch.testing.assert_close(loaded, after, rtol=0, atol=0)
    assert not any("normalizer" in name for name in OnPolicyActor("cpu", VECTOR, ACTIONS["box"], "PPO").state_dict())
