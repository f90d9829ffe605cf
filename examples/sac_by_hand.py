"""SAC on Pendulum in a loop of your own: plain PyTorch around a SimpleReplayBuffer. Run: python examples/sac_by_hand.py"""

import copy
import math
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional as F

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
        log_squash = 2 * (math.log(2) - u - F.softplus(-2 * u)) + math.log(self.scale)  # log |d action / d u|
        return self.scale * u.tanh(), (normal.log_prob(u) - log_squash).sum(-1)

    @staticmethod
    def q(critics: nn.ModuleList, obs: Tensor, act: Tensor) -> Tensor:
        """Both critics' values, `[2, B]`."""
        return torch.stack([critic(torch.cat([obs, act], -1))[:, 0] for critic in critics])


def update(agent: Agent, optimizers: list[torch.optim.Optimizer], batch: dict[str, Tensor]) -> None:
    """One step of critics, policy and temperature (arXiv 1812.05905, equations 5, 7 and 18)."""
    alpha = agent.log_alpha.exp().detach()
    with torch.no_grad():
        next_act, next_logp = agent.act(batch["obs2"])
        next_value = agent.q(agent.targets, batch["obs2"], next_act).amin(0) - alpha * next_logp
        target = batch["rew"] + GAMMA * (1 - batch["done"]) * next_value
    critic_loss = (agent.q(agent.critics, batch["obs"], batch["act"]) - target).square().mean(1).sum()
    act, logp = agent.act(batch["obs"])
    policy_loss = (alpha * logp - agent.q(agent.critics, batch["obs"], act).amin(0)).mean()
    alpha_loss = -agent.log_alpha * (logp.detach() - batch["act"].shape[1]).mean()
    parts = [agent.critics, agent.policy, agent.log_alpha]
    for optimizer, part, loss in zip(optimizers, parts, (critic_loss, policy_loss, alpha_loss), strict=True):
        parameters = [part] if isinstance(part, nn.Parameter) else list(part.parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        optimizer.step()
    with torch.no_grad():
        for target_parameter, parameter in zip(agent.targets.parameters(), agent.critics.parameters(), strict=True):
            target_parameter.lerp_(parameter, TARGET_RATE)
