"""Component: a class that declares its parameters once, as its constructor."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

import strictyaml
from typing_extensions import Self

from pytorchrl.errors import ConfigError
from pytorchrl.parameters import Node, Parameter, Problems, check_all, parameters_of
from pytorchrl.strict_yaml import read_yaml

# Given to a factory where the component is built, never chosen by a user.
INJECTED = ("device", "actor", "algorithm", "envs")


@dataclass(frozen=True)
class Factory:
    """A component with its parameters bound: call it where the component is needed. It can be pickled."""

    component: type[Component]
    chosen: Mapping[str, Any]

    def __call__(self, *parts: Any, **named: Any) -> Any:
        given = dict(zip(self.component.factory_arguments, parts, strict=False))
        absent = dict.fromkeys(set(self.component.factory_arguments) - set(given) - set(named))
        return self.component(**given, **named, **absent, **_unshared(self.chosen))


class _SchemaProperty:
    """``Class.schema``: the strictyaml schema of the class' parameters."""

    def __get__(self, instance: object, owner: type[Component]) -> strictyaml.Map:
        return strictyaml.Map(
            {
                (name if parameter.required else strictyaml.Optional(name)): _validator(parameter.annotation)
                for name, parameter in owner.configurable().items()
            }
        )


def _validator(annotation: Any) -> Any:
    """The strictyaml validator of a type; what has no type of its own in YAML is text."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _validator(arguments[0])
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return strictyaml.NullNone() | _validator(next(choice for choice in arguments if choice is not type(None)))
    if origin is list:
        return strictyaml.Seq(_validator(arguments[0]))
    if origin is dict:
        return strictyaml.MapPattern(strictyaml.Str(), _validator(arguments[1]))
    scalars = {int: strictyaml.Int, float: strictyaml.Float, bool: strictyaml.Bool}
    return scalars.get(annotation, strictyaml.Str)()


class Component:
    """Base of everything that a user configures.

    The constructor is the only place where a subclass writes its parameters: names, types, ranges, defaults. From it
    come ``create_factory`` (with ``factory_defaults`` where the factory's table differs), the strict YAML ``schema``,
    ``instantiate_from_config``, the command line's ``--set`` paths and their help.
    """

    factory_defaults: ClassVar[dict[str, Any]] = {}
    # The order of the factory's own parameters, where it is not the constructor's.
    factory_order: ClassVar[tuple[str, ...]] = ()
    # What a factory of this role is called with, in this order.
    factory_arguments: ClassVar[tuple[str, ...]] = ()
    # Parameters that the constructor builds from, and that cannot be changed afterwards.
    fixed_parameters: ClassVar[tuple[str, ...]] = ()
    # Parameters that come from what the component is built around, never from a configuration.
    supplied_parameters: ClassVar[tuple[str, ...]] = ()
    schema: ClassVar[Any] = _SchemaProperty()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)

        def create_factory(owner: type[Component], *args: Any, **chosen: Any) -> Any:
            names = list(inspect.signature(owner.create_factory).parameters)
            if len(args) > len(names):
                raise TypeError(f"{owner.__name__}.create_factory takes {len(names)} arguments, got {len(args)}")
            named = dict(zip(names, args, strict=False))
            twice = [name for name in named if name in chosen]
            if twice:
                raise TypeError(f"{owner.__name__}.create_factory got '{twice[0]}' twice")
            return owner._factory(**named, **chosen)

        # Editors and `inspect` see the parameters and defaults of the factory's own table.
        parameters = [inspect.Parameter("cls", inspect.Parameter.POSITIONAL_ONLY)]
        declared = inspect.signature(cls).parameters
        ordered = [name for name in cls.factory_order if name in declared]
        for name in dict.fromkeys([*ordered, *declared]):
            parameter = declared[name]
            if name not in INJECTED:
                parameters.append(parameter.replace(default=cls.factory_defaults.get(name, parameter.default)))
        create_factory.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        create_factory.__doc__ = f"Returns a function that creates {cls.__name__} instances; a wrong name fails here."
        cls.create_factory = classmethod(create_factory)  # type: ignore[assignment]

    @classmethod
    def hyperparameters(cls) -> dict[str, Parameter]:
        """What a user may choose: the constructor's parameters less the injected ones, with the factory's defaults."""
        return parameters_of(cls, INJECTED, cls.factory_defaults)

    @classmethod
    def configurable(cls) -> dict[str, Parameter]:
        """Those of the hyper-parameters that a configuration may hold."""
        return {name: item for name, item in cls.hyperparameters().items() if name not in cls.supplied_parameters}

    @classmethod
    def create_factory(cls, *args: Any, **chosen: Any) -> Any:
        """Bind parameters; replaced in every subclass by the same function under its own signature."""
        return cls._factory(*args, **chosen)

    @classmethod
    def _factory(cls, **chosen: Any) -> Any:
        """What ``create_factory`` returns, once the chosen parameters are checked."""
        return Factory(cls, cls.complete(chosen))

    @classmethod
    def complete(cls, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The chosen parameters, checked, over the factory's defaults."""
        return cls._checked(Node.of(chosen), Problems())

    @classmethod
    def _checked(cls, node: Node, problems: Problems) -> dict[str, Any]:
        parameters = cls.hyperparameters()
        values = check_all(node, parameters, cls.__name__, "", problems)
        problems.raise_any()
        return _unshared({name: parameter.default for name, parameter in parameters.items()}) | values

    @classmethod
    def instantiate_from_config_dict(cls, config: Mapping[str, Any]) -> Self:
        """An instance from exactly the keys of ``schema``; ``ConfigError`` (a ``ValueError``) says what is wrong."""
        return cls(**cls._checked(Node.of(config), Problems()))

    @classmethod
    def instantiate_from_config(cls, config_file_location: str | Path) -> Self:
        """An instance from a YAML file: the parameters, flat or as ``{name: Class, config: {…}}``."""
        source = str(config_file_location)
        node = _unwrapped(read_yaml(config_file_location), cls.__name__, source)
        values = cls._checked(node, Problems(source))
        try:
            return cls(**values)
        except ValueError as error:
            raise ConfigError(f"{source}: {error}") from error

    def update_parameter(self, name: str, value: Any) -> None:
        """Change one documented parameter, at once."""
        if name in self.fixed_parameters:
            raise ConfigError(f"{name}: fixed once a {type(self).__name__} is built", "Build a new one.")
        problems = Problems()
        checked = check_all(Node.of({name: value}), self.hyperparameters(), type(self).__name__, "", problems, False)
        problems.raise_any()
        self._set_parameter(name, checked[name])

    def _set_parameter(self, name: str, value: Any) -> None:
        """Put a checked value into effect."""
        setattr(self, name, value)


def _unshared(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with lists and mappings copied: neither a default nor a bound value is shared between instances."""
    return {name: copy(value) if isinstance(value, (list, dict)) else value for name, value in values.items()}


def _unwrapped(node: Node, name: str, source: str) -> Node:
    """The parameters inside ``{name: Class, config: {…}}``, or the node itself if it is flat."""
    if not isinstance(node.value, dict) or set(node.value) != {"name", "config"}:
        return node
    stated = node.value["name"]
    if stated.value != name:
        raise ConfigError(f"{source} line {stated.line}, name: expected {name}, got {stated.shown()}")
    inner = node.value["config"]
    return Node({}, inner.line) if inner.value in ("", "null", "~") else inner
