"""The workers of a scheme, made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.storages.base import Storage
from pytorchrl.errors import ConfigError, suggestion
from pytorchrl.scheme.crew import Crew, Task
from pytorchrl.scheme.layout import Layout
from pytorchrl.scheme.pool import Place, make_pool
from pytorchrl.scheme.workers import Plan

THRESHOLDS = ("fraction_samples", "fraction_workers")


@dataclass
class Workplace:
    """Where workers run, and what they may take; the parameters of ``Scheme`` say what each means."""

    engine: str
    ray_address: str | None
    col_resources: Mapping[str, float] = field(default_factory=dict)
    grad_resources: Mapping[str, float] = field(default_factory=dict)
    col_compress: bool = False
    grad_compress: bool = False
    max_restarts: int = 0
    deadline: float = 0.0


def make_crew(plan: Plan, layout: Layout, workplace: Workplace) -> tuple[Crew, dict[str, Any]]:
    """The workers, and what the first of them says of its environments."""
    places = []
    for i in range(layout.processes):
        collects = i < layout.size
        own = workplace.col_resources if collects else workplace.grad_resources
        resources = {**own, **workplace.grad_resources} if layout.collect_themselves else own
        compress = workplace.col_compress if collects else workplace.grad_compress
        name = f"collector {i}" if collects else f"gradient worker {i - layout.size}"
        places.append(Place(f"worker {i}" if layout.collect_themselves else name, resources, compress))
    crew = Crew(
        make_pool(workplace.engine, plan.make, places, workplace.ray_address),
        workplace.max_restarts,
        workplace.deadline,
    )
    try:
        (facts,) = crew.do([Task(0, "describe", lambda *_: ())])
    except BaseException:
        crew.close()
        raise
    return crew, facts


def check_layout(layout: Layout, thresholds: Mapping[str, float], engine: str) -> None:
    """``ConfigError`` for what cannot be, or cannot be together."""
    for name, share in thresholds.items():
        if name not in THRESHOLDS:
            raise ConfigError(f"col_preemption_thresholds: unknown name '{name}'", suggestion(name, THRESHOLDS))
        if not 0 < share <= 1:
            raise ConfigError(f"col_preemption_thresholds.{name}: expected a share above 0, up to 1, got {share:g}")
    if layout.preemptive and (layout.collection_asynchronous or layout.gradients_asynchronous):
        raise ConfigError(
            "col_preemption_thresholds close rounds, and asynchronous workers have none", "Use one of them."
        )
    if layout.decentralized:
        if layout.gradients_asynchronous or layout.collection_asynchronous or layout.collectors > 1:
            raise ConfigError(
                "decentralized_update_execution needs synchronous workers that collect for themselves",
                "Set scheme.num_col_workers=1 and both communications to synchronous.",
            )
        if engine == "ray":
            raise ConfigError(
                "decentralized_update_execution works within one machine, so not with engine 'ray' yet",
                "Use --engine process, or scheme dppo.",
            )
        if engine == "local":
            raise ConfigError("decentralized_update_execution needs processes", "Use --engine process.")


def check_storage(storage: Storage, algorithm: Algorithm, layout: Layout) -> None:
    """``ConfigError`` for storages that only work where they are also written to."""
    if type(storage).next_inputs is not Storage.next_inputs:
        raise ConfigError(
            f"{type(storage).__name__} decides what is acted on, so it needs collection in the same process",
            "Use scheme single with it.",
        )
    if algorithm.learns_while_acting:
        raise ConfigError(
            f"{type(algorithm).__name__} keeps what its acting depends on where it learns",
            "Use scheme single with it.",
        )
    if algorithm.update_every is not None and (layout.preemptive or layout.decentralized):
        raise ConfigError(
            f"{type(algorithm).__name__} learns from a replay, which preemption and decentralized updates do not serve",
            "Use apex, or scheme dppo without thresholds.",
        )
    if algorithm.update_every is None and (layout.col_steps or 0) > storage.max_size:
        raise ConfigError(
            f"scheme.col_steps: a rollout of {layout.col_steps} steps, and storage.size is {storage.max_size}"
        )
