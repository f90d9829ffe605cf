"""Policy-loss add-ons, on- and off-policy, over every distribution: formulas, references, predictors, state."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import save_file
from torch import Tensor
from torch import distributions as td

import pytorchrl as prl
from pytorchrl.agent.actors import OffPolicyActor, OnPolicyActor
from pytorchrl.agent.algorithms.policy_loss_addons import AttractionKL, RepulsionKL, ReturnPredictor, RewardPredictor
from pytorchrl.cli import main
from pytorchrl.errors import ConfigError
from pytorchrl.keys import ACT, ADV, DONE, DONE2, LOGP, N_STEP, OBS, OBS2, RET, REW, RHS, RHS2, TERMINAL, VAL
from pytorchrl.registry import load_class

VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
BOX = spaces.Box(np.float32([-2, -1]), np.float32([2, 3]))
SMALL = {"hidden_sizes": [8]}
ROWS = 12

# By case: algorithm, action space, and the policy in torch.distributions, in [−1, 1] units.
CASES: dict[str, tuple[str, gym.Space[Any], Callable[[Any], td.Distribution]]] = {
    "A2C": ("A2C", spaces.Discrete(3), lambda d: td.Categorical(logits=d.log_probs)),
    "PPO": ("PPO", spaces.Discrete(3), lambda d: td.Categorical(logits=d.log_probs)),
    "PPO, several": (
        "PPO",
        spaces.MultiDiscrete([3, 2]),
        lambda d: td.Independent(td.Categorical(logits=d.log_probs), 1),
    ),
    "PPO, switches": ("PPO", spaces.MultiBinary(3), lambda d: td.Independent(td.Bernoulli(logits=d.logits), 1)),
    "PPO, box": ("PPO", BOX, lambda d: td.Independent(td.Normal(d.mean, d.log_std.exp().expand_as(d.mean)), 1)),
    "DDQN": ("DDQN", spaces.Discrete(3), lambda d: td.Categorical(logits=d.log_probs)),
    "DDPG": ("DDPG", BOX, lambda d: td.Independent(td.Normal(d.mean, torch.ones_like(d.mean)), 1)),
    "TD3": ("TD3", BOX, lambda d: td.Independent(td.Normal(d.mean, torch.ones_like(d.mean)), 1)),
    "SAC": ("SAC", BOX, lambda d: td.Independent(td.Normal(d.mean, d.log_std.exp()), 1)),
    "SAC, discrete": ("SAC", spaces.Discrete(3), lambda d: td.Categorical(logits=d.log_probs)),
}


def actor_factory(case: str, seed: int, **more: Any) -> Callable[..., Any]:
    """A factory whose actors are always the same."""
    name, actions, _ = CASES[case]
    on_policy = name in ("A2C", "PPO")
    extractor = "feature_extractor_kwargs" if on_policy else "common_feature_extractor_kwargs"
    kind: Any = OnPolicyActor if on_policy else OffPolicyActor
    create = kind.create_factory(VECTOR, actions, name, **{extractor: SMALL} | more)

    def make(device: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            actor = create(device)
            if hasattr(actor.policy_net, "linear"):
                actor.policy_net.linear.weight.data.mul_(60)  # policies that differ
        return actor

    return make


def make_algorithm(case: str, addons: Any = (), seed: int = 0, **parameters: Any) -> Any:
    cls = load_class("algorithm", CASES[case][0])
    rates = {name: 1e-2 for name in ("lr", "lr_pi") if name in cls.hyperparameters()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        create, _ = cls.create_factory(policy_loss_addons=addons, **rates | parameters)
        return create("cpu", actor_factory(case, 7)("cpu"), None)


def make_batch(algorithm: Any, seed: int = 0) -> dict[str, Any]:
    """What either kind of storage yields."""
    generator = torch.Generator().manual_seed(seed)
    actor = algorithm.actor
    obs, obs2 = (torch.rand(ROWS, 4, generator=generator) * 2 - 1 for _ in range(2))
    rhs, zeros = actor.initial_rhs(1), torch.zeros(ROWS, 1)
    with torch.no_grad():
        dist, _ = actor.get_policy(obs, rhs, zeros)
        action = dist.executed(dist.sample(generator))
        log_prob = dist.log_prob(action)
    batch = {OBS: obs, RHS: rhs, DONE: zeros, ACT: action, OBS2: obs2, RHS2: rhs, DONE2: zeros, TERMINAL: zeros}
    batch |= {REW: obs.sum(1, keepdim=True), N_STEP: torch.ones(ROWS, 1)}
    if isinstance(actor, OnPolicyActor):
        columns = {key: torch.randn(ROWS, 1, generator=generator) for key in (VAL, ADV)}
        batch |= columns | {LOGP: log_prob, RET: 2 * batch[REW]}
    return batch


def policies(case: str, seeds: list[int], batch: Any) -> list[td.Distribution]:
    made = [actor_factory(case, seed)("cpu") for seed in seeds]
    with torch.no_grad():
        return [CASES[case][2](actor.get_policy(batch[OBS], batch[RHS], batch[DONE])[0]) for actor in made]


def term_of(addon: Any, algorithm: Any, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
    dist, _ = algorithm.actor.get_policy(batch[OBS], batch[RHS], batch[DONE])
    loss, info = addon.compute_loss_term(batch, dist, {})
    assert loss.dim() == 0
    assert all(value.dim() == 0 and not value.requires_grad for value in info.values())
    return loss, info


@pytest.mark.parametrize("case", CASES)
def test_the_terms_by_their_formulas(case: str) -> None:
    factories, weights = [actor_factory(case, seed) for seed in (1, 2)], [3.0, 1.0]
    attraction, repulsion = (cls(factories, weights, 0.5) for cls in (AttractionKL, RepulsionKL))
    algorithm = make_algorithm(case, [attraction, repulsion])
    batch = make_batch(algorithm)
    own, *others = policies(case, [7, 1, 2], batch)
    divergences = [td.kl_divergence(own, other) for other in others]
    assert min(float(kl.mean()) for kl in divergences) > 0.01
    nearest = torch.minimum(divergences[0] - math.log(0.75), divergences[1] - math.log(0.25))
    found = term_of(attraction, algorithm, batch)[0]
    torch.testing.assert_close(found, 0.5 * nearest.mean(), rtol=1e-4, atol=1e-5)
    away = 0.75 * divergences[0].mean() + 0.25 * divergences[1].mean()
    found = term_of(repulsion, algorithm, batch)[0]
    torch.testing.assert_close(found, -0.5 * away, rtol=1e-4, atol=1e-5)
    assert weights == [3.0, 1.0]
    assert len(factories) == 2
    # What mixes the policies is no nearer than the bound.
    if isinstance(own, td.Categorical):
        mixed = td.Categorical(probs=0.75 * others[0].probs + 0.25 * others[1].probs)  # type: ignore[attr-defined]
        assert (td.kl_divergence(own, mixed) <= nearest + 1e-5).all()


@pytest.mark.parametrize("case", CASES)
def test_a_policy_is_at_no_distance_from_itself(case: str) -> None:
    for eps in (1e-8, 0.1):
        addon = AttractionKL([actor_factory(case, 7)], [2.0], eps=eps)
        algorithm = make_algorithm(case, addon)
        assert term_of(addon, algorithm, make_batch(algorithm))[0].item() == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cls", [AttractionKL, RepulsionKL])
def test_attraction_draws_near_and_repulsion_drives_away(case: str, cls: Any) -> None:
    addon = cls([actor_factory(case, 1)], [1.0], 30.0)
    algorithm = make_algorithm(case, [addon])
    fixed = [value.clone() for value in addon.references[0].state_dict().values()]

    def distance() -> float:
        return term_of(addon, algorithm, make_batch(algorithm))[1][f"{addon.logged_as}_kl"].item()

    before = distance()
    for number in range(15):
        algorithm.compute_gradients(make_batch(algorithm, number))
        algorithm.apply_gradients()
    assert (distance() < before) == (cls is AttractionKL)
    assert all(torch.equal(*pair) for pair in zip(fixed, addon.references[0].state_dict().values(), strict=True))
    assert not addon.parameters()
    names = {id(parameter) for parameter in algorithm.trainable_parameters}
    assert not names & {id(parameter) for parameter in addon.references[0].parameters()}


def test_small_probabilities_are_raised_to_eps() -> None:
    """A reference that rules an action out is a finite way off: at most log 1/eps."""
    for eps in (1e-3, 1e-6):
        addon = RepulsionKL([actor_factory("PPO", 1)], [1.0], eps=eps)
        algorithm = make_algorithm("PPO", addon)
        addon.references[0].policy_net.linear.bias.data.copy_(torch.tensor([0.0, -1e8, -1e8]))
        algorithm.actor.policy_net.linear.bias.data.copy_(torch.tensor([-1e8, 50.0, 0.0]))
        loss, _ = term_of(addon, algorithm, make_batch(algorithm))
        assert -loss.item() == pytest.approx(math.log(1 / eps), rel=0.02)


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    ours = [actor_factory("PPO", 1)]
    for weights in ([], [1.0, 2.0], [0.0]):
        with pytest.raises(ConfigError, match="weight"):
            AttractionKL(ours, weights)
    with pytest.raises(ConfigError, match="at least one"):
        RepulsionKL([], [])
    with pytest.raises(ConfigError, match="action space"):
        make_algorithm("PPO", AttractionKL([actor_factory("PPO, box", 1)], [1.0]))
    other = OnPolicyActor.create_factory(spaces.Box(-1.0, 1.0, (5,)), spaces.Discrete(3), "PPO")
    with pytest.raises(ConfigError, match="input space"):
        make_algorithm("PPO", AttractionKL([other], [1.0]))
    remembering = OnPolicyActor.create_factory(VECTOR, spaces.Discrete(3), "PPO", recurrent_net="GRU")
    with pytest.raises(ConfigError, match="memory"):
        make_algorithm("PPO", AttractionKL([remembering], [1.0]))
    algorithm = make_algorithm("SAC", AttractionKL([actor_factory("DDPG", 1)], [1.0]))
    with pytest.raises(ConfigError, match="Deterministic, and the one that learns is a SquashedGaussian"):
        algorithm.compute_gradients(make_batch(algorithm))
    with pytest.raises(ConfigError, match="expected a PolicyLossAddOn, got 3"):
        make_algorithm("PPO", [3])


def test_references_come_from_folders_and_are_never_unpickled(tmp_path: Path) -> None:
    run = prl.train("ppo", "CartPole-v1", steps=64, overrides=TINY, run=tmp_path / "run")
    actor = run.policy.actor
    for path in (run.path, run.path / "policy"):
        addon = AttractionKL([str(path)], [1.0])
        addon.setup(actor, torch.device("cpu"))
        theirs = addon.references[0].state_dict()
        assert all(torch.equal(value, theirs[name]) for name, value in actor.state_dict().items())
    with pytest.raises(ConfigError, match="no policy here"):
        AttractionKL([str(tmp_path / "nowhere")], [1.0]).setup(actor, torch.device("cpu"))
    torch.save(actor.state_dict(), run.path / "policy" / "policy.safetensors")
    with pytest.raises(ConfigError, match="cannot be taken"):
        AttractionKL([str(run.path)], [1.0]).setup(actor, torch.device("cpu"))
    save_file(actor.state_dict(), tmp_path / "weights.safetensors")
    started = OnPolicyActor.create_factory(
        actor.input_space, actor.action_space, "PPO", restart_model=str(tmp_path / "weights.safetensors"), **SEPARATE
    )
    RepulsionKL([started], [1.0]).setup(actor, torch.device("cpu"))


@pytest.mark.parametrize("recurrent", ["GRU", "LSTM"])
@pytest.mark.parametrize("case", ["PPO", "SAC"])
def test_policies_with_memory_follow_the_sequences(case: str, recurrent: str) -> None:
    """The reference is at no distance from its equal in sequences that begin an episode."""
    more = {
        "recurrent_net": recurrent,
        "recurrent_net_kwargs": {"GRU": {"output_size": 4}}.get(recurrent, {"layer_size": 4}),
    }
    reference, actor = actor_factory(case, 1, **more), actor_factory(case, 1, **more)("cpu")
    addon = AttractionKL([reference], [1.0])
    addon.setup(actor, torch.device("cpu"))
    done = torch.zeros(ROWS, 1)
    done[:: 1 if case == "PPO" else 4][:3] = 1.0
    obs, rhs = torch.randn(ROWS, 4), actor.initial_rhs(3)
    dist, _ = actor.get_policy(obs, rhs, done)
    loss, _ = addon.compute_loss_term({OBS: obs, RHS: rhs, DONE: done}, dist, {})
    assert loss.item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("cls", [RewardPredictor, ReturnPredictor])
def test_a_predictors_term_by_its_formula(cls: Any) -> None:
    addon = cls(predictor_net_kwargs=SMALL)
    algorithm = make_algorithm("PPO", addon)
    batch = make_batch(algorithm)
    with torch.no_grad():
        errors = (addon.network(batch[OBS]) - batch[addon.predicts]).flatten()
    loss, info = term_of(addon, algorithm, batch)
    name = addon.name
    assert loss.item() == pytest.approx(0.5 * errors.square().mean().item(), rel=1e-5)
    expected = {
        f"{name}_predictor_loss": 0.5 * errors.square().mean(),
        f"{name}_predictor_error": errors.square().mean().sqrt(),
        f"max_{name}_pred_error_rms": errors.abs().max(),
        f"mean_{name}_pred_error_rms": errors.abs().mean(),
        f"min_{name}_pred_error_rms": errors.abs().min(),
    }
    assert {key: value.item() for key, value in info.items()} == pytest.approx(
        {key: value.item() for key, value in expected.items()}, rel=1e-4
    )


def test_rows_without_a_reward_are_left_out_with_the_given_probability() -> None:
    addon = RewardPredictor(masked_sparse_obs_ratio=1.0, predictor_net_kwargs=SMALL)
    algorithm = make_algorithm("PPO", addon)
    batch = make_batch(algorithm)
    batch[REW] = torch.tensor([1.0, 0.0, 0.0, -2.0] * 3)[:, None]
    with torch.no_grad():
        squares = (addon.network(batch[OBS]) - batch[REW]).square()
    rewarded = squares[(batch[REW] != 0).flatten()]
    loss, info = term_of(addon, algorithm, batch)
    assert loss.item() == pytest.approx(0.5 * rewarded.mean().item(), rel=1e-5)
    assert info["min_reward_pred_error_rms"].item() == pytest.approx(rewarded.sqrt().min().item(), rel=1e-4)
    batch[REW] = torch.zeros(ROWS, 1)
    loss, info = term_of(addon, algorithm, batch)
    assert [loss.item(), *(value.item() for value in info.values())] == [0.0] * 6
    loss.backward()
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in addon.parameters())
    addon.masked_sparse_obs_ratio = 0.25
    shares = [addon.kept(torch.zeros(4000, 1)) for _ in range(2)]
    assert shares[0].mean().item() == pytest.approx(0.75, abs=0.03)
    assert not torch.equal(*shares)


@pytest.mark.parametrize("case", CASES)
def test_two_predictors_learn_by_themselves(case: str) -> None:
    one, other = (RewardPredictor(predictor_net_kwargs=SMALL) for _ in range(2))
    more = {"target_update_interval": 2} if case == "TD3" else {}
    algorithm = make_algorithm(case, [one, other], max_grad_norm=100.0, **more)
    assert not torch.equal(one.network[0].layers[0].weight, other.network[0].layers[0].weight)
    owned = [id(p) for optimizer in algorithm.optimizers for p in optimizer.param_groups[0]["params"]]
    assert all(owned.count(id(parameter)) == 1 for addon in (one, other) for parameter in addon.parameters())
    batch = make_batch(algorithm)
    before = [term_of(addon, algorithm, batch)[0].item() for addon in (one, other)]
    for _ in range(80):
        gradients, _ = algorithm.compute_gradients(batch)
        algorithm.apply_gradients(gradients)  # as they come from a gradient worker
    after = [term_of(addon, algorithm, batch)[0].item() for addon in (one, other)]
    assert all(late < 0.3 * early for late, early in zip(after, before, strict=True))


@pytest.mark.parametrize("case", ["DDQN", "SAC"])
def test_returns_are_on_policy_only(case: str) -> None:
    algorithm = make_algorithm(case, ReturnPredictor(predictor_net_kwargs=SMALL))
    with pytest.raises(ConfigError, match="ReturnPredictor needs 'ExternalReturn'"):
        algorithm.compute_gradients(make_batch(algorithm))


def test_the_state_continues_bitwise() -> None:
    def learn(algorithm: Any) -> list[Tensor]:
        for number in range(3):
            batch = make_batch(algorithm, number)
            batch[REW] = batch[REW].clamp(min=0)
            algorithm.compute_gradients(batch)
            algorithm.apply_gradients()
        return [parameter.detach().clone() for parameter in algorithm.trainable_parameters]

    def curious(seed: int) -> Any:
        return make_algorithm("PPO", [RewardPredictor(None, SMALL, 0.5)], seed)

    algorithm = curious(0)
    learn(algorithm)
    weights, state = (
        {name: value.clone() for name, value in algorithm.actor.state_dict().items()},
        algorithm.get_state(),
    )
    expected = learn(algorithm)
    for seed in (1, 2):
        other = curious(seed)
        other.set_weights(weights)
        other.set_state(state)
        assert all(torch.equal(*pair) for pair in zip(learn(other), expected, strict=True))


SEPARATE = {"shared_policy_value_network": False}
TINY = {
    "env.num_envs": 2,
    "storage.size": 16,
    "algorithm.num_epochs": 1,
    "algorithm.num_mini_batch": 2,
    "run.eval_every": 0,
}


def words(**settings: Any) -> list[str]:
    return [word for path, value in settings.items() for word in ("--set", f"{path}={value}")]


def test_from_the_command_line_and_back_from_the_runs_own_file(tmp_path: Path) -> None:
    expert = prl.train("ppo", "CartPole-v1", steps=64, overrides=TINY, run=tmp_path / "expert").path
    addons = (
        f"[{{name: AttractionKL, config: {{behavior_factories: [{expert}], behavior_weights: [1], eps: 1e-6}}}},"
        " {name: rewardpredictor, config: {masked_sparse_obs_ratio: 0.5}}]"
    )
    settings = words(**TINY | {"algorithm.policy_loss_addons": addons})
    arguments = ["--steps", "64", "--quiet", *settings]
    assert main(["train", "ppo", "CartPole-v1", "--run", str(tmp_path / "run"), *arguments]) == 0
    again = prl.train(config=tmp_path / "run" / "config.yaml", run=tmp_path / "again")
    header, first = (tmp_path / "run" / "progress.csv").read_text().splitlines()[:2]
    for name in ("train/attraction_loss", "train/reward_predictor_loss", "train/mean_reward_pred_error_rms"):
        assert name in header
    same = (again.path / "progress.csv").read_text().splitlines()[1].split(",")
    column = header.split(",").index("train/attraction_loss")
    assert first.split(",")[column] == same[column]
    resumed = prl.resume(tmp_path / "run", steps=128)
    assert json.loads((resumed.path / "status.json").read_text())["steps"] == 128


@pytest.mark.parametrize(
    ("addons", "message"),
    [
        ("[{name: AtractionKL}]", "Did you mean 'AttractionKL'"),
        ("[{name: AttractionKL, config: {weights: [1]}}]", "no parameter 'weights'"),
        ("[{name: RewardPredictor, config: {masked_sparse_obs_ratio: 2}}]", "between 0 and 1"),
        ("[{config: {}}]", "expected {name"),
        ("{name: AttractionKL, config: {behavior_factories: [nowhere], behavior_weights: [1]}}", "no policy here"),
        ("AttractionKL", "expected"),
    ],
)
def test_a_bad_request_is_one_message(
    addons: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--steps", "64", "--run", str(tmp_path / "run"), "--set", f"algorithm.policy_loss_addons={addons}"]
    assert main(["train", "ppo", "CartPole-v1", *arguments]) == 2
    _, told = capsys.readouterr()
    assert message in told
    assert "Traceback" not in told
    assert not (tmp_path / "run").exists()
