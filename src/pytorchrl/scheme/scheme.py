"""Scheme: the agent's parts put together in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import Episode, VecEnv
from pytorchrl.agent.storages.base import Storage
from pytorchrl.options import Precision
from pytorchrl.precision import Products
from pytorchrl.scheme.collection import Collector, play
from pytorchrl.scheme.reward_scale import RewardScale
from pytorchrl.seeding import derived_seed, seeded
from pytorchrl.tree import Tree


@dataclass
class Round:
    """What one round of collecting and learning did."""

    env_steps: int
    updates: int
    losses: dict[str, Tensor]
    # (environment steps into the round, episode)
    episodes: list[tuple[int, Episode]]


class Scheme:
    """One process that collects and learns, on one storage, without copies in between.

    Parameters
        algo_factory: from ``Algorithm.create_factory`` (its first result).
        actor_factory: from ``Actor.create_factory``.
        storage_factory: from ``Storage.create_factory``.
        train_envs_factory: from ``VecEnv.create_factory`` (its first result).
        test_envs_factory: likewise, for evaluation; by default the training one in mode "test".
        local_device: where networks and storage live.
        seed: the root of every random stream.
        normalize_rewards: whether to learn from rewards in units of the spread of their discounted sums.
        precision: of the matrix products in updates: fp32, onednn or bf16.
    """

    def __init__(
        self,
        algo_factory: Callable[..., Algorithm],
        actor_factory: Callable[..., Actor],
        storage_factory: Callable[..., Storage],
        train_envs_factory: Callable[..., VecEnv],
        test_envs_factory: Callable[..., VecEnv] | None = None,
        local_device: torch.device | str | None = None,
        *,
        seed: int = 0,
        normalize_rewards: bool = False,
        precision: Precision = "fp32",
    ) -> None:
        self.device = torch.device(local_device or "cpu")
        self.seed = seed
        self._make_test_envs = test_envs_factory or train_envs_factory
        self._test_envs: VecEnv | None = None
        self.evaluations = 0
        self.current_batch: Mapping[str, Any] = {}
        self.envs = train_envs_factory(self.device)
        with seeded(derived_seed(seed, "model")):
            self.actor = actor_factory(self.device)
            self.algorithm = algo_factory(self.device, self.actor, self.envs)
            self.storage = storage_factory(self.device, self.actor, self.algorithm, self.envs)
        self.products = Products(precision, self.actor)
        seeds = [derived_seed(seed, "train_env", i) for i in range(self.envs.num_envs)]
        scale = RewardScale(self.algorithm.gamma) if normalize_rewards else None
        self.collector = Collector(self.envs, self.actor, self.algorithm, self.storage, seeds, scale)

    def step(self) -> Round:
        """Collect one round, then learn from it."""
        num_steps = self.algorithm.update_every or self.storage.max_size
        env_steps, episodes = self.collector.collect(num_steps)
        updates = self.algorithm.iter
        losses = self.learn() if self.collector.steps >= self.algorithm.start_steps else []
        self.collector.update_normalizer()
        # A delayed policy has its figures in some of the updates only.
        names = dict.fromkeys(name for info in losses for name in info)
        means = {name: torch.stack([info[name] for info in losses if name in info]).mean() for name in names}
        return Round(env_steps, self.algorithm.iter - updates, means, episodes)

    def learn(self) -> list[dict[str, Tensor]]:
        """One update per batch that the storage yields, until the algorithm is done with the data; their infos."""
        algorithm, storage = self.algorithm, self.storage
        storage.before_gradients()
        infos = []
        batches = storage.generate_batches(algorithm.num_mini_batch, algorithm.mini_batch_size, algorithm.num_epochs)
        for batch in batches:
            self.current_batch = batch  # a failure is repeated from it
            with self.products(algorithm.rows_in(batch)):
                _, info = algorithm.compute_gradients(batch, grads_to_cpu=False)
            infos.append(storage.after_gradients(batch, info))
            if algorithm.is_done_with_data(info):
                break
            algorithm.apply_gradients()
        return infos

    def evaluate(self) -> list[Episode]:
        """Deterministic episodes of the present policy in environments of their own."""
        num_episodes = self.algorithm.num_test_episodes
        if num_episodes == 0:
            return []
        if self._test_envs is None:
            self._test_envs = self._make_test_envs(self.device, mode="test", num_envs=min(num_episodes, 10))
        envs = self._test_envs
        seeds = [derived_seed(self.seed, "test_env", self.evaluations, i) for i in range(envs.num_envs)]
        self.evaluations += 1

        return play(self.act, envs, self.actor.initial_rhs(envs.num_envs), num_episodes, seeds)

    def act(self, obs: Tree, rhs: dict[str, Tensor], done: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """(deterministic actions of the present policy, hidden states)."""
        _, clipped_action, rhs, _ = self.algorithm.acting_step(obs, rhs, done, deterministic=True)
        return clipped_action, rhs

    def close(self) -> None:
        """Close every environment."""
        self.envs.close()
        if self._test_envs is not None:
            self._test_envs.close()

    @property
    def can_save_envs(self) -> bool:
        """Whether the training environments can be saved and put back in the middle of an episode."""
        return self.envs.snapshot_support() is None

    def get_state(self, number: int = 0) -> dict[str, Any]:
        """Everything that the next round depends on, but the actor's weights: they travel with the policy.

        Environments that cannot be saved begin new episodes here, with seeds drawn from ``number``: this run and one
        that is resumed from the state both do, so they go on alike.
        """
        if not self.can_save_envs:
            self._barrier(number)
        return {
            "algorithm": self.algorithm.get_state(),
            "acting": self.actor.get_state(),
            "storage": self.storage.get_checkpoint(),
            "collector": self.collector.get_state() if self.can_save_envs else self.collector.get_counts(),
            "barrier": None if self.can_save_envs else number,
            "evaluations": self.evaluations,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; the actor's weights are loaded before."""
        self.algorithm.set_state(state["algorithm"])
        self.actor.set_state(state["acting"])
        self.storage.set_state(state["storage"])
        self.evaluations = state["evaluations"]
        if state["barrier"] is None:
            self.collector.set_state(state["collector"])
        else:
            self._barrier(state["barrier"])
            self.collector.set_counts(state["collector"])

    def _barrier(self, number: int) -> None:
        self.collector.restart([derived_seed(self.seed, "barrier", number, i) for i in range(self.envs.num_envs)])
