"""PDDM on Pendulum with a wish of one's own: the planner follows any function of what the model foresees.

Run: python examples/mpc_pddm.py
"""

from torch import Tensor

import pytorchrl as prl
from pytorchrl.run import evaluate


def lazily_upright(obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
    """Height of the pole, slow, with little torque: rows of a batch in, ``[B, 1]`` out."""
    height, speed = next_obs[:, :1], next_obs[:, 2:]
    return height - 0.01 * speed.square() - 0.01 * action.square()


def main(steps: int = 3_000, seed: int = 1) -> float:
    """Train for that many environment steps; returns the mean return, by the environment's own reward."""
    wish = {"actor.reward_function": lazily_upright}
    run = prl.train("MPC_PDDM", "Pendulum-v1", steps=steps, seed=seed, overrides=wish)
    return sum(episode.ret for episode in evaluate(run.policy, num_episodes=3)) / 3


if __name__ == "__main__":
    print(f"mean return: {main():.1f}")
