"""What a signature declares: each parameter's name, type, range, default and line of prose, and how a value is checked.

Components, the sections of a run's configuration and the command line all read parameters from here.
"""

from __future__ import annotations

import inspect
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

from pytorchrl.errors import ConfigError, suggestion


@dataclass(frozen=True)
class Range:
    """The closed interval that a number must lie in; ``above`` excludes the lower end."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return (value > self.low if self.above else value >= self.low) and value <= self.high

    def violated_by(self, value: float) -> str:
        """Which numbers would do instead of ``value``."""
        if math.isinf(self.high) or self.high == LARGEST_INT:
            bound = f"above {self.low:g}" if self.above else f"of at least {self.low:g}"
            return bound if value <= self.low else f"of at most {self.high:g}"
        return f"between {self.low:g} and {self.high:g}"


# No tensor has more elements than this; a larger count is a slip of the keyboard.
LARGEST_INT = 2**53
# What every generator of random numbers takes.
LARGEST_SEED = 2**63 - 1

PositiveInt = Annotated[int, Range(1, LARGEST_INT)]
NonNegativeInt = Annotated[int, Range(0, LARGEST_INT)]
PositiveFloat = Annotated[float, Range(0, above=True)]
NonNegativeFloat = Annotated[float, Range(0)]
UnitFloat = Annotated[float, Range(0, 1)]

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """One declared parameter."""

    name: str
    annotation: Any
    default: Any
    doc: str

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def type_name(self) -> str:
        return describe_type(self.annotation)


def parameters_of(
    owner: type, injected: Sequence[str] = (), defaults: Mapping[str, Any] | None = None
) -> dict[str, Parameter]:
    """The parameters of a class' constructor, less the ``injected`` ones, with other ``defaults`` where given."""
    hints = typing.get_type_hints(owner.__init__, include_extras=True)  # type: ignore[misc]
    docs = _documented(owner)
    found = {}
    for name, parameter in inspect.signature(owner).parameters.items():
        if name in injected:
            continue
        default = (defaults or {}).get(name, parameter.default)
        found[name] = Parameter(name, hints.get(name, Any), default, docs.get(name, ""))
    return found


def _documented(owner: type) -> dict[str, str]:
    """The prose of each ``name: text`` line in the Parameters sections of a class and its bases."""
    docs: dict[str, str] = {}
    for cls in reversed(owner.__mro__):
        section = (inspect.cleandoc(cls.__doc__ or "") + "\n").partition("Parameters\n")[2]
        name = ""
        for line in section.splitlines():
            entry = re.match(r"    (\w+): (.*)", line)
            if entry:
                name = entry[1]
                docs[name] = entry[2].strip()
            elif name and line.startswith("     "):
                docs[name] += " " + line.strip()
            else:
                break
    return docs


@dataclass(frozen=True)
class Node:
    """A value on its way into a parameter, and where it stands.

    ``value`` is a scalar, a list of nodes or a dict of nodes. A scalar of a file or of the command line is ``text``
    and is read as its parameter's type says, or, where any type would do, as what it looks like unless it is
    ``quoted``; a scalar from Python must already have that type.
    """

    value: Any
    line: int | None = None
    text: bool = False
    quoted: bool = False

    @classmethod
    def of(cls, value: Any) -> Node:
        """The node of a plain Python value; other mappings than dicts (a Dict space) are values of their own."""
        if isinstance(value, dict):
            return cls({key: cls.of(item) for key, item in value.items()})
        if isinstance(value, (list, tuple)):
            return cls([cls.of(item) for item in value])
        return cls(value)

    def plain(self) -> Any:
        """The Python value again."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value

    def shown(self) -> str:
        """The value as a message quotes it."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, list):
            return "a list"
        text = repr(self.value)
        return text if len(text) <= 60 else text[:57] + "..."


class Problems:
    """Everything that is wrong with one source, collected and told at once."""

    def __init__(self, source: str = "") -> None:
        self.source = source
        self.told: list[str] = []

    def add(self, what: str, fix: str = "", path: str = "", line: int | None = None) -> None:
        place = self.source + (f" line {line}" if line is not None and self.source else "")
        where = ", ".join(part for part in (place, path) if part)
        sentence = f"{where}: {what}" if where else what
        self.told.append(f"{sentence}. {fix}".strip() if fix else sentence)

    def raise_any(self) -> None:
        """One ``ConfigError`` with all of them, if there are any."""
        if self.told:
            raise ConfigError("\n".join(self.told))


class MismatchError(Exception):
    """What a value should have been, and which one if it is part of another; ``check`` makes a sentence of it."""

    def __init__(self, expected: str, got: Node | None = None) -> None:
        super().__init__(expected)
        self.got = got


def check(node: Node, parameter: Parameter, path: str, problems: Problems) -> Any:
    """The node's value as the parameter's type, or a told problem."""
    try:
        return convert(node, parameter.annotation)
    except MismatchError as mismatch:
        got = mismatch.got or node
        problems.add(f"{mismatch}, got {got.shown()}", path=path, line=got.line)
        return None


