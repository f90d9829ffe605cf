"""Every fact of the documentation pages, frozen by `tools/freeze_pages.py`, against the classes as they are."""

from __future__ import annotations

import builtins
import importlib
import inspect
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

Facts = dict[str, Any]

PAGES = json.loads((Path(__file__).parents[1] / "data" / "pages.json").read_text(encoding="utf-8"))
CLASSES: dict[str, Facts] = PAGES["classes"]
FUNCTIONS: dict[str, Facts] = PAGES["functions"]

# Documented classes that are not built yet. Building one means taking it off this list.
MISSING: list[str] = []


def find(path: str) -> Any:
    """What stands at an import path, None if nothing does; a module that breaks while it is imported raises."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module or "builtins"), name, None)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            return None
        raise


def plain(value: Any) -> Any:
    """A default as `pages.json` writes it; its repr tells 1, 1.0 and True apart, and [] from ()."""
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return {"$dtype": np.dtype(value).name}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    return value


def documented(parameters: list[Facts]) -> list[str]:
    return [f"{p['name']}={plain(p['default'])!r}" if "default" in p else p["name"] for p in parameters]


def check_parameters(function: Callable[..., Any], expected: list[Facts], drop: int = 0) -> None:
    """The page's parameters come first and can be given by position; others are keyword-only and optional."""
    parameters = list(inspect.signature(function).parameters.values())[drop:]
    shown = [
        p.name if p.default is p.empty else f"{p.name}={plain(p.default)!r}"
        for p in parameters
        if p.kind is not p.KEYWORD_ONLY
    ]
    assert shown == documented(expected)
    kinds = {p.name: p.kind for p in parameters}
    assert all(kinds[p["name"]] is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in expected), kinds
    assert [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty] == []


def check_bases(cls: type, bases: list[str]) -> None:
    """At most one class stands between a class and each documented base."""
    near = {*cls.__bases__, *(base for parent in cls.__bases__ for base in parent.__bases__)}
    for path in bases:
        base = find(path)
        assert base is not None, f"no {path}"
        assert base in near, f"{path} is not within two steps of {cls.__mro__}"


def check_constructor(cls: type, expected: list[Facts]) -> None:
    check_parameters(cls, expected)


def check_annotations(cls: type, expected: list[Facts]) -> None:
    """The types that the page gives; what `typing.Annotated` adds to one does not count."""
    hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    wanted = {p["name"]: getattr(builtins, p["annotation"]) for p in expected if "annotation" in p}
    assert {name: hints.get(name) for name in wanted} == wanted


def check_classmethod(cls: type, name: str) -> None:
    method = getattr(cls, name)
    assert inspect.ismethod(method), f"{name} is no classmethod"
    assert method.__self__ is cls


def check_create_factory(cls: type, expected: list[Facts]) -> None:
    check_classmethod(cls, "create_factory")
    check_parameters(cls.create_factory, expected)  # type: ignore[attr-defined]


def check_methods(cls: type, expected: dict[str, Facts]) -> None:
    assert [name for name in expected if not hasattr(cls, name)] == []
    for name, fact in expected.items():
        if fact["kind"] == "classmethod":
            check_classmethod(cls, name)
        else:
            assert inspect.isfunction(inspect.getattr_static(cls, name)), f"{name} is no method"
        check_parameters(getattr(cls, name), fact["parameters"], drop=fact["kind"] == "method")


def check_properties(cls: type, expected: list[str]) -> None:
    assert [name for name in expected if not isinstance(inspect.getattr_static(cls, name, None), property)] == []


def check_attributes(cls: type, expected: dict[str, list[str]]) -> None:
    assert {name: getattr(cls, name, None) for name in expected} == {
        name: tuple(fact) for name, fact in expected.items()
    }


def check_schema(cls: type, expected: str) -> None:
    assert repr(cls.schema) == expected  # type: ignore[attr-defined]


def check_instance_attributes(cls: type, expected: dict[str, str]) -> None:
    """A storage keeps what it was given; `algorithm` is kept as `algo`."""
    actor, algorithm = MagicMock(), MagicMock()
    instance = cls(size=8, device=torch.device("cpu"), actor=actor, algorithm=algorithm, envs=None)
    assert [name for name in expected if not hasattr(instance, name)] == []
    types = {"int": int, "torch.device": torch.device}
    given = {"Actor": actor, "Algorithm": algorithm}
    for name, kind in expected.items():
        value = getattr(instance, name)
        assert isinstance(value, types[kind]) if kind in types else value is given[kind], name


# One check for each kind of fact; "annotations" are a part of "constructor".
CHECKS: dict[str, Callable[[type, Any], None]] = {
    "bases": check_bases,
    "constructor": check_constructor,
    "annotations": check_annotations,
    "create_factory": check_create_factory,
    "methods": check_methods,
    "properties": check_properties,
    "attributes": check_attributes,
    "schema": check_schema,
    "instance_attributes": check_instance_attributes,
}


def facts_of(path: str) -> Facts:
    """A class' facts by kind."""
    facts = {kind: fact for kind, fact in CLASSES[path].items() if kind != "page"}
    if any("annotation" in parameter for parameter in facts["constructor"]):
        facts["annotations"] = facts["constructor"]
    return facts


def find_class(path: str) -> type:
    cls = find(path)
    assert inspect.isclass(cls), f"no class at {path}"
    return cls


BUILT = [path for path in CLASSES if path not in MISSING]


def test_missing_classes_are_listed() -> None:
    assert [path for path in CLASSES if find(path) is None] == sorted(MISSING)


@pytest.mark.parametrize("path", BUILT)
def test_importable(path: str) -> None:
    assert find_class(path).__name__ == path.rpartition(".")[2]


@pytest.mark.parametrize(("path", "kind"), [(path, kind) for path in BUILT for kind in facts_of(path)])
def test_fact(path: str, kind: str) -> None:
    CHECKS[kind](find_class(path), facts_of(path)[kind])


@pytest.mark.parametrize("path", FUNCTIONS)
def test_function(path: str) -> None:
    function = find(path)
    assert inspect.isfunction(function), f"no function at {path}"
    check_parameters(function, FUNCTIONS[path]["parameters"])


def test_every_kind_of_fact_has_a_check() -> None:
    assert {kind for path in CLASSES for kind in facts_of(path)} == set(CHECKS)
