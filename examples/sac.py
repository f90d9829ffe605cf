"""SAC on Pendulum: stop, go on exactly where the run was, and ask the policy for actions and values.

Run: python examples/sac.py
"""

import pytorchrl as prl
from pytorchrl.run import evaluate


def main(steps: int = 20_000, seed: int = 1) -> float:
    """Train for that many environment steps, in two parts; returns the mean return of ten deterministic episodes."""
    half = prl.train("SAC", "Pendulum-v1", steps=steps // 2, seed=seed)
    run = prl.resume(half.path, steps=steps)  # the same run as if it had never stopped

    upright = [1.0, 0.0, 0.0]
    best, _ = run.policy.predict(upright)
    drawn, _ = run.policy.predict(upright, deterministic=False)
    print(f"upright: best torque {best[0]:+.2f}, drawn torque {drawn[0]:+.2f}")
    episodes = evaluate(run.policy, num_episodes=10)
    return sum(episode.ret for episode in episodes) / len(episodes)


if __name__ == "__main__":
    print(f"mean return: {main():.1f}")