def check_all(
    node: Node, parameters: Mapping[str, Parameter], owner: str, path: str, problems: Problems, complete: bool = True
) -> dict[str, Any]:
    """A mapping's values by parameter; unknown names and, if ``complete``, missing ones are told."""
    if not isinstance(node.value, dict):
        problems.add(f"expected a mapping of {owner}'s parameters, got {node.shown()}", path=path, line=node.line)
        return {}
    values = {}
    for name, item in node.value.items():
        here = f"{path}.{name}" if path else str(name)
        if name not in parameters:
            problems.add(f"{owner} has no parameter '{name}'", suggestion(str(name), parameters), here, item.line)
        else:
            values[name] = check(item, parameters[name], here, problems)
    missing = [name for name, parameter in parameters.items() if parameter.required and name not in node.value]
    if complete and missing:
        problems.add(f"{owner} needs {', '.join(repr(name) for name in missing)}", path=path, line=node.line)
    return values


def convert(node: Node, annotation: Any) -> Any:
    """The node's value as ``annotation`` says; ``MismatchError`` names what was expected."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        value = convert(node, arguments[0])
        limits = next((extra for extra in arguments[1:] if isinstance(extra, Range)), None)
        if limits is not None and value is not None and value not in limits:
            raise MismatchError(f"expected a number {limits.violated_by(value)}")
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(node, arguments)
    if origin is Literal:
        if node.value in arguments:
            return node.value
        near = suggestion(str(node.value), [str(choice) for choice in arguments])
        hint = f" ({near})" if near.startswith("Did") else ""  # else it would list them all again
        raise MismatchError(f"expected one of {', '.join(map(str, arguments))}{hint}")
    if origin in (list, tuple, Sequence):
        if not isinstance(node.value, list):
            raise MismatchError(f"expected {describe_type(annotation)}")
        items = [_convert_part(item, arguments[0]) for item in node.value]
        return tuple(items) if origin is tuple else items
    if origin in (dict, Mapping):
        if not isinstance(node.value, dict):
            raise MismatchError(f"expected {describe_type(annotation)}")
        return {key: _convert_part(item, arguments[1]) for key, item in node.value.items()}
    if annotation in _SCALARS:
        return _SCALARS[annotation](node)
    if annotation is Any:
        return _natural(node)
    if node.text or isinstance(node.value, (dict, list)):
        raise MismatchError(f"expected {describe_type(annotation)}, which can only be given from Python")
    return node.value


def _convert_part(node: Node, annotation: Any) -> Any:
    try:
        return convert(node, annotation)
    except MismatchError as mismatch:
        raise MismatchError(str(mismatch), mismatch.got or node) from None


def _natural(node: Node) -> Any:
    """A value whose type nobody declared: text reads as null, a bool or a number if it looks like one."""
    if isinstance(node.value, dict):
        return {key: _natural(item) for key, item in node.value.items()}
    if isinstance(node.value, list):
        return [_natural(item) for item in node.value]
    if not node.text or node.quoted:
        return node.value
    for read in (_int, _float, _bool):
        try:
            return read(node)
        except MismatchError:
            continue
    return None if node.value in ("null", "~") else node.value


def _convert_union(node: Node, choices: Sequence[Any]) -> Any:
    """The first choice that fits, None first: 'null' stands for it in a file."""
    if type(None) in choices and (node.value is None or (node.text and node.value.lower() in ("null", "none", "~"))):
        return None
    expected = []
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return convert(node, choice)
        except MismatchError as mismatch:
            expected.append(str(mismatch))
    if type(None) in choices:
        expected.append("null")
    raise MismatchError(" or ".join([expected[0], *(part.removeprefix("expected ") for part in expected[1:])]))


def _int(node: Node) -> int:
    """A whole number of Python's or numpy's; a bool is not a number here."""
    value = node.value
    if node.text and isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+(_[0-9]+)*", value) and len(value) <= 40:
        return int(value)
    if not node.text and not isinstance(value, bool) and isinstance(value, numbers.Integral):
        return int(value)
    raise MismatchError("expected a whole number")


def _float(node: Node) -> float:
    value = node.value
    if node.text and isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            raise MismatchError("expected a number") from None
    elif not node.text and not isinstance(value, bool) and isinstance(value, numbers.Real):
        try:
            number = float(value)
        except OverflowError:
            raise MismatchError("expected a number that a float can hold") from None
    else:
        raise MismatchError("expected a number")
    if not math.isfinite(number):
        raise MismatchError("expected a finite number")
    return number


_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _bool(node: Node) -> bool:
    if isinstance(node.value, bool):
        return node.value
    if node.text and isinstance(node.value, str) and node.value.lower() in _WORDS:
        return _WORDS[node.value.lower()]
    raise MismatchError("expected true or false")


def _str(node: Node) -> str:
    if isinstance(node.value, str):
        return node.value
    raise MismatchError("expected text")


_SCALARS: dict[Any, Callable[[Node], Any]] = {int: _int, float: _float, bool: _bool, str: _str}


def describe_type(annotation: Any) -> str:
    """A type as help texts and messages name it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return describe_type(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join("null" if choice is type(None) else describe_type(choice) for choice in arguments)
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (list, tuple, Sequence):
        return f"a list of {describe_type(arguments[0])}"
    if origin in (dict, Mapping):
        return f"a mapping of {describe_type(arguments[1])}"
    names = {int: "int", float: "float", bool: "bool", str: "text", Any: "anything"}
    return names.get(annotation) or str(getattr(annotation, "__name__", annotation))
