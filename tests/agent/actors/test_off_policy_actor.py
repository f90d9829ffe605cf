"""OffPolicyActor for every algorithm, space and memory: scores, hidden states, exploration, burn-in."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium import spaces
from tests.agent.actors.conftest import ACTIONS, OBSERVATIONS, VECTOR
from torch import Tensor, nn

from pytorchrl import tree
from pytorchrl.agent.actors import OffPolicyActor
from pytorchrl.errors import ConfigError, SpaceError
from pytorchrl.keys import ACT, DONE, OBS, OBS2, REW, RHS, RHS2

PAIRS = [
    ("DDQN", "discrete"),
    ("DDPG", "box"),
    ("TD3", "box"),
    ("SAC", "box"),
    ("SAC", "discrete"),
    ("MPO", "box"),
    ("MPO", "discrete"),
]
MEMORIES: dict[str, dict[str, Any]] = {
    "none": {},
    "GRU": {"recurrent_net": "GRU", "recurrent_net_kwargs": {"output_size": 16}},
    "LSTM": {"recurrent_net": "LSTM", "recurrent_net_kwargs": {"layer_size": 8, "num_layers": 2}},
}
pairs = pytest.mark.parametrize(("algorithm", "action"), PAIRS)
memories = pytest.mark.parametrize("memory", list(MEMORIES))
SMALL = {"common_feature_extractor_kwargs": {"hidden_sizes": [16]}}


def actor_on(
    observation: str, action: str, algorithm: str, memory: str = "none", like: nn.Module | None = None, **more: Any
) -> OffPolicyActor:
    factory = OffPolicyActor.create_factory(
        OBSERVATIONS[observation], ACTIONS[action], algorithm, **MEMORIES[memory], **SMALL, **more
    )
    actor: OffPolicyActor = factory("cpu")
    if like is not None:
        actor.load_state_dict(like.state_dict())
    return actor


@memories
@pairs
@pytest.mark.parametrize("observation", list(OBSERVATIONS))
def test_acting_and_scoring(
    observation: str, algorithm: str, action: str, memory: str, rows: Callable[..., Any]
) -> None:
    actor = actor_on(observation, action, algorithm, memory)
    space, recurrent = ACTIONS[action], memory != "none"
    obs, rhs, done = rows(OBSERVATIONS[observation], 5), actor.initial_rhs(5), torch.zeros(5, 1)
    assert actor.is_recurrent == recurrent
    assert list(rhs) == ["rhs_act", "rhs_q1", "rhs_q2"]
    taken, executed, logp, following, entropy, _ = actor.get_action(obs, rhs, done)
    assert torch.equal(taken, executed)
    for row in executed.detach().numpy():
        assert space.contains(row if action == "box" else int(row[0]))
    assert logp.shape == entropy.shape == (5, 1)
    # every network's hidden state has moved on, and nothing was written in place
    without_policy = algorithm == "DDQN"
    for key in rhs:
        assert torch.equal(rhs[key], actor.initial_rhs(5)[key])
        assert torch.equal(following[key], rhs[key]) == (not recurrent or (without_policy and key == "rhs_act"))
    if recurrent:
        assert not torch.equal(following["rhs_q1"], following["rhs_q2"])
    scores = actor.get_q_scores(obs, rhs, done, taken)
    assert set(scores) == {"q1", "q2", "rhs"}
    assert scores["q1"].shape == scores["q2"].shape == (5, 1)
    for key in ("rhs_q1", "rhs_q2"):
        torch.testing.assert_close(scores["rhs"][key], following[key])
    assert scores["rhs"]["rhs_act"] is rhs["rhs_act"]
    if action == "discrete":
        everything = actor.get_q_scores(obs, rhs, done)["q1"]
        assert everything.shape == (5, 3)
        torch.testing.assert_close(everything.gather(1, taken), scores["q1"])
    assert actor.get_value(obs, rhs, done)["value_net1"].shape == (5, 1)


@pairs
def test_what_was_acted_evaluates_to_its_log_prob(algorithm: str, action: str, rows: Callable[..., Any]) -> None:
    actor = actor_on("vector", action, algorithm, noise="NoNoise")
    obs, rhs, done = rows(VECTOR, 50), actor.initial_rhs(50), torch.zeros(50, 1)
    taken, _, logp, _, _, dist = actor.get_action(obs, rhs, done)
    again, _, _ = actor.evaluate_actions(obs, rhs, done, taken)
    torch.testing.assert_close(again, logp)
    if algorithm == "SAC" and action == "box":
        drawn, exact = dist.rsample(torch.Generator().manual_seed(3))
        torch.testing.assert_close(actor.evaluate_actions(obs, rhs, done, drawn)[0], exact, rtol=1e-3, atol=1e-2)


def test_critics_see_actions_in_units_of_the_box(rows: Callable[..., Any]) -> None:
    """Boxes of any size look alike to equal networks."""
    wide: Any = ACTIONS["box"]
    first = OffPolicyActor("cpu", VECTOR, wide, "SAC")
    other = OffPolicyActor("cpu", VECTOR, spaces.Box(-1.0, 1.0, (2,)), "SAC")
    other.load_state_dict(first.state_dict())
    obs, done, u = rows(VECTOR, 4), torch.zeros(4, 1), torch.rand(4, 2) * 2 - 1
    low, high = torch.as_tensor(wide.low), torch.as_tensor(wide.high)
    in_box = low + (u + 1) / 2 * (high - low)
    rhs = first.initial_rhs(4)
    torch.testing.assert_close(
        first.get_q_scores(obs, rhs, done, in_box)["q2"],
        other.get_q_scores(obs, rhs, done, u)["q2"],
        rtol=1e-4,
        atol=1e-5,
    )


@memories
@pytest.mark.parametrize("observation", list(OBSERVATIONS))
@pytest.mark.parametrize("action", ["box", "discrete"])
def test_replayed_sequences_equal_acting_through_them(
    observation: str, action: str, memory: str, rows: Callable[..., Any]
) -> None:
    """Rows come sequence by sequence; resets inside; with and without burn-in."""
    actor = actor_on(observation, action, "SAC", memory)
    n, L = 3, 6
    obs, taken = rows(OBSERVATIONS[observation], n * L), rows(ACTIONS[action], n * L)
    done = (torch.rand(n * L, 1) < 0.2).float()
    rhs = {key: value + torch.randn(value.shape) for key, value in actor.initial_rhs(n).items()}
    at = torch.arange(n * L).view(n, L)
    state, q1, modes, states = rhs, [], [], []
    for t in range(L):
        o, d = tree.index(obs, at[:, t]), done[at[:, t]]
        dist, state = actor.get_policy(o, state, d)
        scores = actor.get_q_scores(o, state, d, taken[at[:, t]])
        state = scores["rhs"]
        q1.append(scores["q1"])
        modes.append(dist.mode())
        states.append(state)
    in_order = at.T.flatten().argsort()
    dist, moved = actor.get_policy(obs, rhs, done)
    scores = actor.get_q_scores(obs, moved, done, taken)
    torch.testing.assert_close(scores["q1"], torch.cat(q1)[in_order], rtol=0, atol=1e-5)
    torch.testing.assert_close(dist.mode(), torch.cat(modes)[in_order], rtol=0, atol=1e-5)
    for key in rhs:
        torch.testing.assert_close(scores["rhs"][key], states[-1][key], rtol=0, atol=1e-5)

    batch = {OBS: obs, RHS: rhs, DONE: done, ACT: taken, REW: torch.arange(n * L).view(-1, 1)}
    rest = actor.burn_in_recurrent_states(batch)
    if memory == "none":
        assert rest == batch
        return
    assert rest[REW].view(n, -1).tolist() == at[:, 3:].tolist()
    for key in rhs:
        torch.testing.assert_close(rest[RHS][key], states[2][key], rtol=0, atol=1e-5)
        assert not rest[RHS][key].requires_grad
    later = actor.get_q_scores(rest[OBS], rest[RHS], rest[DONE], rest[ACT])["q1"]
    torch.testing.assert_close(later, scores["q1"].view(n, L)[:, 3:].reshape(-1, 1), rtol=0, atol=1e-5)


def test_successors_are_burned_in_from_their_own_hidden_states(rows: Callable[..., Any]) -> None:
    """Without a reset inside, the states of the successors are those of the observations one step on."""
    actor = actor_on("vector", "box", "TD3", "LSTM", sequence_overlap=0.4)
    n, L = 2, 6
    path, taken = rows(VECTOR, n * (L + 1)).view(n, L + 1, -1), rows(ACTIONS["box"], n * L)
    done = torch.zeros(n, L, 1)
    done[:, 0] = 1.0
    start = {key: value + 1.0 for key, value in actor.initial_rhs(n).items()}
    first = actor._advance(path[:, 0], start, done[:, 0], taken.view(n, L, -1)[:, 0])
    batch = {OBS: path[:, :-1].flatten(0, 1), OBS2: path[:, 1:].flatten(0, 1), RHS: start, RHS2: first}
    rest = actor.burn_in_recurrent_states({**batch, DONE: done.flatten(0, 1), ACT: taken})
    assert len(rest[OBS]) == n * 4
    state = rest[RHS]
    expected = actor._advance(rest[OBS].view(n, 4, -1)[:, 0], state, torch.zeros(n, 1), rest[ACT].view(n, 4, -1)[:, 0])
    for key in expected:
        torch.testing.assert_close(rest[RHS2][key], expected[key], rtol=0, atol=1e-6)


def test_noise_is_in_acting_alone(rows: Callable[..., Any]) -> None:
    for algorithm, noise, explores in (("DDPG", None, True), ("TD3", "OU", True), ("TD3", "NoNoise", False)):
        actor = actor_on("vector", "box", algorithm, noise=noise)
        obs, rhs, done = rows(VECTOR, 500), actor.initial_rhs(500), torch.zeros(500, 1)
        mode = actor.get_action(obs, rhs, done, deterministic=True)[0]
        torch.testing.assert_close(mode, actor.get_policy(obs, rhs, done)[0].mode())
        noisy = actor.get_action(obs, rhs, done)[0]
        assert torch.equal(noisy, mode) != explores
        if explores:
            units = ((noisy - mode) / torch.tensor([1.5, 2.5])).std(0)
            torch.testing.assert_close(units, torch.full((2,), 0.1 if noise is None else 0.2), rtol=0.1, atol=0)


def test_the_state_of_acting_can_be_saved(rows: Callable[..., Any]) -> None:
    actor = actor_on("vector", "box", "DDPG", noise="OU")
    obs, rhs, done = rows(VECTOR, 3), actor.initial_rhs(3), torch.zeros(3, 1)
    actor.get_action(obs, rhs, done)
    state = copy.deepcopy(actor.get_state())
    expected = actor.get_action(obs, rhs, done)[0]
    twin = actor_on("vector", "box", "DDPG", like=actor, noise="OU")
    twin.set_state(state)
    assert torch.equal(twin.get_action(obs, rhs, done)[0], expected)


def test_greedy_actions_without_a_policy_network(rows: Callable[..., Any]) -> None:
    actor = actor_on("vector", "discrete", "DDQN")
    obs, rhs, done = rows(VECTOR, 40), actor.initial_rhs(40), torch.zeros(40, 1)
    best = actor.get_q_scores(obs, rhs, done)["q1"].argmax(1, keepdim=True)
    for deterministic in (True, False):
        assert torch.equal(actor.get_action(obs, rhs, done, deterministic)[0], best)
    torch.testing.assert_close(
        actor.get_value(obs, rhs, done)["value_net1"], actor.get_q_scores(obs, rhs, done, best)["q1"]
    )
    assert actor.policy_net is None


@memories
def test_critics_are_independent_of_each_other_and_of_the_policy(memory: str, rows: Callable[..., Any]) -> None:
    actor = actor_on("vector", "box", "SAC", memory, num_critics=3)
    obs, rhs, done = rows(VECTOR, 4), actor.initial_rhs(4), torch.zeros(4, 1)
    taken = rows(ACTIONS["box"], 4)
    scores = actor.get_q_scores(obs, rhs, done, taken)
    assert set(scores) == {"q1", "q2", "q3", "rhs"}
    policy = [*actor.policy_net.parameters(), *actor.policy_features.parameters()]  # type: ignore[union-attr]
    for k in range(3):
        grads = torch.autograd.grad(
            scores[f"q{k + 1}"].sum(), list(actor.critics.parameters()), retain_graph=True, allow_unused=True
        )
        names = [name for name, _ in actor.critics.named_parameters()]
        for name, grad in zip(names, grads, strict=True):
            if name.startswith("memories"):
                assert bool(grad.any()) == (name.startswith(f"memories.{k}.") and "weight_hh" not in name)
            else:
                rest = [grad[j] for j in range(3) if j != k]  # type: ignore[index]
                assert not any(part.any() for part in rest)
                assert grad[k].any()  # type: ignore[index]
        assert all(
            g is None for g in torch.autograd.grad(scores["q1"].sum(), policy, retain_graph=True, allow_unused=True)
        )
    only = actor.get_q_scores(obs, rhs, done, taken, num_critics=1)
    assert set(only) == {"q1", "rhs"}
    torch.testing.assert_close(only["q1"], scores["q1"])
    assert torch.equal(only["rhs"]["rhs_q2"], rhs["rhs_q2"])


def test_gradients_reach_mean_and_deviation_through_the_critics(rows: Callable[..., Any]) -> None:
    """The policy loss of SAC, reparametrized; critics' parameters are left alone."""
    actor = actor_on("vector", "box", "SAC")
    obs, rhs, done = rows(VECTOR, 16), actor.initial_rhs(16), torch.zeros(16, 1)
    dist, _ = actor.get_policy(obs, rhs, done)
    action, logp = dist.rsample(actor.generator)  # type: ignore[attr-defined]
    scores = actor.get_q_scores(obs, rhs, done, action)
    loss = (0.2 * logp - torch.min(scores["q1"], scores["q2"])).mean()
    assert actor.policy_net is not None
    gradient: Tensor = torch.autograd.grad(loss, [actor.policy_net.linear.weight])[0]  # type: ignore[list-item,union-attr]
    assert (gradient.abs().sum(1) > 0).all()


