"""How many workers of each kind a scheme has, and who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """A grid of workers: each of ``groups`` gradient workers is served by ``collectors`` of its own.

    Parameters
        collectors: of each group.
        groups: one per gradient worker.
        collection_asynchronous: whether the first unit that comes is learned from, while the others are played.
        gradients_asynchronous: whether each gradient is applied as it comes.
        preemptive: whether rounds are closed without stragglers.
        decentralized: whether gradient workers average among themselves.
        col_steps: vector steps of a unit; None: a rollout, or what an off-policy algorithm updates after.
    """

    collectors: int
    groups: int
    collection_asynchronous: bool
    gradients_asynchronous: bool
    col_steps: int | None = None
    preemptive: bool = False
    decentralized: bool = False

    @property
    def is_single(self) -> bool:
        """One process does it all."""
        alone = self.collectors == self.groups == 1
        return alone and not (self.collection_asynchronous or self.gradients_asynchronous or self.decentralized)

    @property
    def size(self) -> int:
        """All collectors."""
        return self.collectors * self.groups

    @property
    def gradients_central(self) -> bool:
        """Whether the driver computes them."""
        return self.groups == 1 and not self.gradients_asynchronous

    @property
    def collect_themselves(self) -> bool:
        """Whether gradient workers are their own collectors: they would only wait for each other."""
        return not self.gradients_central and self.collectors == 1 and not self.collection_asynchronous

    @property
    def processes(self) -> int:
        """Collectors first, then gradient workers."""
        return self.size + (0 if self.gradients_central or self.collect_themselves else self.groups)

    def gradient_worker(self, group: int) -> int:
        """The number of a group's gradient worker."""
        return group if self.collect_themselves else self.size + group

    def group_of(self, collector: int) -> int:
        return collector // self.collectors

    def columns(self, replay: bool) -> int:
        """Collectors whose transitions lie side by side in a storage."""
        if self.collection_asynchronous or self.preemptive:
            return 1
        return self.size if replay else self.collectors
