"""The configuration of a whole run: layers of presets, files, flags and overrides, checked and resolved.

A run has the sections algorithm, storage, actor and scheme (each ``{name, config}``), env, run and anneal. Each layer
is checked where it was written, so that a message can name its file and line; later layers win.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pytorchrl.errors import ConfigError, suggestion
from pytorchrl.parameters import (
    Node,
    NonNegativeInt,
    Parameter,
    PositiveInt,
    Problems,
    Range,
    check_all,
    parameters_of,
)
from pytorchrl.registry import COMPANIONS, KINDS, SCHEMES, canonical_name, load_class
from pytorchrl.seeding import LARGEST_SEED
from pytorchrl.strict_yaml import parse_yaml, read_yaml, to_yaml

Seed = Annotated[int, Range(0, LARGEST_SEED)]


@dataclass
class EnvOptions:
    """The environment.

    Parameters
        id: a Gymnasium id, or module:Env-v0 on the command line.
        num_envs: environments stepped together.
        kwargs: what the environment is made with.
    """

    id: str
    num_envs: PositiveInt = 1
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class RunOptions:
    """How long, how often, and where.

    Parameters
        steps: environment steps to train for.
        seed: root of every random stream.
        log_every: environment steps between log rows; null for 1/200 of steps.
        eval_every: environment steps between evaluations; null leaves it to the algorithm's test_every.
        checkpoint_every: environment steps between checkpoints; null for 1/10 of steps.
        device: where networks and storage live.
        threads: intra-op threads of the learning process.
        logger: where figures are written, beside the CSV files that are always there.
    """

    steps: PositiveInt
    seed: Seed = 1
    log_every: PositiveInt | None = None
    eval_every: NonNegativeInt | None = None
    checkpoint_every: PositiveInt | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: PositiveInt = 1
    logger: tuple[Literal["csv", "tensorboard"], ...] = ("csv", "tensorboard")


# Sections that hold their parameters directly.
OPTIONS: dict[str, type] = {"env": EnvOptions, "run": RunOptions}
SECTIONS = (*KINDS, "scheme", *OPTIONS, "anneal")


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


@dataclass
class Layer:
    """One source of settings: where it came from, and its sections."""

    source: str
    node: Node


@dataclass(frozen=True)
class Alias:
    """A name that users know from elsewhere: where it goes here, and what its value becomes."""

    path: str
    convert: Callable[[float], float] | None = None
    note: str = ""


ALIASES = {
    "learning_rate": Alias("algorithm.lr"),
    "ent_coef": Alias("algorithm.entropy_coef"),
    "vf_coef": Alias("algorithm.value_loss_coef"),
    "clip_range": Alias("algorithm.clip_param"),
    "clip_coef": Alias("algorithm.clip_param"),
    "n_epochs": Alias("algorithm.num_epochs"),
    "update_epochs": Alias("algorithm.num_epochs"),
    "num_minibatches": Alias("algorithm.num_mini_batch"),
    "batch_size": Alias("algorithm.mini_batch_size"),
    "tau": Alias("algorithm.polyak", lambda tau: 1.0 - tau, " (1 - tau)"),
    "learning_starts": Alias("algorithm.start_steps"),
    "train_freq": Alias("algorithm.update_every"),
    "gradient_steps": Alias("algorithm.num_updates"),
    "buffer_size": Alias("storage.size"),
    "n_steps": Alias("storage.size"),
    "num_steps": Alias("storage.size"),
    "n_envs": Alias("env.num_envs"),
    "total_timesteps": Alias("run.steps"),
}


def resolve(
    algorithm: str | None,
    env: str | None,
    *,
    preset: str | None = None,
    config: str | Path | None = None,
    overrides: Sequence[tuple[str, Node]] = (),
) -> RunConfig:
    """The run's configuration from all layers, complete and checked; ``ConfigError`` tells all that is wrong.

    Without a configuration file, the algorithm's preset for the environment (or its general one) lies below the
    overrides, unless ``preset`` is "none".
    """
    layers = []
    if config is not None:
        layers.append(_file_layer(config))
    stated = {"algorithm.name": algorithm, "env.id": env}
    named = [(path, Node(value)) for path, value in stated.items() if value is not None]
    words = _overrides_layer([*named, *overrides])
    name, env_id = _stated([*layers, words], "algorithm", "name"), _stated([*layers, words], "env", "id")
    if name is None or env_id is None:
        raise ConfigError("an algorithm and an environment are needed", "For example: pytorchrl train ppo CartPole-v1")
    name = canonical_name("algorithm", name)
    used = None
    if config is None or preset is not None:
        used, below = _preset_layer(name, env_id, preset)
        layers = [*below, *layers]
    resolved = _Resolver(name, [*layers, words]).resolve()
    resolved.preset = used
    return resolved


def parse_override(text: str) -> tuple[str, Node]:
    """PATH=VALUE of the command line."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"--set {text}: expected PATH=VALUE", "For example: --set algorithm.gamma=0.98")
    node = parse_yaml(value, f"--set {path}") if value.strip() else Node("", text=True)
    return path.strip(), node


