"""MPO on Pendulum, its policy held to shorter steps than usual, and exported for other programs.

Run: python examples/mpo.py
"""

import pytorchrl as prl
from pytorchrl.export import export
from pytorchrl.run import evaluate


def main(steps: int = 20_000, seed: int = 1) -> float:
    """Train for that many environment steps; returns the mean return of ten deterministic episodes."""
    constraints = {"algorithm.kl_mean_constraint": 0.005, "algorithm.dual_constraint": 0.1}
    run = prl.train("MPO", "Pendulum-v1", steps=steps, seed=seed, overrides=constraints)
    episodes = evaluate(run.policy, num_episodes=10)
    print(f"for other programs: {export(run.policy, 'safetensors', run.path / 'exported')}")
    return sum(episode.ret for episode in episodes) / len(episodes)


if __name__ == "__main__":
    print(f"mean return: {main():.1f}")
