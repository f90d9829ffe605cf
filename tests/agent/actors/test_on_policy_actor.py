"""OnPolicyActor over every space: consistent, stateless, recurrent or not, and learnable."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import save_file
from tests.agent.actors.conftest import ACTIONS, OBSERVATIONS, VECTOR
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import PPO
from pytorchrl.errors import CheckpointError, ConfigError, SpaceError
from pytorchrl.keys import ACT, ADV, DONE, LOGP, OBS, RET, RHS, VAL

MEMORIES: dict[str, dict[str, Any]] = {
    "none": {},
    "GRU": {"recurrent_net": "GRU", "recurrent_net_kwargs": {"output_size": 16}},
    "LSTM": {"recurrent_net": "LSTM", "recurrent_net_kwargs": {"layer_size": 8, "num_layers": 3}},
}
memories = pytest.mark.parametrize("memory", list(MEMORIES))
sharing = pytest.mark.parametrize("shared", [True, False])


def actor_on(observation: str, action: str, memory: str = "none", shared: bool = True, **more: Any) -> OnPolicyActor:
    factory = OnPolicyActor.create_factory(
        OBSERVATIONS[observation],
        ACTIONS[action],
        more.pop("algorithm", "PPO"),
        shared_policy_value_network=shared,
        **MEMORIES[memory],
        **more,
    )
    return factory("cpu")  # type: ignore[no-any-return]


@memories
@sharing
@pytest.mark.parametrize("action", list(ACTIONS))
@pytest.mark.parametrize("observation", list(OBSERVATIONS))
def test_what_was_acted_evaluates_to_its_log_prob(
    observation: str, action: str, shared: bool, memory: str, rows: Callable[..., Any]
) -> None:
    actor = actor_on(observation, action, memory, shared)
    obs, rhs, done = rows(OBSERVATIONS[observation], 5), actor.initial_rhs(5), torch.zeros(5, 1)
    sampled, executed, logp, following, entropy, _ = actor.get_action(obs, rhs, done)
    again, entropy_again, _ = actor.evaluate_actions(obs, rhs, done, sampled)
    torch.testing.assert_close(again, logp)
    torch.testing.assert_close(entropy_again, entropy)
    assert logp.shape == entropy.shape == (5, 1)
    assert sampled.dtype == executed.dtype == (torch.float32 if action == "box" else torch.int64)
    assert sampled.shape == {"discrete": (5, 1), "box": (5, 2)}.get(action, (5, 3))
    value = actor.get_value(obs, rhs, done)
    dist, values, rhs2 = actor(obs, rhs, done)
    torch.testing.assert_close(dist.log_prob(sampled), logp)
    torch.testing.assert_close(values["value_net1"], value["value_net1"])
    assert value["value_net1"].shape == (5, 1)
    assert list(rhs2) == list(following) == list(value["rhs"]) == list(rhs) == ["policy", "value_net1"]
    assert rhs2 is not rhs
    assert actor.is_recurrent == (memory != "none")


@pytest.mark.parametrize("action", list(ACTIONS))
def test_deterministic_acting_is_the_mode_every_time(action: str, rows: Callable[..., Any]) -> None:
    actor = actor_on("vector", action)
    obs, rhs, done = rows(VECTOR, 6), actor.initial_rhs(6), torch.zeros(6, 1)
    first = actor.get_action(obs, rhs, done, deterministic=True)
    assert torch.equal(first[0], actor.get_action(obs, rhs, done, deterministic=True)[0])
    assert torch.equal(first[0], first[5].mode())


def test_the_generator_repeats_what_it_drew(rows: Callable[..., Any]) -> None:
    for action in ACTIONS:
        actor = actor_on("vector", action)
        obs, rhs, done = rows(VECTOR, 50), actor.initial_rhs(50), torch.zeros(50, 1)
        state = actor.get_state()
        first = actor.get_action(obs, rhs, done)[0]
        assert not torch.equal(first, actor.get_action(obs, rhs, done)[0])
        actor.set_state(state)
        torch.rand(1)
        assert torch.equal(first, actor.get_action(obs, rhs, done)[0])


@memories
@sharing
@pytest.mark.parametrize("observation", list(OBSERVATIONS))
def test_one_pass_over_a_rollout_equals_acting_through_it(
    observation: str, shared: bool, memory: str, rows: Callable[..., Any]
) -> None:
    actor = actor_on(observation, "discrete", memory, shared)
    L, N = 10, 2
    obs = rows(OBSERVATIONS[observation], L * N)
    done = (torch.rand(L * N, 1) < 0.2).float()
    start = {key: value + torch.randn(value.shape) for key, value in actor.initial_rhs(N).items()}
    if shared:
        start["value_net1"] = start["policy"]
    before = copy.deepcopy(start)
    rhs, logits, values = start, [], []
    for t in range(L):
        step = slice(t * N, (t + 1) * N)
        dist, value, rhs = actor(tree.index(obs, step), rhs, done[step])
        logits.append(dist.log_probs)
        values.append(value["value_net1"])
    dist, value, last = actor(obs, start, done)
    torch.testing.assert_close(dist.log_probs, torch.cat(logits), rtol=0, atol=1e-6)
    torch.testing.assert_close(value["value_net1"], torch.cat(values), rtol=0, atol=1e-6)
    for key in start:
        torch.testing.assert_close(last[key], rhs[key], rtol=0, atol=1e-6)
        assert torch.equal(start[key], before[key])  # nothing in place


@memories
def test_another_batch_of_equal_size_changes_nothing_that_was_returned(memory: str, rows: Callable[..., Any]) -> None:
    actor = actor_on("dict", "box", memory, shared=False)
    space, rhs, done = OBSERVATIONS["dict"], actor.initial_rhs(4), torch.zeros(4, 1)
    obs = rows(space, 4)
    dist, values, following = actor(obs, rhs, done)
    kept = [dist.mean, values["value_net1"], *following.values()]
    copies = [tensor.detach().clone() for tensor in kept]
    actor(rows(space, 4), following, done)
    actor.get_value(rows(space, 4), rhs, 1 - done)
    for tensor, clone in zip(kept, copies, strict=True):
        assert torch.equal(tensor, clone)
    again, values_again, _ = actor(obs, rhs, done)
    assert torch.equal(again.mean, copies[0])
    assert torch.equal(values_again["value_net1"], copies[1])


def test_policy_and_value_have_memories_of_their_own_unless_shared(rows: Callable[..., Any]) -> None:
    obs, done = rows(VECTOR, 3), torch.zeros(3, 1)
    for shared in (True, False):
        actor = actor_on("vector", "discrete", "GRU", shared)
        _, _, rhs = actor(obs, actor.initial_rhs(3), done)
        assert (rhs["policy"] is rhs["value_net1"]) == shared
        assert torch.equal(rhs["policy"], rhs["value_net1"]) == shared


@sharing
@memories
def test_random_network_distillation_has_a_second_value(memory: str, shared: bool, rows: Callable[..., Any]) -> None:
    actor = actor_on("vector", "discrete", memory, shared, algorithm="RND_PPO")
    values = actor.get_value(rows(VECTOR, 3), actor.initial_rhs(3), torch.zeros(3, 1))
    assert set(values) == {"value_net1", "ivalue_net1", "rhs"}
    assert values["ivalue_net1"].shape == (3, 1)
    assert not torch.equal(values["ivalue_net1"], values["value_net1"])


@sharing
def test_gains_reach_the_heads_once(shared: bool) -> None:
    actor = actor_on("vector", "discrete", shared=shared, policy_gain=0.2, value_gain=3.0)
    weight = actor.policy_net.linear.weight.detach()
    torch.testing.assert_close(weight @ weight.T, 0.04 * torch.eye(3), rtol=0, atol=1e-6)
    assert actor.value_net1.weight.norm().item() == pytest.approx(3.0)


@pytest.mark.parametrize("memory", ["none", "GRU"])
@sharing
@pytest.mark.parametrize("action", list(ACTIONS))
@pytest.mark.parametrize("observation", list(OBSERVATIONS))
def test_ppo_learns_a_rewarded_action_on_every_space(
    observation: str, action: str, shared: bool, memory: str, rows: Callable[..., Any]
) -> None:
    """Steps with advantage 1 for one action in each state raise its probability, and move every parameter."""
    actor = actor_on(observation, action, memory, shared)
    make, _ = PPO.create_factory(lr=1e-3, entropy_coef=0.0)
    ppo = make("cpu", actor, None)
    L, N = 4, 3
    obs, done = rows(OBSERVATIONS[observation], L * N), torch.zeros(L * N, 1)
    rhs = actor.initial_rhs(N if actor.is_recurrent else 1)
    taken: Tensor = rows(ACTIONS[action], L * N)
    with torch.no_grad():
        before = actor.evaluate_actions(obs, rhs, done, taken)[0]
    weights = [parameter.detach().clone() for parameter in actor.parameters()]
    batch = {OBS: obs, RHS: rhs, DONE: done, ACT: taken, LOGP: before}
    batch |= {key: torch.ones(L * N, 1) for key in (ADV, RET, VAL)}
    for _ in range(3):
        gradients, _ = ppo.compute_gradients(batch)
        assert all(gradient is not None for gradient in gradients)
        ppo.apply_gradients()
    with torch.no_grad():
        after = actor.evaluate_actions(obs, rhs, done, taken)[0]
    assert after.mean() > before.mean()
    for old, new in zip(weights, actor.parameters(), strict=True):
        assert not torch.equal(old, new)


def test_a_trained_policy_is_where_another_starts(tmp_path: Path, rows: Callable[..., Any]) -> None:
    trained = actor_on("vector", "box")
    save_file(trained.state_dict(), tmp_path / "policy.safetensors")
    obs, rhs, done = rows(VECTOR, 4), trained.initial_rhs(4), torch.zeros(4, 1)
    for path in (tmp_path, tmp_path / "policy.safetensors"):
        actor = actor_on("vector", "box", restart_model=str(path))
        assert torch.equal(actor(obs, rhs, done)[0].mean, trained(obs, rhs, done)[0].mean)
    with pytest.raises(CheckpointError, match="no policy at"):
        actor_on("vector", "box", restart_model=str(tmp_path / "nowhere"))
    with pytest.raises(CheckpointError, match="do not fit"):
        actor_on("image", "box", restart_model=str(tmp_path))
    torch.save(trained.state_dict(), tmp_path / "pickled")
    with pytest.raises(CheckpointError, match="cannot be read"):
        actor_on("vector", "box", restart_model=str(tmp_path / "pickled"))


@pytest.mark.parametrize(
    ("chosen", "error", "message"),
    [
        ({"recurrent_net": "GRUU"}, ConfigError, "Did you mean 'GRU'"),
        ({"recurrent_net": "GRU", "recurrent_net_kwargs": {"size": 3}}, ConfigError, "no parameter 'size'"),
        ({"feature_extractor_network": "MLPP"}, ConfigError, "Did you mean 'MLP'"),
        ({"feature_extractor_kwargs": {"hiden_sizes": [3]}}, ConfigError, "Did you mean 'hidden_sizes'"),
        ({"feature_extractor_network": "DictNet"}, SpaceError, "DictNet cannot read"),
        ({"shared": True}, ConfigError, "no parameter 'shared'"),
    ],
)
def test_what_cannot_work_is_refused(chosen: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        OnPolicyActor.create_factory(VECTOR, ACTIONS["discrete"], "PPO", **chosen)("cpu")


@pytest.mark.parametrize("action", list(ACTIONS))
def test_random_actions_are_spread_over_the_space(action: str) -> None:
    actor = actor_on("vector", action)
    space = ACTIONS[action]
    drawn = actor.random_action(2000)
    like = actor.get_action(torch.zeros(2000, 3), actor.initial_rhs(2000), torch.zeros(2000, 1))[0]
    assert (drawn.shape, drawn.dtype) == (like.shape, like.dtype)
    if isinstance(space, spaces.Box):
        low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
        torch.testing.assert_close(drawn.mean(0), (low + high) / 2, rtol=0, atol=0.2)
        assert ((drawn >= low) & (drawn <= high)).all()
        return
    sizes = {"discrete": [3], "multidiscrete": [3, 2, 4], "multibinary": [2, 2, 2]}[action]
    for column, size in zip(drawn.unbind(1), sizes, strict=True):
        shares = torch.bincount(column, minlength=size) / 2000
        torch.testing.assert_close(shares, torch.full((size,), 1 / size), rtol=0, atol=0.05)


def test_action_spaces_without_a_policy_are_refused_by_name() -> None:
    space: gym.Space[Any] = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    with pytest.raises(SpaceError, match="infinite or equal"):
        OnPolicyActor("cpu", VECTOR, space, "PPO")


def test_a_copy_acts_alike_and_draws_on_its_own(rows: Callable[..., Any]) -> None:
    actor = actor_on("vector", "box", "LSTM")
    twin = copy.deepcopy(actor)
    obs, rhs, done = rows(VECTOR, 4), actor.initial_rhs(4), torch.zeros(4, 1)
    assert torch.equal(actor.get_action(obs, rhs, done)[0], twin.get_action(obs, rhs, done)[0])
    assert actor.generator is not twin.generator
