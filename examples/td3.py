"""TD3 on Pendulum with a callback that ends the run as soon as the task is solved.

Run: python examples/td3.py
"""

import pytorchrl as prl
from pytorchrl.learner import Learner
from pytorchrl.scheme.scheme import Round

SOLVED = -200.0


def solved(learner: Learner, result: Round) -> bool:
    """Whether the last ten training episodes are good enough; True ends the run."""
    last = [episode.ret for episode in learner.recent][-10:]
    return len(last) == 10 and sum(last) / 10 > SOLVED


def main(steps: int = 20_000, seed: int = 1) -> int:
    """Train until the task is solved, for that many environment steps at most; returns the steps that it took."""
    run = prl.train("TD3", "Pendulum-v1", steps=steps, seed=seed, callbacks=[solved])
    taken = int(run.policy.info["steps"])
    print(f"{taken:,} steps; the last episodes: {', '.join(f'{score:.0f}' for score in run.scores[-5:])}")
    return taken


if __name__ == "__main__":
    main()
