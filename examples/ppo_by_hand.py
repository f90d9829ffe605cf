"""PPO on CartPole in a loop of your own: plain PyTorch around a PPOBuffer.

Run: python examples/ppo_by_hand.py
"""

from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from pytorchrl.buffers import PPOBuffer

CONFIG = Path(__file__).with_name("ppo_buffer.yaml")
BATCHES_PER_EPOCH = 160
CLIP = 0.2
LEARNING_RATE = 1e-3


@dataclass
class Act:
    """What the buffer wants to know of a decision."""

    action: Tensor
    value: Tensor
    logp: Tensor


class Agent(nn.Module):
    """A policy and a value function."""

    def __init__(self, obs_dim: int, num_actions: int) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, num_actions))
        self.value = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, 1))

    @torch.no_grad()
    def act(self, obs: np.ndarray) -> Act:
        """A sampled action, V(obs) and log π(action | obs)."""
        x = torch.as_tensor(obs)
        policy = Categorical(logits=self.policy(x))
        action = policy.sample()
        return Act(action, self.value(x), policy.log_prob(action))


def update(agent: Agent, optimizer: torch.optim.Optimizer, buffer: PPOBuffer) -> None:
    """One epoch of clipped surrogates (arXiv 1707.06347, equation 7) on batches of the buffer."""
    for _ in range(BATCHES_PER_EPOCH):
        batch = buffer.sample_batch()
        logp = Categorical(logits=agent.policy(batch["obs"])).log_prob(batch["act"][:, 0])
        ratio = (logp - batch["logp"]).exp()
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        policy_loss = -torch.minimum(ratio * batch["adv"], clipped * batch["adv"]).mean()
        value_loss = (agent.value(batch["obs"])[:, 0] - batch["ret"]).square().mean()
        optimizer.zero_grad()
        (policy_loss + 0.5 * value_loss).backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()


def main(steps: int = 50_000, seed: int = 0) -> float:
    """Learn for that many environment steps; returns the mean return of the last 20 episodes."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)
    env = gymnasium.make("CartPole-v1")
    buffer = PPOBuffer.instantiate_from_config(CONFIG)
    agent = Agent(buffer.obs_dim, num_actions=2)
    optimizer = torch.optim.Adam(agent.parameters(), LEARNING_RATE)

    obs, _ = env.reset(seed=seed)
    returns, episode_return = [], 0.0
    for step in range(1, steps + 1):
        act = agent.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(int(act.action))
        buffer.store({"obs": obs, "act": act, "rew": reward, "done": terminated})
        obs, episode_return = next_obs, episode_return + float(reward)
        epoch_ended = step % buffer.max_size == 0
        if terminated or truncated or epoch_ended:
            buffer.finish_path(agent.act(obs))  # V of the last observation counts unless the episode terminated
        if terminated or truncated:
            returns.append(episode_return)
            obs, _ = env.reset()
            episode_return = 0.0
        if epoch_ended:
            update(agent, optimizer, buffer)
            print(f"step {step:6d}   mean return of the last 20 episodes {np.mean(returns[-20:]):6.1f}")
    env.close()
    return float(np.mean(returns[-20:]))


if __name__ == "__main__":
    main()