def presets_of(algorithm: str) -> Node:
    """The zoo's presets of an algorithm, by environment id; "default" is the general one."""
    file = resources.files("pytorchrl") / "zoo" / f"{algorithm.lower()}.yaml"
    return parse_yaml(file.read_text("utf-8"), f"zoo/{file.name}") if file.is_file() else Node({})


def _file_layer(config: str | Path) -> Layer:
    try:
        node = read_yaml(config)
    except FileNotFoundError:
        raise ConfigError(f"{config}: no such file") from None
    problems = Problems(str(config))
    if not isinstance(node.value, dict):
        problems.add(f"expected a mapping of {', '.join(SECTIONS)}, got {node.shown()}", line=node.line)
    else:
        for section, item in node.value.items():
            if section not in SECTIONS:
                problems.add(f"unknown section '{section}'", suggestion(section, SECTIONS), line=item.line)
    problems.raise_any()
    env = node.value.get("env")
    env_id = env.value.get("id") if env is not None and isinstance(env.value, dict) else None
    if env_id is not None and isinstance(env_id.value, str) and ":" in env_id.value:
        problems.add(
            f"'{env_id.value}' would import a module",
            "Name the environment on the command line instead.",
            "env.id",
            env_id.line,
        )
    problems.raise_any()
    return Layer(str(config), node)


def _preset_layer(algorithm: str, env_id: str, preset: str | None) -> tuple[str | None, list[Layer]]:
    if preset == "none":
        return None, []
    known = presets_of(algorithm).value
    if preset is not None and preset not in known:
        raise ConfigError(f"{algorithm} has no preset '{preset}'", suggestion(preset, [*known, "none"]))
    name = preset or (env_id if env_id in known else "default")
    if name not in known:
        return None, []
    return name, [Layer(f"preset {algorithm.lower()}/{name}", known[name].value["config"])]


def _overrides_layer(overrides: Sequence[tuple[str, Node]]) -> Layer:
    """Dotted paths as nested sections; names without a section find their own later."""
    root: dict[str, Any] = {}
    for path, node in overrides:
        *parents, last = path.split(".")
        place = root
        for parent in parents:
            below = place.setdefault(parent, Node({}))
            if not isinstance(below.value, dict):
                raise ConfigError(f"--set {path}: '{parent}' is a value, not a section")
            place = below.value
        place[last] = node
    return Layer("", Node(root))


def _stated(layers: Sequence[Layer], section: str, key: str) -> str | None:
    """The last layer's word on ``section.key``."""
    for layer in reversed(layers):
        node = layer.node.value.get(section)
        inner = node.value.get(key) if node is not None and isinstance(node.value, dict) else None
        if inner is not None:
            if not isinstance(inner.value, str):
                raise ConfigError(f"{layer.source} {section}.{key}: expected a name, got {inner.shown()}".strip())
            return inner.value
    return None


