"""From presets, a file, flags and overrides to one configuration, checked and complete.

A run has the sections algorithm, storage, actor and scheme (each ``{name, config}``), env, run and anneal. Each layer
is checked where it was written, so that a message can name its file and line; later layers win.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args

from pytorchrl.aliases import ALIASES, Alias
from pytorchrl.errors import ConfigError, suggestion
from pytorchrl.options import OPTIONS, SECTIONS, Choice, RunConfig
from pytorchrl.parameters import (
    MismatchError,
    Node,
    Parameter,
    PositiveInt,
    Problems,
    Range,
    check_all,
    convert,
    parameters_of,
)
from pytorchrl.presets import preset_for, presets_of
from pytorchrl.registry import COMPANIONS, KINDS, NAMES, canonical_name, load_class
from pytorchrl.strict_yaml import parse_yaml, read_yaml


@dataclass
class Layer:
    """One source of settings; the words of a command line or a call have no ``source``."""

    source: str
    node: Node
    is_preset: bool = False

    def __post_init__(self) -> None:
        self.problems = Problems(self.source)

    def section(self, name: str) -> dict[str, Node]:
        """The items of a section; empty if there are none."""
        node = self.node.value.get(name)
        return node.value if node is not None and isinstance(node.value, dict) else {}


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
    stated = {"algorithm.name": algorithm, "env.id": env}
    named = [(path, Node(value)) for path, value in stated.items() if value is not None]
    words = _words_layer([*named, *overrides])
    layers = [words] if config is None else [_file_layer(config), words]
    resolver = _Resolver(layers)
    used = None
    if config is None or preset is not None:
        used = resolver.put_preset_below(preset)
    resolved = replace(resolver.resolve(), preset=used)
    try:
        resolved.to_yaml()
    except ConfigError as error:  # refused now, before anything is written
        raise ConfigError(f"{config or 'env.kwargs'}: {error.what}") from None
    return resolved


def parse_override(text: str) -> tuple[str, Node]:
    """PATH=VALUE of the command line."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"--set {text}: expected PATH=VALUE", "For example: --set algorithm.gamma=0.98")
    node = parse_yaml(value, f"--set {path}") if value.strip() else Node("", text=True)
    return path.strip(), node


def _file_layer(config: str | Path) -> Layer:
    try:
        node = read_yaml(config)
    except FileNotFoundError:
        raise ConfigError(f"{config}: no such file") from None
    layer = Layer(str(config), node)
    if not isinstance(node.value, dict):
        layer.problems.add(f"expected a mapping of {', '.join(SECTIONS)}, got {node.shown()}", line=node.line)
    layer.problems.raise_any()
    return layer


def _words_layer(overrides: Sequence[tuple[str, Node]]) -> Layer:
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
        if last in place and isinstance(place[last].value, dict):
            if not isinstance(node.value, dict):
                raise ConfigError(f"{path}: expected a mapping, got {node.shown()}")
            place[last].value.update(node.value)
        else:
            place[last] = Node(dict(node.value)) if isinstance(node.value, dict) else node
    return Layer("", Node(root))


