"""The worker of every pool: a function of what it is given, so that a lost one loses nothing.

A unit of collection is a function of (unit, weights, where the environments stand); a gradient is one of (batch,
weights). Every random number of theirs comes from a stream that is named by the unit or by the update.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages.base import Storage
from pytorchrl.options import Precision
from pytorchrl.precision import Products
from pytorchrl.scheme.collection import Collector, play
from pytorchrl.scheme.layout import Layout
from pytorchrl.scheme.reward_scale import RewardScale
from pytorchrl.scheme.together import BrokenCircleError, digest, learn_together
from pytorchrl.scheme.transitions import Recorder, transitions
from pytorchrl.seeding import derived_seed, seeded


def warm_up() -> None:
    """Have everything imported that workers need: PyTorch's first optimizer takes a second."""
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)], fused=True)


@dataclass
class Plan:
    """What every worker is made from.

    Parameters
        algo_factory: from ``Algorithm.create_factory`` (its first result).
        actor_factory: from ``Actor.create_factory``.
        storage_factory: from ``Storage.create_factory``, for workers that update among themselves.
        train_envs_factory: from ``VecEnv.create_factory`` (its first result).
        test_envs_factory: likewise, for evaluation.
        seed: the root of every random stream.
        layout: how many workers of each kind there are.
        normalize_rewards: whether collectors scale their rewards.
        epsilon_ladder: whether collector i explores with an ε of its own, 0.4^(1 + 7i/(N − 1)).
        precision: of the matrix products in updates.
        own_process: whether a worker has a process to itself, whose global streams it may seed.
        device: where the networks of a worker live.
    """

    algo_factory: Callable[..., Algorithm]
    actor_factory: Callable[..., Actor]
    storage_factory: Callable[..., Storage]
    train_envs_factory: Callable[..., VecEnv]
    test_envs_factory: Callable[..., VecEnv]
    seed: int
    layout: Layout
    normalize_rewards: bool
    epsilon_ladder: bool
    precision: Precision
    own_process: bool
    device: str = "cpu"

    def make(self) -> Worker:
        return Worker(self)


@dataclass
class Logical:
    """A logical collector: its environments, and after how many units they stand where they do."""

    collector: Collector
    acting: Any
    recorder: Recorder
    sequence: int = -1


