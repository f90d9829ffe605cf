"""Double DQN on CartPole with another storage: prioritized replay instead of a uniform one.

Run: python examples/ddqn.py
"""

import pytorchrl as prl
from pytorchrl.run import evaluate


def main(steps: int = 50_000, seed: int = 1) -> float:
    """Train for that many environment steps; returns the mean return of ten deterministic episodes."""
    overrides = {
        "storage.name": "PERBuffer",
        "storage.alpha": 0.6,  # how much priorities count
        "storage.beta": 0.4,  # how much importance weights make up for them
    }
    run = prl.train("DDQN", "CartPole-v1", steps=steps, seed=seed, overrides=overrides)
    returns = [episode.ret for episode in evaluate(run.policy, num_episodes=10)]
    print(f"ten episodes: {', '.join(f'{value:.0f}' for value in returns)}")
    return sum(returns) / len(returns)


if __name__ == "__main__":
    print(f"mean return: {main():.1f}")
