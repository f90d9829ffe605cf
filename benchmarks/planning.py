"""Planning steps per second: CEM over an ensemble of probabilistic networks, beside mbrl-lib's on the same sizes.

Pendulum's spaces and reward; 5 members of 2 x 64 SiLUs, 5 particles that keep to their member, 3 fits of 120 candidates
of 25 steps, 24 elites, plans warm-started; one thread. mbrl-lib pins what pytorchrl cannot share, so it takes part only
where it can be imported: in an environment of its own, with `pip install --no-deps mbrl==0.2.0 hydra-core omegaconf`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import torch

from benchmarks.contest import contest
from pytorchrl.agent.actors import ModelBasedPlannerActor
from pytorchrl.agent.actors.reward_functions import pendulum

HORIZON, CANDIDATES, ELITES, FITS, ALPHA = 25, 120, 24, 3, 0.2
MEMBERS, PARTICLES, HIDDEN = 5, 5, 64
STEPS = 20


def ours(env: gym.Env[Any, Any], name: str = "MPC_CEM", **settings: Any) -> Callable[[], None]:
    model = {"hidden_size": HIDDEN, "num_members": MEMBERS, "probabilistic": True}
    spaces_ = env.observation_space, env.action_space
    chosen = {"particles": PARTICLES, "reward_function": "Pendulum", "world_model_kwargs": model}
    actor = ModelBasedPlannerActor("cpu", *spaces_, name, HORIZON, CANDIDATES, **chosen)
    actor.planner.settings.update(settings)
    actor.dynamics_model.fit_scalers(torch.randn(100, 4), 0.1 * torch.randn(100, 3))
    obs, done = torch.tensor([[1.0, 0.0, 0.0]]), torch.zeros(1, 1)

    def plan() -> None:
        rhs = actor.initial_rhs(1)
        for _ in range(STEPS):
            _, rhs, _ = actor.plan(obs, rhs, done)

    return plan


def mbrl_lib(env: gym.Env[Any, Any]) -> Callable[[], None]:
    from mbrl.models import GaussianMLP, ModelEnv, OneDTransitionRewardModel
    from mbrl.planning import TrajectoryOptimizer
    from omegaconf import OmegaConf

    silu = OmegaConf.create({"_target_": "torch.nn.SiLU"})
    network = GaussianMLP(4, 3, "cpu", 2, MEMBERS, HIDDEN, propagation_method="fixed_model", activation_fn_cfg=silu)
    model = OneDTransitionRewardModel(network, target_is_delta=True, normalize=True, learned_rewards=False)
    before: list[Any] = []

    def never(action: Any, obs: Any) -> Any:
        return torch.zeros(len(obs), 1, dtype=torch.bool)

    def reward(action: Any, obs: Any) -> Any:
        before[:] = [obs]
        return pendulum(obs, action, obs)

    imagined = ModelEnv(env, model, never, reward, generator=torch.Generator())
    cem = {
        "_target_": "mbrl.planning.CEMOptimizer",
        "num_iterations": FITS,
        "elite_ratio": ELITES / CANDIDATES,
        "population_size": CANDIDATES,
        "alpha": ALPHA,
        "device": "cpu",
        "return_mean_elites": True,
        "lower_bound": "???",
        "upper_bound": "???",
    }
    bounds = env.action_space.low, env.action_space.high
    optimizer = TrajectoryOptimizer(OmegaConf.create(cem), *bounds, HORIZON)
    obs = env.observation_space.sample() * 0

    def evaluate(sequences: Any) -> Any:
        return imagined.evaluate_action_sequences(sequences, obs, PARTICLES)

    def plan() -> None:
        optimizer.reset()
        for _ in range(STEPS):
            optimizer.optimize(evaluate)

    return plan


def main() -> dict[str, float]:
    torch.set_num_threads(1)
    env = gym.make("Pendulum-v1")
    cem = {"k_best": ELITES, "iter_update_steps": FITS, "update_alpha": ALPHA, "epsilon": 0.0}
    contenders = {"MPC_CEM": ours(env, **cem)}
    if importlib.util.find_spec("mbrl") is None:
        print("mbrl-lib is not installed here: see the top of benchmarks/planning.py")
    else:
        contenders["mbrl-lib CEM"] = mbrl_lib(env)
    contenders |= {"MPC_RS": ours(env, "MPC_RS"), "MPC_PDDM": ours(env, "MPC_PDDM")}
    return contest("Planning", contenders, STEPS, "steps")


if __name__ == "__main__":
    main()
