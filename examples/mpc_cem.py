"""Planning with a learned model: the cross-entropy method (PETS) on Pendulum, in 3,000 steps of the environment.

Run: python examples/mpc_cem.py
"""

import pytorchrl as prl
from pytorchrl.run import evaluate


def main(steps: int = 3_000, seed: int = 1) -> float:
    """Train for that many environment steps; returns the mean return of three episodes."""
    run = prl.train("MPC_CEM", "Pendulum-v1", steps=steps, seed=seed)
    action, plan = run.policy.predict([1.0, 0.0, 0.0])
    action, plan = run.policy.predict([1.0, 0.0, 0.1], plan)  # planning goes on from where the last plan ended
    print(f"upright, the torque is {action[0]:+.2f}")
    return sum(episode.ret for episode in evaluate(run.policy, num_episodes=3)) / 3


if __name__ == "__main__":
    print(f"mean return: {main():.1f}")
