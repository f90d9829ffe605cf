"""What model-predictive control does with actions, plans, seeds and parameters; and the true Pendulum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from pytorchrl.agent.actors import ModelBasedPlannerActor, WorldModel, model_based_planner_actor
from pytorchrl.errors import ConfigError, SpaceError
from pytorchrl.keys import PREDICTED
from pytorchrl.policy import Policy

Make = Callable[..., Any]
OBS = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
BEGINS, GOES_ON = torch.ones(3, 1), torch.zeros(3, 1)


def act(agent: Any, deterministic: bool = False, rhs: Any = None, done: Any = GOES_ON, obs: Any = OBS) -> Any:
    rhs = agent.actor.initial_rhs(len(obs)) if rhs is None else rhs
    return agent.acting_step(obs, rhs, done[: len(obs)], deterministic)


def test_the_true_pendulum_swings_up(name: str, true_pendulum: type[WorldModel]) -> None:
    """Five of them in one batch; the last hangs straight down, where -235 is about the best there is."""
    envs = [gym.make("Pendulum-v1") for _ in range(5)]
    obs = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, (0, 1, 2, 5, 3), strict=True)])
    spaces_ = envs[0].observation_space, envs[0].action_space
    n_planner = {"MPC_RS": 300, "MPC_CEM": 120, "MPC_PDDM": 150}[name]
    actor = ModelBasedPlannerActor("cpu", *spaces_, name, 20, n_planner, None, true_pendulum)
    actor.planner.settings.update({"k_best": 24, "update_alpha": 0.2} if name == "MPC_CEM" else {})
    rhs, done, returns = actor.initial_rhs(5), torch.ones(5, 1), np.zeros(5)
    for _ in range(200):
        action, rhs, _ = actor.plan(torch.from_numpy(obs), rhs, done, True)
        done = torch.zeros(5, 1)
        stepped = [env.step(row) for env, row in zip(envs, action.numpy(), strict=True)]
        obs = np.stack([step[0] for step in stepped])
        returns += [float(step[1]) for step in stepped]
    assert returns.mean() >= -200, returns


def test_actions_span_the_box_or_all_choices(fitted: Make, name: str, space: str) -> None:
    agent = fitted(name, space, actor={"reward_function": "CartPole"})  # all plans are worth the same
    obs = torch.zeros(1, 2)
    actions = torch.cat([act(agent, obs=obs, done=BEGINS)[0] for _ in range(150)])
    if space == "discrete":
        assert actions.dtype == torch.int64
        assert set(actions.flatten().tolist()) == {0, 1, 2}
        return
    low, high = torch.tensor([-2.0, 3.0]), torch.tensor([4.0, 5.0])
    assert (actions >= low).all()
    assert (actions <= high).all()
    # One that is drawn may lie anywhere; means of many lie around the middle, those of mirrored ones in it.
    reach = {"MPC_RS": 0.95, "MPC_CEM": 0.02, "MPC_PDDM": -0.01}[name]
    assert (actions.amax(0) > (low + high) / 2 + reach * (high - low) / 2).all()
    assert (actions.amin(0) < (low + high) / 2 - reach * (high - low) / 2).all()


def test_planning_repeats_under_a_seed(fitted: Make, name: str, space: str) -> None:
    one, same, other = fitted(name, space, seed=1), fitted(name, space, seed=1), fitted(name, space, seed=2)
    before = torch.get_rng_state()
    plans = []
    for agent in (one, same, other):
        rhs = agent.actor.initial_rhs(3)
        for _ in range(3):
            _, _, rhs, info = act(agent, rhs=rhs)
        plans.append(rhs["plan"])
        assert info[PREDICTED].shape == (3, 1)
    assert torch.equal(plans[0], plans[1])
    assert not torch.equal(plans[0], plans[2])
    assert torch.equal(torch.get_rng_state(), before)


def test_deterministic_planning_is_a_function_of_what_is_given(fitted: Make, name: str, space: str) -> None:
    agent = fitted(name, space, action_noise=True)
    rhs = act(agent)[2]
    kept = rhs["plan"].clone()
    first = act(agent, deterministic=True, rhs=rhs)
    act(agent)
    again = act(agent, deterministic=True, rhs=rhs)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[2]["plan"], again[2]["plan"])
    assert torch.equal(rhs["plan"], kept)  # never changed in place


def test_a_plan_is_taken_up_one_step_on_and_forgotten_at_the_start_of_an_episode(fitted: Make, name: str) -> None:
    agent = fitted(name)
    seen: list[Any] = []
    search = agent.actor.planner.search

    def watched(score: Any, plan: Any, previous: Any, *rest: Any) -> Any:
        seen.append((plan.clone(), previous.clone()))
        return search(score, plan, previous, *rest)

    agent.actor.planner.search = watched
    rhs = act(agent)[2]
    done = torch.tensor([[0.0], [1.0], [0.0]])
    act(agent, rhs=rhs, done=done)
    last = rhs["plan"].view(3, 4, 2)
    plan, previous = seen[-1]
    assert torch.equal(plan[[0, 2]], torch.cat([last[:, 1:], last[:, -1:]], 1)[[0, 2]])
    assert torch.equal(previous[[0, 2]], last[[0, 2], 0])
    assert not plan[1].any()
    assert not previous[1].any()


def test_noise_is_little_in_box_units_and_only_while_exploring(fitted: Make) -> None:
    agent = fitted("MPC_CEM", actor={"n_planner": 5}, action_noise=True)
    agent.actor.planner.search = lambda score, plan, *_: (torch.zeros_like(plan), plan.new_zeros(len(plan)))
    middle = torch.tensor([1.0, 4.0])
    assert torch.equal(act(agent, deterministic=True)[0], middle.expand(3, 2))
    drawn = torch.cat([act(agent)[0] for _ in range(300)]) - middle
    torch.testing.assert_close(drawn.std(0), 0.005 * torch.tensor([3.0, 1.0]), rtol=0.15, atol=0)
    agent.update_algorithm_parameter("action_noise", False)
    assert torch.equal(act(agent)[0], middle.expand(3, 2))


def test_actions_are_random_until_the_model_is_fitted(agent: Make, filled: Make, name: str, space: str) -> None:
    made = agent(name, space)
    action, clipped, rhs, info = act(made)
    assert torch.equal(action, clipped)
    assert info == {}
    assert not rhs["plan"].any()
    filled(made)
    assert PREDICTED in act(made)[3]


def test_parameters_take_effect_at_once(agent: Make) -> None:
    made = agent("MPC_CEM", k_best=7, iter_update_steps=9, epsilon=0.5)
    settings = made.actor.planner.settings
    assert (settings["k_best"], settings["iter_update_steps"], settings["epsilon"]) == (7, 9, 0.5)
    made.update_algorithm_parameter("k_best", 3)
    assert settings["k_best"] == 3
    made.update_algorithm_parameter("lr", 0.5)
    assert made.optimizers[0].param_groups[0]["lr"] == 0.5
    made.update_algorithm_parameter("mb_epochs", 4)
    assert (made.mb_epochs, made.num_epochs) == (4, 4)
    made.update_algorithm_parameter("update_every", 11)
    assert made.update_every == 11
    assert made.gamma == 1
    pddm = agent("MPC_PDDM", gamma=4.0, beta=0.25)
    assert pddm.actor.planner.settings == {"action_noise": False, "gamma": 4.0, "beta": 0.25}
    pddm.update_algorithm_parameter("gamma", 2)
    assert (pddm.gamma, pddm.actor.planner.settings["gamma"]) == (2, 2)
    with pytest.raises(ConfigError, match="Did you mean 'k_best'"):
        made.update_algorithm_parameter("kbest", 1)
    with pytest.raises(ConfigError, match="no action lies between"):
        agent("MPC_CEM", lb=1.0, ub=-1.0)


def test_a_policy_alone_plans_as_it_did_in_training(fitted: Make, name: str) -> None:
    trained = fitted(name, **({"k_best": 2, "iter_update_steps": 5} if name == "MPC_CEM" else {}))
    if name == "MPC_PDDM":
        trained.update_algorithm_parameter("beta", 0.9)
    alone = fitted(name, seed=5)
    assert not torch.equal(act(alone, True)[0], act(trained, True)[0])
    alone.actor.load_state_dict(trained.actor.state_dict())
    assert torch.equal(act(alone, True)[0], act(trained, True)[0])
    policy = Policy(alone.actor, {}, alone.actor.input_space)
    action, state = policy.predict(np.zeros(2, np.float32))
    assert action in alone.actor.action_space
    assert state["plan"].any()
    assert np.isfinite(policy.value(np.zeros((2, 2), np.float32))).all()
    for broken in (torch.zeros(9, dtype=torch.float64), torch.full((1,), np.nan, dtype=torch.float64)):
        with pytest.raises(RuntimeError, match="needs action_noise"):
            alone.actor.planner.set_extra_state(broken)


def test_a_fit_goes_through_everything_mb_epochs_times_and_learns(agent: Make, filled: Make) -> None:
    made = agent("MPC_RS", mb_epochs=5, lr=1e-2)
    buffer = filled(made, fit=False)
    losses, errors = [], []
    for batch in buffer.generate_batches(None, 16):
        assert batch["train_weights"].shape == (2, len(batch["train_input"]))
        _, info = made.compute_gradients(batch)
        info = buffer.after_gradients(batch, info)
        made.apply_gradients()
        losses.append(info["loss"].item())
        errors.append(info["validation_error"].item())
    learned = len(losses) // 5
    assert len(losses) == 5 * learned
    assert made.iter == len(losses)
    assert sum(losses[-learned:]) < sum(losses[:learned])
    assert errors[-1] < errors[0]
    assert errors[0] == errors[learned - 1] != errors[learned]  # looked at once per pass


def test_what_cannot_be_modeled_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, box = spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (2,), np.float32)
    monkeypatch.setattr(model_based_planner_actor, "WORLD_MODELS", {"WorldModel": WorldModel})

    def make(obs: Any = vectors, action: Any = box, name: str = "MPC_RS", **kwargs: Any) -> ModelBasedPlannerActor:
        return ModelBasedPlannerActor("cpu", obs, action, name, **kwargs)

    with pytest.raises(SpaceError, match="cannot model observation space"):
        make(obs=spaces.Box(0, 255, (3, 36, 36), np.uint8))
    with pytest.raises(SpaceError, match="action space"):
        make(action=spaces.MultiDiscrete([2, 2]))
    with pytest.raises(SpaceError, match="infinite or equal"):
        make(action=spaces.Box(-np.inf, np.inf, (2,), np.float32))
    with pytest.raises(ConfigError, match="does not know 'SAC'"):
        make(name="SAC")
    with pytest.raises(ConfigError, match="unknown world model 'WorldModl'\nDid you mean 'WorldModel'"):
        make(world_model_class="WorldModl")
    with pytest.raises(ConfigError, match="subclass of WorldModel"):
        make(world_model_class=dict)
    with pytest.raises(ConfigError, match="Did you mean 'hidden_size'"):
        make(world_model_kwargs={"hidden_sizes": 3})

    class Mine(WorldModel):
        pass

    assert isinstance(make(world_model_class=Mine).dynamics_model, Mine)
    assert isinstance(make(world_model_class="Mine").dynamics_model, Mine)
    with pytest.raises(ConfigError, match="Give your class another name"):
        make(world_model_class=type("WorldModel", (WorldModel,), {}))
