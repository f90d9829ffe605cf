"""Rounds whose updates the learners make among themselves; the driver takes over what they agree on."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from pytorchrl.errors import RLError, WorkerLostError
from pytorchrl.scheme.crew import SUSPICIOUS, Task
from pytorchrl.scheme.distributed import Distributed
from pytorchrl.scheme.fleet import Played
from pytorchrl.scheme.round import means_of


class Decentralized(Distributed):
    """A stage of updates is a function of weights, optimizers and rollouts: if a learner is lost, all do it again."""

    def _store(self, taken: list[list[Played]], first: int = 0) -> None:
        self._rollouts = [[played.columns for played in group] for group in taken]
        for group in taken:
            for played in group:
                if self.preemption is None:
                    self.fleet.commit(played)
                self._note(played)
        self.steps += max(sum(played.steps for played in group) for group in taken)

    def _learn(self) -> list[Mapping[str, Tensor]]:
        if len(self.crew.alive) < self.layout.groups:
            raise WorkerLostError(
                "too few workers are left for decentralized updates", "scheme.max_restarts allows more."
            )
        for _ in range(SUSPICIOUS):
            found = self._stage()
            if found is not None:
                return self._agreed(found)
        raise WorkerLostError(f"learners were lost in {SUSPICIOUS} attempts at the same updates")

    def _stage(self) -> list[Any] | None:
        """What every learner has come to; None if one was lost on the way."""
        state = self.crew.pool.put(
            {"actor": self.actor.state_dict(), "algorithm": self.algorithm.get_state(), **self.told()}
        )
        with tempfile.TemporaryDirectory() as folder:
            meeting = str(Path(folder) / "meeting")
            for g in range(self.layout.groups):
                rollout = {"rollouts": self._rollouts[g], "update": self.updates, "rank": g, "meeting": meeting}

                def arguments(_: int, attempt: int, rollout: dict[str, Any] = rollout) -> tuple[Any, ...]:
                    return ({**rollout, "too_late": attempt > 0},)

                self.crew.give(Task(self.layout.gradient_worker(g), "learn_together", arguments, state, about=g))
            found: dict[int, Any] = {}
            while len(found) < self.layout.groups:
                task, value = self.crew.next()
                if task.kind == "learn_together":
                    found[task.about] = value
                else:
                    self._inbox.append((task, value))
        return None if any(value is None for value in found.values()) else [found[g] for g in sorted(found)]

    def _agreed(self, found: list[Any]) -> list[Mapping[str, Tensor]]:
        if len({value["digest"] for value in found}) > 1:
            raise RLError("the learners do not agree on the weights", "Gradients were averaged, so this is a bug.")
        self.actor.load_state_dict(found[0]["actor"])
        self.algorithm.set_state(found[0]["algorithm"])
        self.updates += found[0]["updates"]
        self._asynchronies.append(0)
        self.changed()
        return [means_of([value["info"] for value in found])] * int(found[0]["updates"])

    def told(self) -> dict[str, Any]:
        """What goes with the weights."""
        return {
            "version": ("together", self._stamp),
            "parameters": self.parameters,
            "acting": self.algorithm.acting_state(),
        }
