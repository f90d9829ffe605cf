"""A2C on CartPole from its parts: factories say what to build, a scheme builds it, a learner steps it.

Run: python examples/a2c.py
"""

from functools import partial

import gymnasium as gym

from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import A2C
from pytorchrl.agent.env import VecEnv
from pytorchrl.agent.storages import GAEBuffer
from pytorchrl.learner import Learner, mean
from pytorchrl.scheme import Scheme


def main(steps: int = 50_000, seed: int = 1) -> float:
    """Learn for that many environment steps; returns the mean return of the last episodes."""
    envs_factory, action_space, obs_space = VecEnv.create_factory(partial(gym.make, "CartPole-v1"), vec_env_size=8)
    algo_factory, algo_name = A2C.create_factory(lr_v=2e-3, lr_pi=2e-3, test_every=0)
    actor_factory = OnPolicyActor.create_factory(obs_space, action_space, algo_name)
    storage_factory = GAEBuffer.create_factory(size=8)
    scheme = Scheme(algo_factory, actor_factory, storage_factory, envs_factory, seed=seed)
    learner = Learner(scheme, target_steps=steps)
    printed = 0
    while not learner.done():
        learner.step()
        if learner.steps - printed >= 10_000:
            learner.print_info()
            printed = learner.steps
    return mean(episode.ret for episode in learner.recent)


if __name__ == "__main__":
    print(f"mean return: {main():.1f}")