def test_networks_that_are_asked_for(rows: Callable[..., Any]) -> None:
    actor = OffPolicyActor(
        "cpu",
        OBSERVATIONS["vector"],
        ACTIONS["box"],
        "SAC",
        obs_feature_extractor="MLP",
        obs_feature_extractor_kwargs={"hidden_sizes": [7]},
        act_feature_extractor_kwargs={"hidden_sizes": [5]},
        common_feature_extractor="MLP",
        common_feature_extractor_kwargs={"hidden_sizes": [11], "activation": "silu"},
        num_critics=3,
        policy_gain=0.5,
        value_gain=2.0,
    )
    shapes = [tuple(parameter.shape) for name, parameter in actor.critics.named_parameters() if "weight" in name]
    assert shapes == [(3, 3, 7), (3, 2, 5), (3, 12, 11), (3, 11, 1)]
    for head in actor.critics.heads.weight:
        assert head.norm().item() == pytest.approx(2.0)
    weight = actor.policy_net.linear.weight.detach()  # type: ignore[union-attr]
    torch.testing.assert_close(weight @ weight.T, 0.25 * torch.eye(4), rtol=0, atol=1e-5)  # type: ignore[operator]
    assert actor.get_action(rows(VECTOR, 2), actor.initial_rhs(2), torch.zeros(2, 1))[0].shape == (2, 2)


