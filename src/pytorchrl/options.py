"""What a run's configuration consists of: its sections, and the options that belong to no component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from pytorchrl.parameters import LARGEST_SEED, NonNegativeInt, PositiveInt, Range
from pytorchrl.registry import NAMES
from pytorchrl.strict_yaml import to_yaml

Seed = Annotated[int, Range(0, LARGEST_SEED)]
Precision = Literal["auto", "fp32", "onednn", "bf16"]


@dataclass
class EnvOptions:
    """The environment.

    Parameters
        id: a Gymnasium id, or module:Env-v0 on the command line.
        num_envs: environments stepped together.
        kwargs: what the environment is made with.
        backend: what runs the environments; auto measures a step and takes processes if they pay off.
        normalize_rewards: whether to learn from rewards in units of the spread of their discounted sums.
    """

    id: str
    num_envs: Annotated[int, Range(1, 2**16)] = 1
    kwargs: dict[str, Any] = field(default_factory=dict)
    backend: Literal["auto", "sync", "async", "vector", "envpool"] = "auto"
    normalize_rewards: bool = False


@dataclass
class RunOptions:
    """How long, how often, and where.

    Parameters
        steps: environment steps to train for.
        seed: root of every random stream.
        log_every: environment steps between log rows; null for 1/200 of steps.
        eval_every: environment steps between evaluations; null leaves it to the algorithm's test_every.
        checkpoint_every: environment steps between checkpoints; null for 1/10 of steps.
        video_every: environment steps between videos of the policy, in videos; 0 for none.
        device: where networks and storage live.
        threads: intra-op threads of the learning process.
        precision: of the learning's matrix products on the CPU; auto measures whether oneDNN is faster and as exact.
        logger: where figures are written, beside the CSV files that are always there.
    """

    steps: PositiveInt
    seed: Seed = 1
    log_every: PositiveInt | None = None
    eval_every: NonNegativeInt | None = None
    checkpoint_every: PositiveInt | None = None
    video_every: NonNegativeInt = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Range(1, 1024)] = 1
    precision: Precision = "auto"
    logger: tuple[Literal["csv", "tensorboard", "wandb", "mlflow"], ...] = ("csv", "tensorboard")


# Sections that hold their parameters directly.
OPTIONS: dict[str, type] = {"env": EnvOptions, "run": RunOptions}
SECTIONS = (*NAMES, *OPTIONS, "anneal")


@dataclass
class Choice:
    """A component by name, with its parameters."""

    name: str
    config: dict[str, Any]


@dataclass
class RunConfig:
    """Everything that a run is made of; ``notes`` are said once when it starts."""

    algorithm: Choice
    storage: Choice
    actor: Choice
    scheme: Choice
    env: EnvOptions
    run: RunOptions
    anneal: dict[str, float]
    preset: str | None = None
    notes: list[str] = field(default_factory=list)

    def to_yaml(self) -> str:
        """The file that repeats the run."""
        sections = asdict(self)
        return to_yaml({name: sections[name] for name in SECTIONS})

    def settings(self) -> dict[str, str]:
        """Every parameter by its path, as text."""
        sections = asdict(self)
        return flat({name: sections[name] for name in SECTIONS})


def flat(config: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Nested settings by dotted path."""
    found: dict[str, str] = {}
    for key, value in config.items():
        here = f"{path}{key}"
        if isinstance(value, dict):
            found |= flat(value, f"{here.removesuffix('.config')}.")
        else:
            found[here] = str(value)
    return found
