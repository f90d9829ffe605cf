"""DDPG on Pendulum with other parts: Ornstein-Uhlenbeck noise, three-step returns, smaller networks.

Run: python examples/ddpg.py
"""

import pytorchrl as prl
from pytorchrl.run import evaluate


def main(steps: int = 20_000, seed: int = 1) -> float:
    """Train for that many environment steps; returns the mean return of ten deterministic episodes."""
    overrides = {
        "actor.noise": "OU",
        "actor.common_feature_extractor_kwargs": {"hidden_sizes": [64, 64]},
        "storage.name": "NStepBuffer",
        "storage.n_step": 3,
    }
    run = prl.train("DDPG", "Pendulum-v1", steps=steps, seed=seed, overrides=overrides)
    episodes = evaluate(run.policy, num_episodes=10)
    return sum(episode.ret for episode in episodes) / len(episodes)


if __name__ == "__main__":
    print(f"mean return: {main():.1f}")