def test_defaults() -> None:
    def weights(observation: str, action: str, algorithm: str) -> list[tuple[int, ...]]:
        actor = OffPolicyActor("cpu", OBSERVATIONS[observation], ACTIONS[action], algorithm)
        return [tuple(p.shape) for n, p in actor.critics.named_parameters() if "weight" in n and p.dim() == 3]

    assert weights("vector", "box", "TD3") == [(2, 5, 256), (2, 256, 256), (2, 256, 1)]
    assert weights("vector", "discrete", "DDQN") == [(2, 3, 256), (2, 256, 256), (2, 256, 3)]
    assert weights("image", "discrete", "DDQN") == [(2, 512, 3)]
    assert weights("image", "box", "SAC") == [(2, 514, 256), (2, 256, 256), (2, 256, 1)]


@pytest.mark.parametrize(
    ("algorithm", "action", "chosen", "error", "message"),
    [
        ("DDQN", "box", {}, SpaceError, "DDQN cannot act in action space Box"),
        ("TD3", "discrete", {}, SpaceError, "TD3 cannot act in action space Discrete"),
        ("SAC", "multidiscrete", {}, SpaceError, "SAC cannot act in action space MultiDiscrete"),
        ("MPO", "multibinary", {}, SpaceError, "Supported: Box, Discrete"),
        ("SCA", "box", {}, ConfigError, "Did you mean 'SAC'"),
        ("TD3", "box", {"noise": "Gaus"}, ConfigError, "Did you mean 'Gauss'"),
        ("SAC", "discrete", {"noise": "Gauss"}, ConfigError, "cannot be added to discrete"),
        ("SAC", "box", {"common_feature_extractor": "MPL"}, ConfigError, "Did you mean 'MLP'"),
        ("SAC", "box", {"recurrent_net": "LTSM"}, ConfigError, "Did you mean 'LSTM'"),
        ("SAC", "box", {"num_critics": 0}, ConfigError, "at least 1"),
        ("SAC", "box", {"critics": 1}, ConfigError, "Did you mean 'num_critics'"),
    ],
)
def test_what_cannot_work_is_refused_by_name(
    algorithm: str, action: str, chosen: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        OffPolicyActor.create_factory(VECTOR, ACTIONS[action], algorithm, **chosen)("cpu")


def test_continuous_scores_need_actions(rows: Callable[..., Any]) -> None:
    actor = actor_on("vector", "box", "SAC")
    with pytest.raises(TypeError, match="needs the actions"):
        actor.get_q_scores(rows(VECTOR, 2), actor.initial_rhs(2), torch.zeros(2, 1))