class _Resolver:
    """Checks each layer against the parameters of the named components and merges them."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.notes: list[str] = []
        self.values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        self.parameters: dict[str, dict[str, Parameter]] = {name: _options(owner) for name, owner in OPTIONS.items()}
        self.names: dict[str, str] = {}
        self.env_id = self.environment()
        self.component("algorithm", None)

    def resolve(self) -> RunConfig:
        actor, storage = COMPANIONS.get(self.names.get("algorithm", ""), (None, None))
        for kind, usual in {"actor": actor, "storage": storage, "scheme": "single"}.items():
            self.component(kind, usual)
        for layer in self.layers:
            self.read(layer)
        told = [problem for layer in self.layers for problem in layer.problems.told] or self.missing()
        if told:
            raise ConfigError("\n".join(told))
        self.finish_batch_size()
        sections: dict[str, Any] = {kind: Choice(name, self.complete(kind)) for kind, name in self.names.items()}
        sections |= {section: owner(**self.complete(section)) for section, owner in OPTIONS.items()}
        sections["env"].kwargs = _plain(sections["env"].kwargs, "env.kwargs")
        return RunConfig(**sections, anneal=self.values["anneal"], notes=self.notes)

    def last_word(self, section: str, key: str) -> tuple[Layer, Node] | None:
        """What the highest layer that speaks of ``section.key`` says, and which layer that is."""
        for layer in reversed(self.layers):
            if key in layer.section(section):
                return layer, layer.section(section)[key]
        return None

    def component(self, kind: str, usual: str | None) -> None:
        """Find the class of a kind and its parameters; an unknown name is a told problem."""
        found = self.last_word(kind, "name")
        if found is not None:
            layer, node = found
            try:
                self.names[kind] = canonical_name(kind, _name(node))
            except ConfigError as error:
                path = f"{kind}.name" if layer.source else ""
                layer.problems.add(error.what, error.fix, path, node.line)
                return
        elif usual is not None:
            self.names[kind] = usual
        if kind in self.names:
            known = load_class(kind, self.names[kind]).configurable() if kind in KINDS else {}
            self.parameters[kind] = known

    def environment(self) -> str | None:
        """The environment's id; one that a file names must be there, and must not import anything."""
        found = self.last_word("env", "id")
        if found is None:
            return None
        layer, node = found
        try:
            env_id = _name(node)
            if layer.source:
                check_env_id(env_id)
        except ConfigError as error:
            layer.problems.add(error.what, error.fix, "env.id", node.line)
            return None
        return env_id

    def put_preset_below(self, preset: str | None) -> str | None:
        """Lay the preset under everything else; its name."""
        algorithm = self.names.get("algorithm")
        if algorithm is None or self.env_id is None or preset == "none":
            return None
        known = presets_of(algorithm)
        if preset is not None and preset not in list(known):
            raise ConfigError(f"{algorithm} has no preset '{preset}'", suggestion(str(preset), [*known, "none"]))
        name = preset or preset_for(algorithm, self.env_id)
        if name is None:
            return None
        self.layers.insert(0, Layer(f"preset {algorithm.lower()}/{name}", known[name], is_preset=True))
        return name

    def read(self, layer: Layer) -> None:
        for section, node in layer.node.value.items():
            if section not in SECTIONS and layer.source:
                layer.problems.add(f"unknown section '{section}'", suggestion(section, SECTIONS), line=node.line)
            elif section not in SECTIONS:
                self.read_bare(section, node, layer.problems)
            elif node.text and node.value in ("", "null", "~"):
                continue
            elif not isinstance(node.value, dict):
                layer.problems.add(f"expected a mapping, got {node.shown()}", path=section, line=node.line)
            elif section == "anneal":
                self.read_anneal(node, layer.problems)
            elif section in OPTIONS:
                self.read_section(section, section, node.value, layer)
            else:
                self.read_choice(section, node.value, layer)

    def read_choice(self, section: str, items: Mapping[str, Node], layer: Layer) -> None:
        """``{name, config}`` of a file, or the parameters themselves as ``--set`` paths name them."""
        direct = {key: item for key, item in items.items() if key not in ("name", "config")}
        inner = items.get("config", Node({}))
        if layer.source and direct:
            for key, item in direct.items():
                layer.problems.add(f"'{key}' belongs under {section}.config", "", f"{section}.{key}", item.line)
            return
        if inner.text and inner.value in ("", "null", "~"):
            inner = Node({})
        if not isinstance(inner.value, dict):
            layer.problems.add(f"expected a mapping, got {inner.shown()}", "", f"{section}.config", inner.line)
            return
        path = f"{section}.config" if layer.source else section
        self.read_section(section, path, {**inner.value, **direct}, layer)

    def read_section(self, section: str, path: str, items: Mapping[str, Node], layer: Layer) -> None:
        parameters = self.parameters.get(section)
        if parameters is None:
            return  # its class has no known name, which was told
        known = {}
        for key, item in items.items():
            alias = ALIASES.get(key)
            if key not in parameters and alias is not None and alias.path.partition(".")[0] == section:
                self.read_alias(key, alias, item, layer.problems)
            elif key not in parameters and layer.is_preset:
                continue  # the preset speaks of another class than the one that was named
            else:
                known[key] = item
        owner = self.names.get(section, section)
        self.values[section] |= check_all(Node(known), parameters, owner, path, layer.problems, complete=False)

    def read_bare(self, name: str, node: Node, problems: Problems) -> None:
        """A name without a section: a parameter that one section alone has, or an alias."""
        homes = [section for section, parameters in self.parameters.items() if name in parameters]
        if len(homes) == 1:
            home = homes[0]
            owner = self.names.get(home, home)
            self.values[home] |= check_all(Node({name: node}), self.parameters[home], owner, home, problems, False)
        elif name in ALIASES:
            self.read_alias(name, ALIASES[name], node, problems)
        elif homes:
            problems.add(f"'{name}' could be {' or '.join(f'{home}.{name}' for home in homes)}")
        elif len(self.names) == len(NAMES):
            paths = [(section, key) for section, parameters in self.parameters.items() for key in parameters]
            near = suggestion(name, [*SECTIONS, *ALIASES, *map(".".join, paths), *(key for _, key in paths)])
            known = near if near.startswith("Did") else "`pytorchrl train ALGO --help` lists what there is."
            problems.add(f"unknown name '{name}'", known, line=node.line)

    def read_alias(self, name: str, alias: Alias, node: Node, problems: Problems) -> None:
        section, _, target = alias.path.partition(".")
        parameters = self.parameters.get(section)
        if parameters is None:
            return
        if name == "batch_size" and target not in parameters and "num_mini_batch" in parameters:
            batch = Parameter(name, PositiveInt, None, "")
            checked = check_all(Node({name: node}), {name: batch}, "", section, problems, complete=False)
            self.values[section][name] = checked.get(name)
            return
        rates = [key for key in parameters if key.startswith("lr_")] if target == "lr" else []
        targets = [target] if target in parameters else rates
        if not targets:
            owner = self.names.get(section, section)
            problems.add(f"'{name}' is {alias.path} here, and {owner} has none", path=name, line=node.line)
            return
        for target in targets:
            try:
                value = convert(node, parameters[target].annotation)
            except MismatchError as mismatch:
                problems.add(f"{mismatch}, got {(mismatch.got or node).shown()}", path=name, line=node.line)
                return
            self.values[section][target] = value if alias.convert is None else alias.convert(value)
        self.note(f"{name} is {' and '.join(f'{section}.{target}' for target in targets)} here{alias.note}.")

    def finish_batch_size(self) -> None:
        """``batch_size`` of an on-policy algorithm, once the size of a rollout is known."""
        batch_size = self.values["algorithm"].pop("batch_size", None)
        if batch_size is None:
            return
        rollout = self.values["storage"]["size"] * self.complete("env")["num_envs"]
        parts = max(rollout // batch_size, 1)
        self.values["algorithm"]["num_mini_batch"] = parts
        self.note(
            f"batch_size is algorithm.num_mini_batch here: {rollout:,} rows in {parts:,} part{'s' * (parts > 1)}."
        )

    def read_anneal(self, node: Node, problems: Problems) -> None:
        """Algorithm parameters and the value that each reaches at the end."""
        if "algorithm" not in self.names:
            return
        parameters = {
            name: replace(item, annotation=_closed(item.annotation))
            for name, item in self.parameters["algorithm"].items()
            if item.type_name == "float"
        }
        owner = f"{self.names['algorithm']}'s annealing"
        self.values["anneal"] |= check_all(node, parameters, owner, "anneal", problems, complete=False)

    def missing(self) -> list[str]:
        """What nobody named, or a sentence for each section whose required parameters nobody gave."""
        problems = Problems(next((layer.source for layer in self.layers if layer.source and not layer.is_preset), ""))
        named = {"algorithm": self.names.get("algorithm"), "environment": self.env_id}
        absent = [what for what, name in named.items() if name is None]
        if absent:
            problems.add(f"no {' and no '.join(absent)} is named", "For example: pytorchrl train ppo CartPole-v1")
            return problems.told
        for section, parameters in self.parameters.items():
            paths = [
                f"{section}.{name}"
                for name, item in parameters.items()
                if item.required and name not in self.values[section]
            ]
            if paths:
                give = " ".join(f"--set {path}=VALUE" for path in paths)
                problems.add(f"{self.names.get(section, section)} needs {' and '.join(paths)}", f"Give it with {give}.")
        return problems.told

    def complete(self, section: str) -> dict[str, Any]:
        defaults = {name: item.default for name, item in self.parameters[section].items() if not item.required}
        return defaults | self.values[section]

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _name(node: Node) -> str:
    if not isinstance(node.value, str):
        raise ConfigError(f"expected a name, got {node.shown()}")
    return node.value


def check_env_id(env_id: str) -> None:
    """``ConfigError`` if a file must not name this environment, or if there is none such."""
    from pytorchrl.envs.gymnasium import env_maker

    if ":" in env_id:
        raise ConfigError(f"'{env_id}' would import a module", "If you trust it, name the environment yourself.")
    env_maker(env_id)


def _closed(annotation: Any) -> Any:
    """A number's type with both ends of its range included: annealing stops short of the end."""
    base, *extras = get_args(annotation) or (annotation,)
    limits = next((extra for extra in extras if isinstance(extra, Range)), Range())
    return Annotated[base, Range(limits.low, limits.high)]


def _plain(value: Any, path: str) -> Any:
    """The value in plain Python types, which a file can hold; ``ConfigError`` if there are none for it."""
    if isinstance(value, dict):
        return {str(key): _plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, path) for item in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise ConfigError(
        f"{path}: a {type(value).__name__} cannot be kept in a run's configuration",
        "Bind it in a function that makes the environment, and train with that.",
    )


def _options(owner: type) -> dict[str, Parameter]:
    """The parameters of an options class; a mapping that may be left out is empty."""
    found = parameters_of(owner)
    if "kwargs" in found:
        found["kwargs"] = replace(found["kwargs"], default={})
    return found