class Worker:
    """Collects units, computes gradients, plays test episodes."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.device = torch.device(plan.device)
        self.envs: dict[int, VecEnv] = {}
        self.logical: dict[int, Logical] = {}
        self.test_envs: VecEnv | None = None
        self.version: Any = None
        self.parameters: dict[str, Any] = {}
        self._agent: tuple[Actor, Algorithm] | None = None

    def describe(self) -> dict[str, Any]:
        """What the driver has to know about the environments."""
        envs = self.envs_of(0)
        return {
            "name": envs.name,
            "num_envs": envs.num_envs,
            "env_kwargs": envs.env_kwargs,
            "backend_name": envs.backend_name,
            "backend_reason": envs.backend_reason,
            "source": envs.backend.observations.source,
            "observation_space": envs.observation_space,
            "action_space": envs.action_space,
            "snapshot_support": envs.snapshot_support(),
        }

    def envs_of(self, worker: int) -> VecEnv:
        """The environments of a logical collector; made when they are first needed."""
        if worker not in self.envs:
            group, member = divmod(worker, self.plan.layout.collectors)
            self.envs[worker] = self.plan.train_envs_factory(
                self.device, index_col_worker=member + 1, index_grad_worker=group + 1
            )
        return self.envs[worker]

    def agent(self) -> tuple[Actor, Algorithm]:
        """Actor and algorithm; their weights come with each task."""
        if self._agent is None:
            with seeded(derived_seed(self.plan.seed, "model")):
                actor = self.plan.actor_factory(self.device)
                self._agent = actor, self.plan.algo_factory(self.device, actor, next(iter(self.envs.values()), None))
        return self._agent

    def load(self, shared: Mapping[str, Any]) -> tuple[Actor, Algorithm]:
        """The agent with the weights and parameters of a version."""
        actor, algorithm = self.agent()
        if self.version != shared["version"]:
            for name, value in shared["parameters"].items():
                if self.parameters.get(name) != value:
                    algorithm.update_algorithm_parameter(name, value)
                    self.parameters[name] = value
            actor.load_state_dict(shared["actor"])
            if "algorithm" in shared:
                # Steps are taken by the driver: its optimizers' moments stay there.
                algorithm.set_state({**shared["algorithm"], "optimizers": algorithm.get_state()["optimizers"]})
            algorithm.set_acting_state(shared["acting"])
            self.version = shared["version"]
        return actor, algorithm

    def seed_streams(self, actor: Actor, algorithm: Algorithm, kind: str, *indices: int) -> None:
        """Every stream that a task may draw from, by the task's own number."""
        seed = derived_seed(self.plan.seed, kind, *indices)
        actor.generator.manual_seed(seed)
        algorithm.generator.manual_seed(seed)
        if self.plan.own_process:
            random.seed(seed)
            np.random.seed(seed % 2**32)
            torch.manual_seed(seed)

    def enroll(self, envs: VecEnv, actor: Actor, algorithm: Algorithm, seeds: list[int] | None) -> Logical:
        """A new collector, at the start of episodes."""
        scale = RewardScale(algorithm.gamma) if self.plan.normalize_rewards else None
        acting, recorder = actor.get_state(), Recorder()
        return Logical(Collector(envs, actor, algorithm, recorder, seeds, scale), acting, recorder)

    def collect(self, unit: Mapping[str, Any], *, shared: Mapping[str, Any]) -> dict[str, Any]:
        """Play one unit.

        ``unit``: worker, sequence, steps to play and those played before; ``start`` is what the environments' seeds
        are drawn from if it begins new episodes, ``state`` where it goes on, None if it goes on where this worker is.
        """
        w, sequence = unit["worker"], unit["sequence"]
        envs = self.envs_of(w)
        actor, algorithm = self.load(shared)
        seeds = None
        if unit["start"] is not None:
            first = w * envs.num_envs
            seeds = [derived_seed(self.plan.seed, *unit["start"], first + i) for i in range(envs.num_envs)]
        logical = self.logical.get(w)
        if logical is None:
            logical = self.logical[w] = self.enroll(envs, actor, algorithm, seeds)
        elif seeds is not None:
            logical.collector.restart(seeds)
        collector = logical.collector
        if unit["state"] is not None:
            state = unit["state"]
            if unit["start"] is None:
                collector.set_state(state["collector"])
            else:
                collector.set_counts(state["collector"])
            logical.acting = state["acting"]
        elif unit["start"] is None and logical.sequence != sequence:
            raise RuntimeError(f"unit {sequence} of collector {w} was given to a worker that is at {logical.sequence}")
        logical.sequence = -1  # until the unit is done, nothing can go on from here
        logical.recorder.samples = []
        collector.seen = []
        actor.set_state(logical.acting)
        if self.plan.epsilon_ladder:
            share = w / max(self.plan.layout.size - 1, 1)
            algorithm.set_acting_state({**shared["acting"], "epsilon": 0.4 ** (1 + 7 * share)})
        self.seed_streams(actor, algorithm, "unit", w, sequence)
        collector.steps = unit["before"]
        _, ended = collector.collect(unit["steps"])
        logical.acting, logical.sequence = actor.get_state(), sequence + 1
        can_save = envs.snapshot_support() is None
        where = collector.get_state() if can_save else collector.get_counts()
        return {
            "columns": logical.recorder.take(),
            "episodes": [(number, *episode) for number, episode in ended],
            "state": {"collector": where, "acting": logical.acting},
        }

    def gradients(self, task: Mapping[str, Any], *, shared: Mapping[str, Any]) -> tuple[Any, Any]:
        """(gradients, info) of a batch."""
        actor, algorithm = self.load(shared)
        self.seed_streams(actor, algorithm, "gradient", task["update"], task["worker"])
        return Products(self.plan.precision, actor).gradients(algorithm, task["batch"])

    def learn_together(self, task: Mapping[str, Any], *, shared: Mapping[str, Any]) -> dict[str, Any] | None:
        """One stage of updates on the own rollouts, averaged with the other learners; None if one of them is gone."""
        if task["too_late"]:  # the others have given this attempt up
            return None
        self.version = None
        actor, algorithm = self.load({name: value for name, value in shared.items() if name != "algorithm"})
        algorithm.set_state(shared["algorithm"])
        self.seed_streams(actor, algorithm, "gradient", task["update"], task["rank"])
        with seeded(derived_seed(self.plan.seed, "storage", task["update"], task["rank"])):
            storage = self.plan.storage_factory(self.device, actor, algorithm, next(iter(self.envs.values()), None))
        for part in task["rollouts"]:
            for sample in transitions([part]):
                storage.insert_transition(sample)
        try:
            info, updates = learn_together(
                Products(self.plan.precision, actor),
                algorithm,
                storage,
                task["rank"],
                self.plan.layout.groups,
                task["meeting"],
            )
        except BrokenCircleError:
            return None
        finally:
            self.version = None  # these weights are nobody's version
        state = actor.state_dict()
        found = {"digest": digest(state), "info": info, "updates": updates}
        return found | ({"actor": state, "algorithm": algorithm.get_state()} if task["rank"] == 0 else {})

    def evaluate(self, seeds: list[int], num_episodes: int, *, shared: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Deterministic episodes."""
        if self.test_envs is None:
            self.test_envs = self.plan.test_envs_factory(self.device, mode="test", num_envs=len(seeds))
        actor, algorithm = self.load(shared)
        self.seed_streams(actor, algorithm, "test_env", seeds[0])

        def acting(obs: Any, rhs: Any, done: Any) -> Any:
            _, clipped_action, rhs, _ = algorithm.acting_step(obs, rhs, done, deterministic=True)
            return clipped_action, rhs

        rhs = actor.initial_rhs(self.test_envs.num_envs)
        return [tuple(episode) for episode in play(acting, self.test_envs, rhs, num_episodes, seeds)]

    def close(self) -> None:
        for envs in [*self.envs.values(), *([self.test_envs] if self.test_envs else [])]:
            envs.close()
