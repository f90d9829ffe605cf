"""PPO on CartPole: train with the tuned preset, then let the policy act in an environment of your own.

Run: python examples/ppo.py
"""

import gymnasium as gym

import pytorchrl as prl


def main(steps: int = 50_000, seed: int = 1) -> float:
    """Train for that many environment steps; returns the return of one episode of the trained policy."""
    run = prl.train("PPO", "CartPole-v1", steps=steps, seed=seed)
    print(f"mean return of the last {len(run.scores)} training episodes: {sum(run.scores) / len(run.scores):.1f}")
    print(f"look at {run.report()}")

    env = gym.make("CartPole-v1")
    policy, state = prl.load(run.path), None
    obs, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        action, state = policy.predict(obs, state)
        obs, reward, terminated, truncated, _ = env.step(action)
        total, over = total + float(reward), terminated or truncated
    env.close()
    print(f"one episode with the best action at every step: {total:.0f}")
    return total


if __name__ == "__main__":
    main()
