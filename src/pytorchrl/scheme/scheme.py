"""Scheme: the agent's parts put together, in one place or in many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import Episode, VecEnv
from pytorchrl.agent.storages.base import Storage
from pytorchrl.keys import SYNC
from pytorchrl.options import Precision
from pytorchrl.parameters import NonNegativeFloat, NonNegativeInt, PositiveInt
from pytorchrl.precision import Products
from pytorchrl.scheme.asynchronous import Asynchronous
from pytorchrl.scheme.collection import Collector, play
from pytorchrl.scheme.decentralized import Decentralized
from pytorchrl.scheme.distributed import Distributed
from pytorchrl.scheme.fleet import Fleet
from pytorchrl.scheme.layout import Layout
from pytorchrl.scheme.preemption import Preemption
from pytorchrl.scheme.remote_envs import RemoteEnvs
from pytorchrl.scheme.reward_scale import RewardScale
from pytorchrl.scheme.round import Round as Round
from pytorchrl.scheme.setup import Workplace, check_layout, check_storage, make_crew
from pytorchrl.scheme.workers import Plan
from pytorchrl.seeding import derived_seed, seeded
from pytorchrl.tree import Tree

Communication = Literal["synchronous", "asynchronous"]
# What a scheme is put together from: never chosen in the section of a configuration that bears its name.
GIVEN = (
    "algo_factory",
    "actor_factory",
    "storage_factory",
    "train_envs_factory",
    "test_envs_factory",
    "local_device",
    "seed",
    "normalize_rewards",
    "precision",
)


class Scheme:
    """The agent on one process, or on many.

    One collector and one gradient worker, both synchronous, are one process on one storage, without copies in between.
    Anything else has workers; the driver keeps everything that lasts, so that a lost worker loses nothing.

    Parameters
        algo_factory: from ``Algorithm.create_factory`` (its first result).
        actor_factory: from ``Actor.create_factory``.
        storage_factory: from ``Storage.create_factory``.
        train_envs_factory: from ``VecEnv.create_factory`` (its first result).
        test_envs_factory: likewise, for evaluation; by default the training one in mode "test".
        num_col_workers: collectors that serve each gradient worker.
        col_workers_communication: synchronous: all of them play a round; asynchronous: the first unit is learned from.
        col_workers_resources: what each needs on a Ray cluster, such as {num_cpus: 1, num_gpus: 0}.
        col_preemption_thresholds: the fraction_workers that must be through, and the fraction_samples that each of the
            others must have, for a round to be closed; 1 waits for all.
        num_grad_workers: workers that compute gradients, each from what its own collectors played.
        grad_workers_communication: synchronous: averaged, weighted by samples; asynchronous: applied one by one.
        grad_workers_resources: likewise.
        local_device: where the driver's networks and storage live.
        decentralized_update_execution: whether gradient workers average among themselves and all take the step.
        col_compress_data: whether what collectors send is compressed.
        grad_compress_data: whether what gradient workers send is compressed.
        seed: the root of every random stream.
        normalize_rewards: whether to learn from rewards in units of the spread of their discounted sums.
        precision: of the matrix products in updates: fp32, onednn or bf16.
        engine: where workers run: process (this machine), ray (a cluster), local (this process, for tests).
        ray_address: the Ray cluster to join, such as auto; null starts one on this machine.
        col_steps: vector steps of a unit of collection; null: a rollout, or the steps between an algorithm's updates.
        epsilon_ladder: whether collector i of N explores with an epsilon of its own, 0.4^(1 + 7i/(N - 1)).
        max_restarts: lost workers that are replaced per hour; then others do their work.
        worker_deadline: seconds after which a silent worker is taken for lost, at the least; 0 waits for ever.
    """

    def __init__(
        self,
        algo_factory: Callable[..., Algorithm],
        actor_factory: Callable[..., Actor],
        storage_factory: Callable[..., Storage],
        train_envs_factory: Callable[..., VecEnv],
        test_envs_factory: Callable[..., VecEnv] | None = None,
        num_col_workers: PositiveInt = 1,
        col_workers_communication: Communication = "synchronous",
        col_workers_resources: dict[str, float] | None = None,
        col_preemption_thresholds: dict[str, float] = {"fraction_samples": 1.0, "fraction_workers": 1.0},  # noqa: B006
        num_grad_workers: PositiveInt = 1,
        grad_workers_communication: Communication = "synchronous",
        grad_workers_resources: dict[str, float] | None = None,
        local_device: torch.device | str | None = None,
        decentralized_update_execution: bool = False,
        col_compress_data: bool = False,
        grad_compress_data: bool = False,
        *,
        seed: int = 0,
        normalize_rewards: bool = False,
        precision: Precision = "fp32",
        engine: Literal["auto", "process", "ray", "local"] = "auto",
        ray_address: str | None = None,
        col_steps: PositiveInt | None = None,
        epsilon_ladder: bool = False,
        max_restarts: NonNegativeInt = 1000,
        worker_deadline: NonNegativeFloat = 60.0,
    ) -> None:
        self.device = torch.device(local_device or "cpu")
        self.seed = seed
        self.precision = precision
        self._make_test_envs = test_envs_factory or train_envs_factory
        self._test_envs: VecEnv | None = None
        self.evaluations = 0
        self.current_batch: Mapping[str, Any] = {}
        self.distributed: Distributed | None = None
        layout = Layout(
            num_col_workers,
            num_grad_workers,
            col_workers_communication != SYNC,
            grad_workers_communication != SYNC,
            col_steps,
            any(share < 1 for share in col_preemption_thresholds.values()),
            decentralized_update_execution,
        )
        check_layout(layout, col_preemption_thresholds, engine)
        parts = algo_factory, actor_factory, storage_factory
        if layout.is_single:
            self.envs = train_envs_factory(self.device)
            self.storage = self._build(*parts, self.envs.num_envs)[0]
            seeds = [derived_seed(seed, "train_env", i) for i in range(self.envs.num_envs)]
            scale = RewardScale(self.algorithm.gamma) if normalize_rewards else None
            self.collector = Collector(self.envs, self.actor, self.algorithm, self.storage, seeds, scale)
            return
        plan = Plan(
            algo_factory,
            actor_factory,
            storage_factory,
            train_envs_factory,
            self._make_test_envs,
            seed,
            layout,
            normalize_rewards,
            epsilon_ladder,
            precision,
            own_process=engine != "local",
        )
        workplace = Workplace(
            "process" if engine == "auto" else engine,
            ray_address,
            col_workers_resources or {},
            grad_workers_resources or {},
            col_compress_data,
            grad_compress_data,
            max_restarts,
            worker_deadline,
        )
        crew, facts = make_crew(plan, layout, workplace)
        try:
            self.envs = RemoteEnvs(facts, facts["num_envs"], self.device)
            storages = self._build(*parts, facts["num_envs"], layout)
            self.storage = storages[0]
            check_storage(self.storage, self.algorithm, layout)
        except BaseException:
            crew.close()
            raise
        fleet = Fleet(crew, layout.size, facts["num_envs"], self.can_save_envs)
        preemption = None
        if layout.preemptive:
            steps = layout.col_steps or self.storage.max_size
            preemption = Preemption(col_preemption_thresholds, layout.size, steps)
        kind: type[Distributed] = Decentralized if layout.decentralized else Distributed
        if layout.gradients_asynchronous:
            kind = Asynchronous
        self.distributed = kind(layout, crew, fleet, self.products, self.actor, self.algorithm, storages, preemption)

    def _build(
        self,
        algo_factory: Callable[..., Algorithm],
        actor_factory: Callable[..., Actor],
        storage_factory: Callable[..., Storage],
        num_envs: int,
        layout: Layout | None = None,
    ) -> list[Storage]:
        """Actor and algorithm, and the storages that the layout needs."""
        with seeded(derived_seed(self.seed, "model")):
            self.actor = actor_factory(self.device)
            self.algorithm = algo_factory(self.device, self.actor, self.envs)
            self.products = Products(self.precision, self.actor)
            replay = self.algorithm.update_every is not None
            if layout is not None and isinstance(self.envs, RemoteEnvs):
                self.envs.num_envs = num_envs * layout.columns(replay)
            count = 1 if layout is None or replay else layout.size if layout.preemptive else layout.groups
            return [storage_factory(self.device, self.actor, self.algorithm, self.envs) for _ in range(count)]

    def step(self) -> Round:
        """Collect one round, then learn from it."""
        if self.distributed is not None:
            return self.distributed.step()
        num_steps = self.algorithm.update_every or self.storage.max_size
        env_steps, episodes = self.collector.collect(num_steps)
        updates = self.algorithm.iter
        losses = self.learn() if self.collector.steps >= self.algorithm.start_steps else []
        self.collector.update_normalizer()
        # A delayed policy has its figures in some of the updates only.
        names = dict.fromkeys(name for info in losses for name in info)
        means = {name: torch.stack([info[name] for info in losses if name in info]).mean() for name in names}
        return Round(env_steps, self.algorithm.iter - updates, means, episodes)

    @property
    def round_steps(self) -> int:
        """Environment steps between two stages of updates."""
        return (self.algorithm.update_every or self.storage.max_size) * self.envs.num_envs

    def learn(self) -> list[dict[str, Tensor]]:
        """One update per batch that the storage yields, until the algorithm is done with the data; their infos."""
        algorithm, storage = self.algorithm, self.storage
        storage.before_gradients()
        infos = []
        batches = storage.generate_batches(algorithm.num_mini_batch, algorithm.mini_batch_size, algorithm.num_epochs)
        for batch in batches:
            self.current_batch = batch  # a failure is repeated from it
            _, info = self.products.gradients(algorithm, batch, to_cpu=False)
            infos.append(storage.after_gradients(batch, info))
            if algorithm.is_done_with_data(info):
                break
            algorithm.apply_gradients()
        return infos

    def update_algorithm_parameter(self, name: str, value: Any) -> None:
        """Change a parameter of the algorithm, here and at every worker from its next task on."""
        self.algorithm.update_algorithm_parameter(name, value)
        if self.distributed is not None:
            self.distributed.update_parameter(name, value)

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
        """Close every environment and end every worker."""
        if self.distributed is not None:
            self.distributed.crew.close()
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
        if self.distributed is not None:
            self.distributed.settle()
        if not self.can_save_envs:
            self._barrier(number)
        collection: dict[str, Any] = {"distributed": None, "collector": None}
        if self.distributed is not None:
            collection["distributed"] = self.distributed.get_state()
        else:
            collection["collector"] = self.collector.get_state() if self.can_save_envs else self.collector.get_counts()
        return {
            "algorithm": self.algorithm.get_state(),
            "acting": self.actor.get_state(),
            "storage": self.storage.get_checkpoint(),
            "barrier": None if self.can_save_envs else number,
            "evaluations": self.evaluations,
            **collection,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; the actor's weights are loaded before."""
        self.algorithm.set_state(state["algorithm"])
        self.actor.set_state(state["acting"])
        self.storage.set_state(state["storage"])
        self.evaluations = state["evaluations"]
        if self.distributed is not None:
            self.distributed.set_state(state["distributed"])
        elif state["barrier"] is None:
            self.collector.set_state(state["collector"])
        else:
            self._barrier(state["barrier"])
            self.collector.set_counts(state["collector"])

    def _barrier(self, number: int) -> None:
        if self.distributed is not None:
            self.distributed.fleet.barrier(number)
            return
        self.collector.restart([derived_seed(self.seed, "barrier", number, i) for i in range(self.envs.num_envs)])
