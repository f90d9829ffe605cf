"""The Scheme: seeds and streams, evaluation beside training, and what a step does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pytorchrl.keys import ACT
from pytorchrl.scheme import Scheme


def weights_of(scheme: Scheme) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in scheme.actor.parameters()])


def test_constructing_steps_no_environment(make_scheme: Callable[..., Scheme]) -> None:
    log: list[Any] = []
    make_scheme(env_kwargs={"log": log}, num_envs=2)
    assert [entry for entry in log if entry[0] == "step"] == []
    assert len([entry for entry in log if entry[0] == "reset" and entry[3] is not None]) == 2  # a trial has no seed


def test_every_environment_has_a_seed_of_its_own(make_scheme: Callable[..., Scheme]) -> None:
    log: list[Any] = []
    for seed in (0, 1):
        scheme = make_scheme(env_kwargs={"log": log}, num_envs=4, seed=seed, num_test_episodes=4)
        scheme.evaluate()
        scheme.evaluate()
    seeds = [entry[3] for entry in log if entry[0] == "reset" and entry[3] is not None]
    assert len(seeds) == len(set(seeds)) == 2 * (4 + 8)


def test_the_same_seed_twice_is_bitwise_equal(make_scheme: Callable[..., Scheme]) -> None:
    results = []
    for seed in (3, 3, 4):
        scheme = make_scheme(seed=seed)
        torch.rand(len(results) * 7)  # whatever else draws from the global stream does not matter
        for _ in range(4):
            scheme.step()
        samples: Any = scheme.storage.samples  # type: ignore[attr-defined]
        results.append((weights_of(scheme), torch.stack([sample[ACT] for sample in samples])))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[0][0], results[2][0])


def test_no_global_stream_is_touched(make_scheme: Callable[..., Scheme]) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    scheme = make_scheme(num_test_episodes=2)
    scheme.step()
    scheme.evaluate()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    after: Any = np.random.get_state()
    assert all(np.array_equal(one, other) for one, other in zip(before[2], after, strict=True))


def test_evaluation_does_not_disturb_training(make_scheme: Callable[..., Scheme]) -> None:
    """With and without it: the same transitions, the same weights; it plays in environments of its own."""
    log: list[Any] = []
    quiet, watched = make_scheme(), make_scheme(env_kwargs={"log": log}, num_test_episodes=3)
    for _ in range(4):
        quiet.step()
        watched.step()
        train_steps = log.count(("step", "train", 0))
        assert len(watched.evaluate()) == 3
        assert log.count(("step", "train", 0)) == train_steps
    assert torch.equal(weights_of(quiet), weights_of(watched))
    mine, theirs = quiet.storage.samples, watched.storage.samples  # type: ignore[attr-defined]
    for one, other in zip(mine, theirs, strict=True):
        assert all(torch.equal(one[key], other[key]) for key in one)
    assert any(entry[:2] == ("step", "test") for entry in log)
    assert sum(entry[:2] == ("made", "test") for entry in log) == 3  # made once, used four times


def test_evaluation_is_deterministic_and_of_the_present_policy(make_scheme: Callable[..., Scheme]) -> None:
    scheme = make_scheme(num_test_episodes=2)
    seen: list[tuple[bool, torch.Tensor]] = []
    acting_step = scheme.algorithm.acting_step

    def recorded(obs: Any, rhs: Any, done: Any, deterministic: bool = False) -> Any:
        seen.append((deterministic, obs))
        return acting_step(obs, rhs, done, deterministic)

    scheme.algorithm.acting_step = recorded  # type: ignore[method-assign]
    before = weights_of(scheme).clone()
    stream = scheme.actor.generator.get_state()
    scheme.evaluate()
    assert seen
    assert all(deterministic for deterministic, _ in seen)
    assert torch.equal(weights_of(scheme), before)
    assert torch.equal(scheme.actor.generator.get_state(), stream)
    assert make_scheme(num_test_episodes=0).evaluate() == []


def test_a_step_learns_from_everything_that_was_collected(make_scheme: Callable[..., Scheme]) -> None:
    scheme = make_scheme(num_envs=3, size=5, num_mini_batch=4, num_epochs=3)
    rows: list[int] = []
    compute = scheme.algorithm.compute_gradients

    def counted(batch: Any, grads_to_cpu: bool = True) -> Any:
        rows.append(len(batch[ACT]))
        return compute(batch, grads_to_cpu)

    scheme.algorithm.compute_gradients = counted  # type: ignore[method-assign]
    result = scheme.step()
    assert rows == [4, 4, 4, 3] * 3
    assert (result.env_steps, result.updates, scheme.algorithm.iter) == (15, 12, 12)
    assert {"loss", "value_loss", "action_loss", "entropy_loss"} <= set(result.losses)


def test_target_kl_ends_a_round_before_the_step_too_far(make_scheme: Callable[..., Scheme]) -> None:
    freely = make_scheme(lr=0.1, num_epochs=5, num_mini_batch=2)
    assert freely.step().updates == 10
    scheme = make_scheme(lr=0.1, num_epochs=5, num_mini_batch=2, target_kl=1e-3)
    for _ in range(3):  # the next round collects and learns as if nothing had happened
        before = scheme.algorithm.iter
        assert 1 <= scheme.step().updates == scheme.algorithm.iter - before < 10
    assert len(scheme.storage.samples) == 3 * 8  # type: ignore[attr-defined]
    assert scheme.storage.size == 8
    kept = make_scheme(lr=1e-6, num_epochs=5, num_mini_batch=2, target_kl=1e-3)
    assert kept.step().updates == 10


def test_the_mean_of_the_rounds_losses_is_reported(make_scheme: Callable[..., Scheme]) -> None:
    scheme = make_scheme()
    infos: list[dict[str, torch.Tensor]] = []
    compute = scheme.algorithm.compute_gradients

    def recorded(batch: Any, grads_to_cpu: bool = True) -> Any:
        gradients, info = compute(batch, grads_to_cpu)
        infos.append(info)
        return gradients, info

    scheme.algorithm.compute_gradients = recorded  # type: ignore[method-assign]
    result = scheme.step()
    for name, value in result.losses.items():
        assert value.item() == pytest.approx(sum(info[name].item() for info in infos) / len(infos), rel=1e-5)


def test_a_changed_size_is_the_next_rounds(make_scheme: Callable[..., Scheme]) -> None:
    scheme = make_scheme(num_envs=2, size=4)
    assert scheme.step().env_steps == 8
    scheme.storage.update_storage_parameter("size", 6)
    assert scheme.step().env_steps == 12
    assert scheme.storage.size == 6
