"""Action masks: wherever an environment gives them, no illegal action reaches it, and no network reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors import OffPolicyActor, OnPolicyActor
from pytorchrl.agent.algorithms import DDQN, RND_PPO, SAC
from pytorchrl.agent.env import VecEnv
from pytorchrl.errors import ConfigError, EnvError, SpaceError
from pytorchrl.keys import ACT, DONE, DONE2, OBS, OBS2, REW, RHS, RHS2, TERMINAL
from pytorchrl.run import evaluate

SIZES = {"discrete": [5], "multi-discrete": [3, 2, 4]}


class Strict(gym.Env[Any, Any]):
    """Raises on an action that its mask rules out; masks change with every step.

    ``where``: "info", "dict" or "both" say where the mask stands; ``kind``: "discrete" or "multi-discrete". The end of
    an episode allows nothing at all. ``stuck``: the step after which nothing is allowed although the episode goes on.
    """

    def __init__(self, where: str = "info", kind: str = "discrete", stuck: int = -1) -> None:
        self.where, self.sizes, self.stuck = where, SIZES[kind], stuck
        self.single = kind == "discrete"
        self.action_space: Any = spaces.Discrete(5, start=2) if self.single else spaces.MultiDiscrete(self.sizes)
        self.observation_space: Any = spaces.Box(-1.0, 1.0, (3,), np.float32)
        if where != "info":
            mask = spaces.Box(0, 1, (sum(self.sizes),), np.int8)
            self.observation_space = spaces.Dict(observation=self.observation_space, action_mask=mask)

    def observe(self, over: bool = False) -> tuple[Any, dict[str, Any]]:
        self.masks = [self.np_random.integers(0, 2, n) for n in self.sizes]
        for mask in self.masks:
            mask[self.np_random.integers(len(mask))] = 1
            mask *= not (over or self.time == self.stuck)
        observation = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        flat = np.concatenate(self.masks).astype(np.int8)
        info = {} if self.where == "dict" else {"action_mask": flat if self.single else tuple(self.masks)}
        return (observation if self.where == "info" else {"observation": observation, "action_mask": flat}), info

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        choices = np.atleast_1d(action) - (2 if self.single else 0)
        for mask, choice in zip(self.masks, choices, strict=True):
            assert mask[choice], "an illegal action"
        self.time += 1
        ends = self.np_random.random() < 0.1
        cut = self.time == 20
        observation, info = self.observe(over=ends or cut)
        return observation, 1.0, bool(ends), cut, info


ON_POLICY = {"storage.size": 32, "algorithm.num_mini_batch": 2, "algorithm.num_epochs": 2}
OFF_POLICY = {
    "storage.size": 500,
    "algorithm.start_steps": 40,
    "algorithm.update_every": 4,
    "algorithm.num_updates": 2,
    "algorithm.mini_batch_size": 16,
}
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("ppo", ON_POLICY),
    "ppo recurrent": ("ppo", ON_POLICY | {"actor.recurrent_net": "GRU"}),
    "rnd_ppo": ("rnd_ppo", ON_POLICY | {"pre_normalization_steps": 1, "pre_normalization_length": 20}),
    "a2c": ("a2c", {"storage.size": 8}),
    "a2c, v-trace": ("a2c", {"storage.size": 8, "storage.name": "VTraceBuffer"}),
    "ddqn": ("ddqn", OFF_POLICY | {"algorithm.initial_epsilon": 0.5}),
    "sac": ("sac", OFF_POLICY),
    "mpo": ("mpo", OFF_POLICY),
    "ppod": ("ppod", ON_POLICY),
}


@pytest.mark.parametrize(
    ("agent", "where"), [*((agent, "info") for agent in AGENTS), ("ppo", "dict"), ("ddqn", "dict"), ("ppo", "both")]
)
def test_no_illegal_action_in_training_and_evaluation(tmp_path: Path, agent: str, where: str) -> None:
    algorithm, parameters = AGENTS[agent]

    def make() -> Strict:
        return Strict(where)

    overrides = {"env.num_envs": 4, "algorithm.test_every": 10, "algorithm.num_test_episodes": 2, **parameters}
    run = prl.train(algorithm, make, steps=400, seed=1, overrides=overrides, preset="none", run=tmp_path / "run")
    policy = run.policy
    assert len(evaluate(policy, 5, env=make)) == 5
    observations = {"observation": np.zeros(3, np.float32), "action_mask": np.array([0, 0, 1, 0, 0], np.int8)}
    for deterministic in (True, False):
        assert policy.predict(observations, deterministic=deterministic)[0] == 4


@pytest.mark.parametrize(("agent", "where"), [("ppo", "info"), ("ppo", "dict"), ("a2c", "info"), ("rnd_ppo", "info")])
def test_masks_of_several_choices(tmp_path: Path, agent: str, where: str) -> None:
    algorithm, parameters = AGENTS[agent]

    def make() -> Strict:
        return Strict(where, "multi-discrete")

    overrides = {"env.num_envs": 4, "algorithm.test_every": 0, **parameters}
    run = prl.train(algorithm, make, steps=400, seed=1, overrides=overrides, preset="none", run=tmp_path / "run")
    assert len(evaluate(run.policy, 5, env=make)) == 5


def follow(envs: VecEnv, steps: int = 30) -> None:
    """The first allowed action in every step."""
    obs: Any = envs.reset(list(range(envs.num_envs)))
    for _ in range(steps):
        assert obs["action_mask"].shape == (envs.num_envs, 5)
        obs, _, _, info = envs.step(obs["action_mask"].argmax(1, keepdim=True))
        assert set(info[OBS2]) == set(obs)


def test_the_info_becomes_an_entry_of_the_observation() -> None:
    factory, _, space = VecEnv.create_factory(Strict, {}, 2)
    envs = factory("cpu")
    try:
        assert set(space.spaces) == {"observation", "action_mask"}  # type: ignore[attr-defined]
        follow(envs)
    finally:
        envs.close()


def test_entries_of_a_dict_stay_and_tuples_are_numbered() -> None:
    parts = {"a": spaces.Box(-1.0, 1.0, (2,)), "b": spaces.MultiBinary(2)}
    for space in (spaces.Dict(parts), spaces.Tuple(parts.values())):

        class Env(Strict):
            observation_space = space

            def observe(self, over: bool = False) -> tuple[Any, dict[str, Any]]:
                _, info = super().observe(over)
                return self.observation_space.sample(), info

            def __init__(self, inner: Any = space) -> None:
                super().__init__()
                self.observation_space = inner

        envs = VecEnv(Env, 1, masked=True)
        names = {"a", "b"} if isinstance(space, spaces.Dict) else {"0", "1"}
        assert set(envs.reset([1])) == names | {"action_mask"}
        envs.close()


def test_without_masks_nothing_changes() -> None:
    _, _, space = VecEnv.create_factory(lambda: gym.make("CartPole-v1"))
    assert space.shape == (4,)


@pytest.mark.parametrize(
    ("backend", "where", "stuck"),
    [("sync", "info", 0), ("sync", "dict", 0), ("sync", "info", 3), ("sync", "dict", 3), ("async", "info", 3)],
)
def test_a_mask_that_allows_nothing_is_refused(backend: str, where: str, stuck: int) -> None:
    envs = VecEnv(Strict, 2, env_kwargs={"where": where, "stuck": stuck}, backend=backend, masked=True)
    try:
        with pytest.raises(EnvError, match=r"^environment [01] \(Strict\).* allows no action"):
            follow(envs)
    finally:
        envs.close()


@pytest.mark.parametrize(
    ("mask", "action_space", "message"),
    [
        (spaces.MultiBinary(4), spaces.Discrete(5), r"'action_mask' has shape \(4,\).* 5 choices"),
        (spaces.MultiBinary(4), spaces.MultiDiscrete([2, 3]), r"'action_mask' has shape \(4,\).* 5 choices"),
        (spaces.MultiBinary(2), spaces.Box(-1.0, 1.0, (2,)), "no action masks for action space"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask: Any, action_space: Any, message: str) -> None:
    class Env(Strict):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict(observation=spaces.Box(-1.0, 1.0, (3,)), action_mask=mask)
            self.action_space = action_space

    with pytest.raises(SpaceError, match=message):
        VecEnv(Env, 1)


def test_an_info_that_loses_its_mask_is_named() -> None:
    class Forgetful(Strict):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {})

    envs = VecEnv(Forgetful, 1, masked=True)
    with pytest.raises(EnvError, match="has no 'action_mask'"):
        follow(envs)
    envs.close()


def test_infos_of_a_vector_environment_are_refused_not_ignored() -> None:
    envs = VecEnv(lambda num_envs: gym.vector.SyncVectorEnv([Strict] * num_envs), 2, backend="vector")
    with pytest.raises(ConfigError, match="sync or async"):
        envs.reset([1, 2])
    envs.close()


SPACE = spaces.Dict(observation=spaces.Box(-1.0, 1.0, (3,)), action_mask=spaces.Box(0, 1, (5,), np.int8))


def observations(mask: Any, rows: int = 4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "observation": torch.rand(rows, 3, generator=generator),
        "action_mask": torch.tensor(mask, dtype=torch.int8).expand(rows, 5),
    }


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("make", [OnPolicyActor, OffPolicyActor])
def test_networks_do_not_read_the_mask(make: Any, normalized: bool) -> None:
    name = "PPO" if make is OnPolicyActor else "DDQN"
    actor = make("cpu", SPACE, spaces.Discrete(5), name, normalize_observations=normalized)
    plain = make("cpu", SPACE["observation"], spaces.Discrete(5), name, normalize_observations=normalized)
    plain.load_state_dict(actor.state_dict())  # the same networks as without masks
    obs, other = observations([1, 1, 1, 1, 1]), observations([1, 0, 0, 1, 0])
    rhs, done = actor.initial_rhs(4), torch.zeros(4, 1)
    for masked in (obs, other):
        actor.update_normalizer(masked)
        plain.update_normalizer(masked["observation"])
        if make is OnPolicyActor:
            found, expected = (
                net.get_value(rows, rhs, done)["value_net1"]
                for net, rows in ((actor, masked), (plain, masked["observation"]))
            )
        else:
            found, expected = (
                net.get_q_scores(rows, rhs, done)["q1"]
                for net, rows in ((actor, masked), (plain, masked["observation"]))
            )
        assert torch.equal(found, expected)


def test_entropy_and_gradient_know_allowed_actions_alone() -> None:
    actor = OnPolicyActor("cpu", SPACE, spaces.Discrete(5), "PPO", policy_gain=1.0)
    obs = observations([0, 1, 0, 1, 0])
    inputs = obs, actor.initial_rhs(4), torch.zeros(4, 1)
    log_prob, entropy, _ = actor.evaluate_actions(*inputs, torch.ones(4, 1).long())
    p = log_prob.exp()
    torch.testing.assert_close(entropy, -(p * p.log() + (1 - p) * (1 - p).log()))
    (log_prob.sum() + entropy.sum()).backward()  # type: ignore[no-untyped-call]
    gradient = actor.policy_net.linear.weight.grad  # type: ignore[union-attr]
    assert torch.isfinite(gradient).all()  # type: ignore[arg-type]
    assert (gradient.abs().sum(1) > 0).tolist() == [False, True, False, True, False]  # type: ignore[union-attr]


def test_random_actions_are_uniform_over_what_is_allowed() -> None:
    actor = OffPolicyActor("cpu", SPACE, spaces.Discrete(5), "DDQN")
    drawn = actor.random_action(6000, observations([1, 0, 1, 1, 0], 6000))
    assert drawn.shape == (6000, 1)
    counts = torch.bincount(drawn.flatten(), minlength=5)
    assert counts[[1, 4]].tolist() == [0, 0]
    assert (counts[[0, 2, 3]] - 2000).abs().max().item() < 200


def test_neither_do_the_networks_of_rnd_and_of_predictors() -> None:
    from pytorchrl.agent.algorithms.policy_loss_addons import RewardPredictor

    actor = OnPolicyActor("cpu", SPACE, spaces.Discrete(5), "RND_PPO")
    predictor = RewardPredictor()
    algorithm = RND_PPO("cpu", None, actor, policy_loss_addons=predictor)
    one, other = observations([1, 1, 1, 1, 1]), observations([1, 0, 0, 1, 0])
    algorithm.observe(one)
    surprises = [algorithm.distillation_loss({OBS2: obs}).item() for obs in (one, other)]
    assert surprises[0] == surprises[1] > 0
    batches = [{OBS: obs, REW: torch.ones(4, 1)} for obs in (one, other)]
    losses = [predictor.compute_loss_term(batch, None, {})[0].item() for batch in batches]
    assert losses[0] == losses[1] > 0


def batch_of(actor: OffPolicyActor, mask2: Any) -> dict[str, Any]:
    rows = 4
    rhs, zeros = actor.initial_rhs(1), torch.zeros(rows, 1)
    return {
        OBS: observations([1, 1, 0, 0, 0]),
        OBS2: observations(mask2),
        RHS: rhs,
        RHS2: rhs,
        DONE: zeros,
        DONE2: zeros,
        TERMINAL: zeros,
        ACT: torch.zeros(rows, 1, dtype=torch.long),
        REW: zeros,
    }


def test_the_target_of_ddqn_takes_the_best_allowed_action() -> None:
    actor = OffPolicyActor("cpu", SPACE, spaces.Discrete(5), "DDQN")
    algorithm = DDQN("cpu", None, actor)
    scores = actor.get_q_scores(observations([1] * 5), actor.initial_rhs(4), torch.zeros(4, 1))["q1"]
    for mask in ([1, 0, 0, 0, 0], [0, 1, 0, 1, 0], [1, 1, 1, 1, 1]):
        allowed = scores[:, [i for i, bit in enumerate(mask) if bit]]
        found = algorithm.bootstrap(batch_of(actor, mask))
        torch.testing.assert_close(found.flatten(), allowed.amax(1))


def test_the_target_of_discrete_sac_is_an_expectation_over_allowed_actions() -> None:
    actor = OffPolicyActor("cpu", SPACE, spaces.Discrete(5), "SAC", policy_gain=1.0)
    algorithm = SAC("cpu", None, actor, initial_alpha=0.5)
    plain = observations([1] * 5)
    rhs, done = actor.initial_rhs(4), torch.zeros(4, 1)
    q = actor.get_q_scores(plain, rhs, done)
    scores = torch.minimum(q["q1"], q["q2"])
    probs = actor.get_policy(plain, rhs, done)[0].log_probs.exp()  # type: ignore[attr-defined]
    for mask in ([0, 1, 0, 0, 0], [0, 1, 0, 1, 1]):
        at = [i for i, bit in enumerate(mask) if bit]
        pi = probs[:, at] / probs[:, at].sum(1, keepdim=True)
        expected = (pi * (scores[:, at] - 0.5 * pi.log())).sum(1)
        torch.testing.assert_close(algorithm.bootstrap(batch_of(actor, mask)).flatten(), expected)


def test_the_temperature_aims_at_the_entropy_that_masks_leave() -> None:
    """Uniform over m allowed actions is more entropy than 0.98·log m: α falls. It would rise towards 0.98·log 5."""
    actor = OffPolicyActor("cpu", SPACE, spaces.Discrete(5), "SAC", policy_gain=1e-6)
    algorithm = SAC("cpu", None, actor)
    batch = batch_of(actor, [1, 1, 0, 0, 0])
    gradients, _ = algorithm.compute_gradients(batch)
    assert gradients[-1] is not None
    assert gradients[-1].item() == pytest.approx(0.02 * np.log(2), abs=1e-4)