class _Resolver:
    """Checks each layer against the parameters of the named components and merges them."""

    def __init__(self, algorithm: str, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self.notes: list[str] = []
        actor, storage = COMPANIONS[algorithm]
        self.names = {"algorithm": algorithm, "actor": actor, "storage": storage}
        for kind in ("actor", "storage"):
            stated = _stated(layers, kind, "name")
            if stated is not None:
                self.names[kind] = canonical_name(kind, stated)
        self.scheme = _stated(layers, "scheme", "name") or "single"
        if self.scheme not in SCHEMES:
            raise ConfigError(f"unknown scheme '{self.scheme}'", suggestion(self.scheme, SCHEMES))
        self.parameters: dict[str, dict[str, Parameter]] = {
            kind: load_class(kind, name).configurable() for kind, name in self.names.items()
        }
        self.parameters |= {"scheme": {}}
        self.parameters |= {section: _options(owner) for section, owner in OPTIONS.items()}
        self.values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}

    def resolve(self) -> RunConfig:
        told = []
        for layer in self.layers:
            problems = Problems(layer.source)
            self.read(layer, problems)
            told += problems.told
        if not told:
            told += self.missing()
        if told:
            raise ConfigError("\n".join(told))
        self.finish_batch_size()
        choices = {
            kind: Choice(name, self.complete(kind)) for kind, name in {**self.names, "scheme": self.scheme}.items()
        }
        env, run = (owner(**self.complete(section)) for section, owner in OPTIONS.items())
        return RunConfig(
            choices["algorithm"],
            choices["storage"],
            choices["actor"],
            choices["scheme"],
            env,
            run,
            self.values["anneal"],
            notes=self.notes,
        )

    def read(self, layer: Layer, problems: Problems) -> None:
        for section, node in layer.node.value.items():
            if section not in SECTIONS:
                self.read_bare(section, node, problems)
            elif not isinstance(node.value, dict):
                problems.add(f"expected a mapping, got {node.shown()}", path=section, line=node.line)
            elif section == "anneal":
                self.read_anneal(node, problems)
            elif section in OPTIONS:
                self.read_section(section, section, node.value, problems, layer)
            else:
                self.read_choice(section, node.value, problems, layer)

    def read_choice(self, section: str, items: Mapping[str, Node], problems: Problems, layer: Layer) -> None:
        """``{name, config}`` of a file, or the parameters themselves as ``--set`` paths name them."""
        direct = {key: item for key, item in items.items() if key not in ("name", "config")}
        inner = items.get("config", Node({}))
        if layer.source and direct:
            for key, item in direct.items():
                problems.add(f"'{key}' belongs under {section}.config", path=f"{section}.{key}", line=item.line)
            return
        if inner.text and inner.value in ("", "null", "~"):
            inner = Node({})
        if not isinstance(inner.value, dict):
            problems.add(f"expected a mapping, got {inner.shown()}", path=f"{section}.config", line=inner.line)
            return
        path = f"{section}.config" if layer.source else section
        self.read_section(section, path, {**inner.value, **direct}, problems, layer)

    def read_section(
        self, section: str, path: str, items: Mapping[str, Node], problems: Problems, layer: Layer
    ) -> None:
        parameters = self.parameters[section]
        known = {}
        for key, item in items.items():
            alias = ALIASES.get(key)
            if key not in parameters and alias is not None and alias.path.partition(".")[0] == section:
                self.read_alias(key, alias, item, problems)
            elif key not in parameters and layer.source.startswith("preset "):
                continue  # the preset speaks of another class than the one that was named
            else:
                known[key] = item
        owner = self.names.get(section, section)
        self.values[section] |= check_all(Node(known), parameters, owner, path, problems, complete=False)

    def read_bare(self, name: str, node: Node, problems: Problems) -> None:
        """A name without a section: an alias, or a parameter that one section alone has."""
        homes = [section for section, parameters in self.parameters.items() if name in parameters]
        if len(homes) == 1:
            self.values[homes[0]] |= check_all(
                Node({name: node}), self.parameters[homes[0]], homes[0], homes[0], problems, complete=False
            )
        elif name in ALIASES:
            self.read_alias(name, ALIASES[name], node, problems)
        else:
            known = [
                *SECTIONS,
                *ALIASES,
                *(f"{s}.{p}" for s, parameters in self.parameters.items() for p in parameters),
            ]
            problems.add(f"unknown name '{name}'", suggestion(name, known), line=node.line)

    def read_alias(self, name: str, alias: Alias, node: Node, problems: Problems) -> None:
        section, _, target = alias.path.partition(".")
        owner = self.names.get(section, section)
        if name == "batch_size" and target not in self.parameters[section]:
            batch = Parameter(name, PositiveInt, None, "")
            checked = check_all(Node({name: node}), {name: batch}, owner, section, problems, complete=False)
            self.values[section]["batch_size"] = checked.get(name)
            return
        if target == "lr" and target not in self.parameters[section]:
            targets = [key for key in self.parameters[section] if key.startswith("lr_")]
        else:
            targets = [target]
        for target in targets:
            values = check_all(Node({target: node}), self.parameters[section], owner, section, problems, complete=False)
            if alias.convert is not None and values.get(target) is not None:
                values[target] = alias.convert(values[target])
            self.values[section] |= values
        self.note(f"{name} is {' and '.join(f'{section}.{target}' for target in targets)} here{alias.note}.")

    def finish_batch_size(self) -> None:
        """``batch_size`` of an on-policy algorithm, once the size of a rollout is known."""
        batch_size = self.values["algorithm"].pop("batch_size", None)
        if batch_size is None:
            return
        rollout = self.values["storage"]["size"] * self.complete("env")["num_envs"]
        self.values["algorithm"]["num_mini_batch"] = max(rollout // batch_size, 1)
        self.note(
            f"batch_size is algorithm.num_mini_batch here: {rollout} rows in {max(rollout // batch_size, 1)} parts."
        )

    def read_anneal(self, node: Node, problems: Problems) -> None:
        """Algorithm parameters and the value that each reaches at the end."""
        parameters = {
            name: Parameter(name, float, 0.0, item.doc)
            for name, item in self.parameters["algorithm"].items()
            if item.type_name == "float"
        }
        owner = f"{self.names['algorithm']}'s annealing"
        self.values["anneal"] |= check_all(node, parameters, owner, "anneal", problems, complete=False)

    def missing(self) -> list[str]:
        """A sentence for each section whose required parameters nobody gave."""
        told = []
        for section, parameters in self.parameters.items():
            absent = [name for name, item in parameters.items() if item.required and name not in self.values[section]]
            if absent:
                paths = ", ".join(f"{section}.{name}" for name in absent)
                told.append(f"{self.names.get(section, section)} needs {paths}. Give it with --set {paths}=VALUE.")
        return told

    def complete(self, section: str) -> dict[str, Any]:
        defaults = {name: item.default for name, item in self.parameters[section].items() if not item.required}
        return defaults | self.values[section]

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _options(owner: type) -> dict[str, Parameter]:
    """The parameters of an options class; a mapping that may be left out is empty."""
    found = parameters_of(owner)
    if "kwargs" in found:
        kwargs = found["kwargs"]
        found["kwargs"] = Parameter(kwargs.name, kwargs.annotation, {}, kwargs.doc)
    return found
