"""SAC on Pendulum in a loop of your own: plain PyTorch around a SimpleReplayBuffer.

Run: python examples/sac_by_hand.py
"""

import copy
import math
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.functional import softplus

from pytorchrl.buffers import SimpleReplayBuffer

CONFIG = Path(__file__).with_name("replay_buffer.yaml")
RANDOM_STEPS = 500
GAMMA = 0.99
TARGET_RATE = 0.01
LEARNING_RATE = 1e-3


def network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


class Agent(nn.Module):
    """A squashed Gaussian policy, two critics, and their slowly following targets."""

    def __init__(self, obs_dim: int, act_dim: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.policy = network(obs_dim, 2 * act_dim)
        self.critics = nn.ModuleList(network(obs_dim + act_dim, 1) for _ in range(2))
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = nn.Parameter(torch.zeros(()))

    def act(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """A sampled action `[B, act_dim]` and its log-probability `[B]`."""
        mean, log_std = self.policy(obs).chunk(2, dim=-1)
        normal = Normal(mean, log_std.clamp(-10, 2).exp())
        u = normal.rsample()
        log_squash = 2 * (math.log(2) - u - softplus(-2 * u)) + math.log(self.scale)  # log |d action / d u|
        return self.scale * u.tanh(), (normal.log_prob(u) - log_squash).sum(-1)

    @staticmethod
    def q(critics: nn.ModuleList, obs: Tensor, act: Tensor) -> Tensor:
        """Both critics' values, `[2, B]`."""
        return torch.stack([critic(torch.cat([obs, act], -1))[:, 0] for critic in critics])


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def update(agent: Agent, optimizers: list[torch.optim.Optimizer], batch: dict[str, Tensor]) -> None:
    """One step of critics, policy and temperature (arXiv 1812.05905, equations 5, 7 and 18), then of the targets."""
    alpha = agent.log_alpha.exp().detach()
    with torch.no_grad():
        next_act, next_logp = agent.act(batch["obs2"])
        next_value = agent.q(agent.targets, batch["obs2"], next_act).amin(0) - alpha * next_logp
        target = batch["rew"] + GAMMA * (1 - batch["done"]) * next_value
    descend(optimizers[0], (agent.q(agent.critics, batch["obs"], batch["act"]) - target).square().mean(1).sum())
    act, logp = agent.act(batch["obs"])
    descend(optimizers[1], (alpha * logp - agent.q(agent.critics, batch["obs"], act).amin(0)).mean())
    target_entropy = -batch["act"].shape[1]
    descend(optimizers[2], -agent.log_alpha * (logp.detach() + target_entropy).mean())
    with torch.no_grad():
        for slow, fast in zip(agent.targets.parameters(), agent.critics.parameters(), strict=True):
            slow.lerp_(fast, TARGET_RATE)


def main(steps: int = 10_000, seed: int = 0) -> float:
    """Learn for that many environment steps; returns the mean return of the last 20 episodes."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)
    env = gymnasium.make("Pendulum-v1")
    env.action_space.seed(seed)
    buffer = SimpleReplayBuffer.instantiate_from_config(CONFIG)
    agent = Agent(buffer.obs_dim, buffer.act_dim, scale=float(env.action_space.high[0]))
    parts = (agent.critics.parameters(), agent.policy.parameters(), [agent.log_alpha])
    optimizers = [torch.optim.Adam(parameters, LEARNING_RATE) for parameters in parts]

    obs, _ = env.reset(seed=seed)
    returns, episode_return = [], 0.0
    for step in range(1, steps + 1):
        if step <= RANDOM_STEPS:
            act = env.action_space.sample()
        else:
            with torch.no_grad():
                act = agent.act(torch.as_tensor(obs))[0].numpy()
        next_obs, reward, terminated, truncated, _ = env.step(act)
        buffer.store({"obs": obs, "act": act, "rew": reward, "next_obs": next_obs, "done": terminated})
        obs, episode_return = next_obs, episode_return + float(reward)
        if terminated or truncated:
            returns.append(episode_return)
            obs, _ = env.reset()
            episode_return = 0.0
            if len(returns) % 5 == 0:
                print(f"step {step:6d}   mean return of the last 20 episodes {np.mean(returns[-20:]):7.1f}")
        if step > RANDOM_STEPS:
            update(agent, optimizers, buffer.sample_batch())
    env.close()
    return float(np.mean(returns[-20:]))


if __name__ == "__main__":
    main()
