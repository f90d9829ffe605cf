"""Rounds of a scheme whose collectors, or gradient workers, are elsewhere. The driver owns everything that lasts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import Episode
from pytorchrl.agent.storages.base import Storage
from pytorchrl.keys import OBS
from pytorchrl.precision import Products
from pytorchrl.scheme.crew import Crew, Task
from pytorchrl.scheme.fleet import Fleet, Played
from pytorchrl.scheme.gradients import average
from pytorchrl.scheme.layout import Layout
from pytorchrl.scheme.pool import Shared
from pytorchrl.scheme.preemption import Preemption
from pytorchrl.scheme.round import Round, means_of
from pytorchrl.scheme.transitions import transitions

Batch = dict[str, Any]


class Distributed:
    """Collects and learns with workers.

    Whatever the layout: units are committed when they are put into a storage; storages, optimizers, normalizers and
    counters are the driver's; gradients of several workers are averaged in their order, weighted by samples.

    Parameters
        layout: how many workers of each kind there are, and who waits for whom.
        crew: the workers.
        fleet: those of them that collect.
        actor: the driver's own.
        algorithm: likewise; the only one that takes steps.
        storages: one per gradient worker, or a single replay; with preemption, one per collector.
        preemption: when a round is closed without its stragglers; None: never.
    """

    def __init__(
        self,
        layout: Layout,
        crew: Crew,
        fleet: Fleet,
        products: Products,
        actor: Actor,
        algorithm: Algorithm,
        storages: Sequence[Storage],
        preemption: Preemption | None = None,
    ) -> None:
        self.preemption = preemption
        self.layout, self.crew, self.fleet = layout, crew, fleet
        self.products = products
        self.actor, self.algorithm, self.storages = actor, algorithm, storages
        self.replay = algorithm.update_every is not None
        self.unit_steps: int = layout.col_steps or algorithm.update_every or storages[0].max_size
        self.steps = 0  # of the columns of a storage
        self.updates = 0  # the version of the weights
        self.due = 0  # steps of a replay that were not learned from
        self.parameters: dict[str, Any] = {}  # those that were changed since the workers were made
        self._stamp = 0
        self._weights: dict[str, tuple[int, Shared]] = {}
        self._inbox: deque[tuple[Task, Any]] = deque()
        self._ready: list[deque[Played]] = [deque() for _ in range(layout.groups)]
        self._started = False
        self._infos: list[Mapping[str, Tensor]] = []
        self._lags: list[int] = []
        self._asynchronies: list[int] = []
        self._episodes: list[tuple[int, Episode]] = []
        self._env_steps = 0

    def described(self, name: str) -> str:
        """The workers, in words."""
        layout = self.layout
        collectors = f"{layout.size} collector{'s' if layout.size > 1 else ''}"
        learners = f"{layout.groups} gradient worker{'s' if layout.groups > 1 else ''}"
        if layout.collect_themselves:
            who = f"{learners}, which collect for themselves"
        elif layout.gradients_central:
            who = f"{collectors}, and this process learns"
        else:
            who = f"{collectors} and {learners}"
        return f"Scheme {name}: {who}, on engine {self.crew.pool.engine}."

    # What travels

    def changed(self) -> None:
        """The weights, or what goes with them, are not what they were."""
        self._stamp += 1

    def weights(self, kind: str) -> Shared:
        """What workers act with, or ("learning") compute gradients with; put into the pool once per version."""
        stamp, shared = self._weights.get(kind, (-1, None))
        if shared is None or stamp != self._stamp:
            value: dict[str, Any] = {"version": (kind, self._stamp), "parameters": self.parameters}
            value |= {"actor": self.actor.state_dict(), "acting": self.algorithm.acting_state()}
            if kind == "learning":
                state = self.algorithm.get_state()
                value["algorithm"] = {name: item for name, item in state.items() if name != "optimizers"}
            shared = self.crew.pool.put(value)
            self._weights[kind] = self._stamp, shared
        return shared

    def update_parameter(self, name: str, value: Any) -> None:
        """A parameter of the algorithm has another value now."""
        if self.parameters.get(name, self) != value:
            self.parameters[name] = value
            self.changed()

    # Rounds

    def step(self) -> Round:
        """One round: all collectors' units if they are synchronous, else the first that comes."""
        self._advance()
        episodes, self._episodes = self._episodes, []
        lags, self._lags = self._lags, []
        asynchronies, self._asynchronies = self._asynchronies, []
        infos, self._infos = self._infos, []
        env_steps, self._env_steps = self._env_steps, 0
        return Round(env_steps, len(infos), means_of(infos), episodes, _mean(lags), _mean(asynchronies))

    def _advance(self) -> None:
        """Collect, then learn."""
        layout = self.layout
        if layout.collection_asynchronous:
            self._start_collectors()
            while not all(self._ready):
                self._take(*self._event())
            taken = [[ready.popleft()] for ready in self._ready]
        elif self.preemption is not None:
            taken = self.preemption.round(self._send_out, self._committed)
        else:
            for worker in range(self.fleet.size):
                self._send_out(worker)
            while self.crew.busy:
                self._take(*self._event())
            taken = [sorted(ready, key=lambda played: played.unit.worker) for ready in self._ready]
            self._ready = [deque() for _ in taken]
        self._store(taken)
        if layout.collection_asynchronous:  # they go on while the driver learns
            for played in (played for group in taken for played in group):
                self._send_out(played.unit.worker)
        for _ in range(self._stages()):
            self._infos += self._learn()
        self._normalize([played for group in taken for played in group])

    def _stages(self) -> int:
        """How often the storages are to be learned from now."""
        if not self.replay:
            return 1
        if self.steps < self.algorithm.start_steps:
            self.due = 0
            return 0
        stages, self.due = divmod(self.due, self.algorithm.update_every or 1)
        return stages

    def _learn(self) -> list[Mapping[str, Tensor]]:
        """One stage of updates, here or by the gradient workers, step by step together; an info for each."""
        sources = [self.storages[0]] * self.layout.groups if self.replay else list(self.storages)
        for storage in () if self.replay else sources:
            storage.before_gradients()
        batches = [self._generate(source) for source in sources]
        infos: list[Mapping[str, Tensor]] = []
        while found := [(g, batch) for g, rest in enumerate(batches) if (batch := next(rest, None)) is not None]:
            replies = self._gradients(found)
            told = [
                sources[g].after_gradients(batch, info) for (g, batch), (_, info) in zip(found, replies, strict=True)
            ]
            infos.append(means_of(told))
            if self.algorithm.is_done_with_data(dict(infos[-1])):
                break
            gradients = [gradients for gradients, _ in replies]
            rows = [self.algorithm.rows_in(batch) for _, batch in found]
            self._apply(average(gradients, rows) if len(found) > 1 else gradients[0])
            self._asynchronies.append(0)
        return infos

    def _generate(self, storage: Storage) -> Iterator[Batch]:
        algorithm = self.algorithm
        return storage.generate_batches(algorithm.num_mini_batch, algorithm.mini_batch_size, algorithm.num_epochs)

    def _gradients(self, batches: list[tuple[int, Batch]]) -> list[tuple[Any, Any]]:
        """(gradients, info) of every group's batch."""
        self.current_batch = batches[0][1]
        if self.layout.gradients_central:
            return [self.products.gradients(self.algorithm, batch, to_cpu=len(batches) > 1) for _, batch in batches]
        tasks = [self._gradient_task(g, batch) for g, batch in batches]
        for task in tasks:
            self.crew.give(task)
        done: dict[int, Any] = {}
        while len(done) < len(tasks):
            task, value = self.crew.next()
            if task.kind == "gradients":
                done[task.about[0]] = value
            else:
                self._inbox.append((task, value))
        return [done[g] for g, _ in batches]

    def _gradient_task(self, g: int, batch: Batch) -> Task:
        told = {"batch": batch, "update": self.updates, "worker": g}
        about = (g, self.updates, batch)
        worker = self.layout.gradient_worker(g % self.layout.groups)
        return Task(worker, "gradients", lambda *_: (told,), self.weights("learning"), about)

    def _apply(self, gradients: Sequence[Tensor | None]) -> None:
        self.algorithm.apply_gradients(gradients)
        self.updates += 1
        self.changed()

    # Collectors

    def _start_collectors(self) -> None:
        if not self._started:
            self._started = True
            for worker in range(self.fleet.size):
                self._send_out(worker)

    def _send_out(self, worker: int, steps: int | None = None) -> None:
        self.fleet.give(worker, steps or self.unit_steps, self.steps, self.updates, self.weights("acting"))

    def _committed(self) -> Played:
        """The next part of a rollout."""
        played = self.fleet.received(*self._event())
        self.fleet.commit(played)
        return played

    def _event(self) -> tuple[Task, Any]:
        return self._inbox.popleft() if self._inbox else self.crew.next()

    def _take(self, task: Task, value: Any) -> None:
        """What came waits until it is stored."""
        played = self.fleet.received(task, value)
        self._ready[self.layout.group_of(played.unit.worker)].append(played)

    def _store(self, taken: list[list[Played]], first: int = 0) -> None:
        """Commit units, those of a group side by side; the groups of a replay too."""
        groups = taken
        if self.replay and not self.layout.collection_asynchronous:
            groups = [[played for group in taken for played in group]]
        steps = 0
        for g, group in enumerate(groups, first):
            storage = self.storages[0 if self.replay else g]
            # Collectors of a group lie side by side; parts of a rollout follow each other.
            for part in [[played] for played in group] if self.preemption else [group]:
                for sample in transitions([self._here(played.columns) for played in part]):
                    storage.insert_transition(sample)
            for played in group:
                if self.preemption is None:
                    self.fleet.commit(played)
                self._note(played)
            steps = steps + group[0].steps if self.replay else max(steps, group[0].steps)
        self.steps += steps
        self.due += steps

    def _note(self, played: Played) -> None:
        n, offset = self.fleet.num_envs, self._env_steps
        first = played.unit.worker * n
        self._lags.append(self.updates - played.unit.version)
        self._env_steps += played.steps * n
        self._episodes += [
            (min(offset + number, self._env_steps), episode._replace(env=first + episode.env))
            for number, episode in played.episodes
        ]

    def _here(self, columns: Any) -> Any:
        """Columns where the learner's tensors are."""
        if self.actor.device.type == "cpu":
            return columns
        return {
            key: {**value, "rows": tree.to(value["rows"], self.actor.device)}
            if "ends" in value
            else tree.to(value, self.actor.device)
            for key, value in columns.items()
        }

    def _normalize(self, taken: list[Played]) -> None:
        if self.actor.normalizer is not None:
            for played in taken:
                self.actor.update_normalizer(self._here(played.columns)[OBS])
            self.changed()

    def settle(self) -> None:
        """Finish what gradient workers are at, so that nothing is half learned; collectors go on."""

    def get_state(self) -> dict[str, Any]:
        """What the next round depends on, beside actor, algorithm and the first storage."""
        self.settle()
        return {
            "steps": self.steps,
            "updates": self.updates,
            "due": self.due,
            "parameters": dict(self.parameters),
            "fleet": self.fleet.get_state(),
            "storages": [storage.get_state() for storage in self.storages[1:]],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.steps, self.updates, self.due = state["steps"], state["updates"], state["due"]
        self.parameters = dict(state["parameters"])
        self.fleet.set_state(state["fleet"])
        for storage, saved in zip(self.storages[1:], state["storages"], strict=True):
            storage.set_state(saved)
        self.changed()


def _mean(values: list[int]) -> float:
    return sum(values) / len(values) if values else 0.0
