"""The loop between environments, algorithm and storage; and the one that only plays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import Episode, VecEnv
from pytorchrl.agent.storages.base import Storage
from pytorchrl.keys import ACT, DONE, DONE2, OBS, OBS2, REW, RHS, RHS2, TERMINAL
from pytorchrl.scheme.reward_scale import RewardScale
from pytorchrl.tree import Tree, concatenate, to

Acting = Callable[[Tree, dict[str, Tensor], Tensor], tuple[Tensor, dict[str, Tensor]]]


class Collector:
    """Steps environments with the present policy and writes what happens into a storage."""

    def __init__(
        self,
        envs: VecEnv,
        actor: Actor,
        algorithm: Algorithm,
        storage: Storage,
        seeds: Sequence[int] | None = None,
        reward_scale: RewardScale | None = None,
    ) -> None:
        self.envs = envs
        self.actor = actor
        self.algorithm = algorithm
        self.storage = storage
        self.reward_scale = reward_scale
        self.seeds = seeds
        self.steps = 0
        # Observations since the last time that the actor's normalizer learned from them.
        self.seen: list[Tree] = []
        self.obs: Tree
        self.rhs: dict[str, Tensor]
        self.done: Tensor
        storage.check_collection(envs, reward_scale is not None)
        self.restart(seeds)

    def collect(self, num_steps: int) -> tuple[int, list[tuple[int, Episode]]]:
        """``num_steps`` vector steps: (environment steps, episodes that ended and environment steps till then)."""
        self.observe_at_random()
        obs, rhs, done = self.obs, self.rhs, self.done
        made, ended = 0, []
        for _ in range(num_steps):
            action, clipped_action, rhs2, other = self.algorithm.acting_step(obs, rhs, done)
            if self.steps < self.algorithm.start_steps:
                action = clipped_action = self.actor.random_action(self.envs.num_envs, obs)
            replaying = self.storage.replaying
            active = None if replaying is None or not replaying.any() else ~replaying
            next_obs, reward, done2, info = self.envs.step(clipped_action, active)
            self.steps += 1
            made += self.envs.num_envs if active is None else int(active.sum())
            if self.reward_scale is not None:
                reward = self.reward_scale(reward, done2)
            if self.actor.normalizer is not None:
                self.seen.append(obs)
            self.storage.insert_transition(
                {
                    OBS: obs,
                    RHS: rhs,
                    DONE: done,
                    ACT: action,
                    REW: reward,
                    OBS2: info[OBS2],
                    RHS2: rhs2,
                    DONE2: done2,
                    TERMINAL: info[TERMINAL],
                    **other,
                }
            )
            obs, rhs, done = self.storage.next_inputs(next_obs, rhs2, done2)
            ended += [(made, episode) for episode in info["episodes"]]
        self.obs, self.rhs, self.done = obs, rhs, done
        return made, ended

    def observe_at_random(self) -> None:
        """Show the algorithm what random actions lead to, if it wants that first: steps that belong to no rollout.

        They are not counted, and the run begins afterwards with new episodes.
        """
        obs, wanted = self.obs, self.algorithm.random_steps_wanted
        for _ in range(wanted):
            obs, _, _, info = self.envs.step(self.actor.random_action(self.envs.num_envs, obs))
            self.algorithm.observe(info[OBS2])
        if wanted:
            self.restart(self.seeds)

    def update_normalizer(self) -> None:
        """Let the actor's normalizer learn from what was seen, once it was learned from."""
        if self.seen:
            self.actor.update_normalizer(concatenate(self.seen))
            self.seen = []

    def restart(self, seeds: Sequence[int] | None) -> None:
        """Cut every episode and begin new ones."""
        self.obs = self.envs.reset(seeds)
        self.storage.episodes_cut()
        self.rhs = self.actor.initial_rhs(self.envs.num_envs)
        self.done = torch.ones(self.envs.num_envs, 1, device=self.envs.device)

    def get_state(self) -> dict[str, Any]:
        """Where the collection stands; ``envs`` is None if the environments cannot be saved."""
        inputs = {"obs": self.obs, "rhs": self.rhs, "done": self.done, "envs": self.envs.get_state()}
        return inputs | self.get_counts()

    def set_state(self, state: Mapping[str, Any]) -> None:
        device = self.envs.device
        self.obs, self.done = to(state["obs"], device), state["done"].to(device)
        self.rhs = {name: value.to(device) for name, value in state["rhs"].items()}
        self.envs.set_state(state["envs"])
        self.set_counts(state)

    def get_counts(self) -> dict[str, Any]:
        """What outlives the episodes."""
        scale = None if self.reward_scale is None else self.reward_scale.get_state()
        return {"steps": self.steps, "reward_scale": scale}

    def set_counts(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        if self.reward_scale is not None:
            self.reward_scale.set_state(state["reward_scale"])


def play(
    acting: Acting, envs: VecEnv, initial_rhs: dict[str, Tensor], num_episodes: int, seeds: Sequence[int]
) -> list[Episode]:
    """Play ``num_episodes`` episodes and return them.

    Every environment has its share, fixed in advance: counting whichever ends first would favor short episodes.
    """
    share = np.full(envs.num_envs, num_episodes // envs.num_envs)
    share[: num_episodes % envs.num_envs] += 1
    obs, rhs = envs.reset(seeds), initial_rhs
    done = torch.ones(envs.num_envs, 1, device=envs.device)
    episodes: list[Episode] = []
    while share.any():
        action, rhs = acting(obs, rhs, done)
        obs, _, done, info = envs.step(action, torch.from_numpy(share > 0))
        for episode in info["episodes"]:
            episodes.append(episode)
            share[episode.env] -= 1
    return episodes
