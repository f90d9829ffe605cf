"""World models: what an action changes, learned from transitions; one network or an ensemble, certain or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot, silu, softplus

from pytorchrl.agent.actors.feature_extractors.inputs import box
from pytorchrl.agent.actors.parallel import ParallelLinear
from pytorchrl.agent.actors.reward_functions import REWARDS, TERMINALS, find_function
from pytorchrl.component import Component
from pytorchrl.errors import ConfigError, SpaceError
from pytorchrl.parameters import PositiveInt

# f(obs, action, next_obs) of rows, ``[B, …]`` each, to ``[B, 1]``.
OfTransition = Callable[[Tensor, Tensor, Tensor], Tensor]
# Weights and biases of some members, layer by layer.
Layers = list[tuple[Tensor, Tensor]]
Propagation = Literal["TSinf", "TS1"]

# What the penalty on the bounds of log-variances weighs (arXiv 1805.12114, app. A.1).
BOUND_PENALTY = 0.01


class Scaler(nn.Module):
    """Brings columns to mean 0 and standard deviation 1 by the moments of the rows that it was fitted to."""

    mean: Tensor
    std: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("std", torch.ones(size))
        self.register_buffer("count", torch.zeros(()))

    def fit(self, rows: Tensor) -> None:
        """Take the moments of ``[B, size]``; a column that does not vary is only shifted."""
        var, mean = torch.var_mean(rows.double(), dim=0, correction=0)
        std = var.sqrt()
        self.mean.copy_(mean)
        self.std.copy_(torch.where(std < 1e-8, 1.0, std))
        self.count.fill_(len(rows))

    def transform(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.std

    def inverse(self, rows: Tensor) -> Tensor:
        return rows * self.std + self.mean


class WorldModel(nn.Module, Component):
    """E networks that predict how an observation changes, and what is not given by a function: reward and end.

    Inputs are standardized observations and actions (one-hot if they are discrete), outputs are in units of the spread
    of what is predicted. A probabilistic network gives mean and log-variance of a Gaussian, the latter within bounds
    that are learned (PETS, arXiv 1805.12114). To plan with dynamics that are known, override ``step`` and ``fitted``.

    Parameters
        input_space: the observation space, of vectors.
        action_space: the action space.
        hidden_size: width of the hidden layers.
        num_layers: number of hidden layers.
        num_members: networks of the ensemble.
        num_elites: how many of them predict, those with the least error on held-out data; null for all.
        probabilistic: whether networks predict how sure they are.
        reward_function: name of an environment family or f(obs, action, next_obs) -> [B, 1]; null to learn rewards.
        terminal_function: likewise for the end of the MDP; "learned" to learn it, null if there is none.
    """

    supplied_parameters = ("input_space", "action_space")
    elites: Tensor

    def __init__(
        self,
        input_space: gym.Space[Any],
        action_space: gym.Space[Any],
        hidden_size: PositiveInt = 64,
        num_layers: PositiveInt = 2,
        num_members: PositiveInt = 1,
        num_elites: PositiveInt | None = None,
        probabilistic: bool = False,
        reward_function: str | OfTransition | None = None,
        terminal_function: str | OfTransition | None = None,
    ) -> None:
        super().__init__()
        self.observation_size = math.prod(box(input_space, type(self).__name__).shape)
        self.num_actions = int(action_space.n) if isinstance(action_space, spaces.Discrete) else None
        if num_elites is not None and num_elites > num_members:
            raise ConfigError(f"num_elites is {num_elites}, and there are {num_members} members")
        self.num_members = num_members
        self.probabilistic = probabilistic
        self.reward_function = find_function(reward_function, REWARDS, "reward function")
        self.learns_terminal = terminal_function == "learned"
        given = None if self.learns_terminal else terminal_function
        self.terminal_function = find_function(given, TERMINALS, "terminal function", "learned")
        inputs = self.observation_size + _action_size(action_space)
        self.num_labels = self.observation_size + (self.reward_function is None)
        outputs = self.num_labels * (1 + probabilistic) + self.learns_terminal
        sizes = [inputs, *[hidden_size] * num_layers, outputs]
        self.layers = nn.ModuleList(
            ParallelLinear([nn.Linear(m, n) for _ in range(num_members)]) for m, n in pairwise(sizes)
        )
        if probabilistic:
            self.max_logvar = nn.Parameter(torch.full((self.num_labels,), 0.5))
            self.min_logvar = nn.Parameter(torch.full((self.num_labels,), -10.0))
        self.scaler = Scaler(inputs)
        self.label_scaler = Scaler(self.num_labels)
        self.register_buffer("elites", torch.arange(num_elites or num_members))

    @property
    def fitted(self) -> bool:
        """Whether the model knows anything yet."""
        return bool(self.scaler.count > 0)

    # Networks

    def members(self, which: Tensor | None = None) -> Layers:
        """The layers of some members, of all by default."""
        layers: Any = self.layers
        if which is None:
            return [(layer.weight, layer.bias) for layer in layers]
        return [(layer.weight[which], layer.bias[which]) for layer in layers]

    def outputs(self, x: Tensor, layers: Layers) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """(mean, log-variance, logit of the end) of member k on ``x[k]``, ``[k, B, in]``, in standardized units."""
        for number, (weight, bias) in enumerate(layers, 1):
            x = torch.baddbmm(bias, x, weight)
            x = silu(x) if number < len(layers) else x
        logit = x[..., -1:] if self.learns_terminal else None
        mean = x[..., : self.num_labels]
        if not self.probabilistic:
            return mean, None, logit
        logvar = x[..., self.num_labels : 2 * self.num_labels]
        logvar = self.max_logvar - softplus(self.max_logvar - logvar)
        return mean, self.min_logvar + softplus(logvar - self.min_logvar), logit

    def forward(self, train_input: Tensor) -> Tensor:
        """What the elites think on average of standardized inputs ``[B, in]``, in the labels' own units."""
        layers = self.members(self.elites)
        mean, _, _ = self.outputs(train_input.expand(len(self.elites), *train_input.shape), layers)
        return self.label_scaler.inverse(mean.mean(0))

    # Learning

    def fit_scalers(self, inputs: Tensor, labels: Tensor) -> None:
        """Take the moments of what is learned from."""
        self.scaler.fit(inputs)
        self.label_scaler.fit(labels)

    def errors(self, train_input: Tensor, train_label: Tensor) -> Tensor:
        """Mean squared error of each member, ``[E]``, in units of the labels' variance."""
        mean, _, _ = self.outputs(train_input.expand(self.num_members, *train_input.shape), self.members())
        return (mean - self.label_scaler.transform(train_label)).square().mean((1, 2))

    def loss(
        self, train_input: Tensor, train_label: Tensor, terminal: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Σ over members of the mean over rows, by ``weights [E, B]``, of squared error or −2 log-likelihood.

        Of a network that learns the end, cross-entropy joins; of probabilistic ones, the penalty on the bounds.
        """
        x = train_input.expand(self.num_members, *train_input.shape)
        mean, logvar, logit = self.outputs(x, self.members())
        rows = (mean - self.label_scaler.transform(train_label)).square()
        if logvar is not None:
            rows = rows * torch.exp(-logvar) + logvar
        rows = rows.mean(-1)
        if logit is not None and terminal is not None:
            targets = terminal.expand(self.num_members, *terminal.shape)
            rows = rows + binary_cross_entropy_with_logits(logit, targets, reduction="none").squeeze(-1)
        if weights is None:
            loss = rows.mean(1).sum()
        else:
            loss = ((rows * weights).sum(1) / weights.sum(1).clamp(min=1.0)).sum()
        if logvar is not None:
            loss = loss + BOUND_PENALTY * (self.max_logvar - self.min_logvar).sum()
        return loss

    def select_elites(self, errors: Tensor) -> None:
        """Let those with the least error predict."""
        self.elites.copy_(errors.argsort()[: len(self.elites)].sort().values)

    # Predicting

    def encoded(self, action: Tensor) -> Tensor:
        """Actions as the networks read them: one column for each that a discrete space has."""
        if self.num_actions is None:
            return action
        return one_hot(action[..., 0].long(), self.num_actions).float()

    def step(
        self, obs: Tensor, action: Tensor, layers: Layers, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(next observations, rewards, probabilities of the end) that member k gives for row k, all ``[k, B, …]``.

        With a generator they are drawn, with noise that all of a member's rows share; without, they are means.
        """
        x = self.scaler.transform(torch.cat([obs, self.encoded(action)], -1))
        mean, logvar, logit = self.outputs(x, layers)
        if logvar is not None and generator is not None:
            noise = torch.randn(len(x), 1, self.num_labels, generator=generator).to(mean)
            mean = mean + torch.exp(0.5 * logvar) * noise
        labels = self.label_scaler.inverse(mean)
        obs2 = obs + labels[..., : self.observation_size]
        reward = labels[..., -1:]
        if self.reward_function is not None:
            reward = _of_rows(self.reward_function, obs, action, obs2)
        if logit is not None:
            return obs2, reward, torch.sigmoid(logit)
        if self.terminal_function is not None:
            return obs2, reward, _of_rows(self.terminal_function, obs, action, obs2)
        return obs2, reward, torch.zeros_like(reward)

    @torch.no_grad()
    def predict(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """(next observation ``[B, obs]``, reward ``[B, 1]``), the elites' mean."""
        K = len(self.elites)
        rows = (obs.expand(K, *obs.shape), action.expand(K, *action.shape))
        obs2, reward, _ = self.step(*rows, self.members(self.elites), None)
        return obs2.mean(0), reward.mean(0)

    @torch.no_grad()
    def returns(
        self, obs: Tensor, actions: Tensor, particles: int, propagation: Propagation, generator: torch.Generator
    ) -> Tensor:
        """Rewards of action sequences ``[N, C, H, …]`` from ``obs [N, obs]``, summed; particles' mean ``[N, C]``.

        Each particle goes with one elite, in turn, for ever (TSinf) or with one drawn anew at each step (TS1). Members
        and noise are the same for all candidates: they differ by what they do, not by their luck.
        """
        N, C, H = actions.shape[:3]
        steps = actions.flatten(0, 1)
        K = len(self.elites)
        state = obs.repeat_interleave(C, 0).expand(particles, -1, -1)
        layers = self.members(self.elites[torch.arange(particles, device=obs.device) % K])
        total = alive = torch.ones(1, device=obs.device)
        for t in range(H):
            if propagation == "TS1":
                drawn = torch.randint(K, (particles,), generator=generator).to(obs.device)
                layers = self.members(self.elites[drawn])
            action = steps[:, t].expand(particles, *steps[:, t].shape)
            state, reward, terminal = self.step(state, action, layers, generator)
            total = reward if t == 0 else total + alive * reward
            alive = alive * (1.0 - terminal)
        return total.mean(0).view(N, C)


def _of_rows(function: OfTransition, *parts: Tensor) -> Tensor:
    """A function of rows, on ``[k, B, …]``."""
    values = function(*(part.flatten(0, 1) for part in parts))
    return values.to(torch.float32).view(*parts[0].shape[:2], 1)


def _action_size(space: gym.Space[Any]) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.Box):
        return math.prod(space.shape)
    raise SpaceError(f"no world model for action space {space}", "Supported: Discrete, Box.")
