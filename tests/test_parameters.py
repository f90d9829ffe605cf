"""How a value becomes what its parameter declares, from Python and from text."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, Optional

import numpy as np
import pytest
import torch

from pytorchrl.errors import ConfigError
from pytorchrl.parameters import (
    LARGEST_INT,
    MismatchError,
    Node,
    NonNegativeFloat,
    NonNegativeInt,
    Parameter,
    PositiveFloat,
    PositiveInt,
    Problems,
    Range,
    UnitFloat,
    check_all,
    convert,
    describe_type,
    parameters_of,
)


def text(value: Any) -> Node:
    """A value as a file holds it."""
    if isinstance(value, list):
        return Node([text(item) for item in value], 1)
    if isinstance(value, dict):
        return Node({key: text(item) for key, item in value.items()}, 1)
    return Node(value, 1, text=True)


FROM_TEXT = [
    (int, "8", 8),
    (int, "-8", -8),
    (int, "+8", 8),
    (int, "250_000", 250_000),
    (int, "007", 7),
    (float, "1e-3", 1e-3),
    (float, "3", 3.0),
    (float, "1_000.5", 1000.5),
    (float, "-.5", -0.5),
    (bool, "true", True),
    (bool, "No", False),
    (bool, "ON", True),
    (str, "true", "true"),
    (str, "", ""),
    (PositiveInt, "1", 1),
    (UnitFloat, "1", 1.0),
    (int | None, "null", None),
    (int | None, "~", None),
    (Optional[int], "None", None),  # noqa: UP045
    (int | None, "3", 3),
    (PositiveInt | None, "3", 3),
    (float | str, "auto", "auto"),
    (float | str, "3", 3.0),
    (Literal["relu", "tanh"], "tanh", "tanh"),
    (list[int], ["1", "2"], [1, 2]),
    (list[float] | None, ["1"], [1.0]),
    (tuple[int, ...], ["1", "2"], (1, 2)),
    (Sequence[str], ["a"], ["a"]),
    (dict[str, float], {"a": "1"}, {"a": 1.0}),
    (Mapping[str, list[int]], {"a": ["1"]}, {"a": [1]}),
    (Any, ["1", "0.5", "true", "null", "text"], [1, 0.5, True, None, "text"]),
    (Any, {"a": {"b": "1"}}, {"a": {"b": 1}}),
]

REFUSED_TEXT = [
    *((int, value) for value in ("3.5", "3.0", "a", "true", "", "1e3", "0x10", "1__0", "_1", "1_", " 1", "\u0661")),
    *((int, value) for value in ("nan", "9" * 5000, ["1"], {"a": "1"})),
    *((float, value) for value in ("a", "", "nan", "inf", "-inf", "1e999", "true", "1,5", "0x1p3", ["1"])),
    *((bool, value) for value in ("1", "0", "", "truth", ["true"])),
    *((str, value) for value in (["a"], {"a": "b"})),
    (PositiveInt, "0"),
    (PositiveInt, str(LARGEST_INT + 1)),
    (NonNegativeInt, "-1"),
    (PositiveFloat, "0"),
    (NonNegativeFloat, "-0.1"),
    (UnitFloat, "1.0001"),
    (int | None, "a"),
    (PositiveInt | None, "0"),
    (Literal["relu", "tanh"], "Tanh"),
    (Literal["relu", "tanh"], ["relu"]),
    (list[int], "1"),
    (list[int], ["1", "a"]),
    (dict[str, int], "a"),
    (dict[str, int], ["1"]),
    (Callable, "print"),
    (torch.Tensor, "1"),
    (torch.Tensor, ["1"]),
]


class TestText:
    @pytest.mark.parametrize(("annotation", "value", "expected"), FROM_TEXT)
    def test_is_read_as_the_type_says(self, annotation: Any, value: Any, expected: Any) -> None:
        converted = convert(text(value), annotation)
        assert converted == expected
        assert type(converted) is type(expected)

    @pytest.mark.parametrize(("annotation", "value"), REFUSED_TEXT)
    def test_is_refused_where_it_is_something_else(self, annotation: Any, value: Any) -> None:
        with pytest.raises(MismatchError, match=r"^expected "):
            convert(text(value), annotation)


class TestPython:
    @pytest.mark.parametrize(
        ("annotation", "value", "expected"),
        [
            (int, 8, 8),
            (int, np.int64(8), 8),
            (int, np.uint8(8), 8),
            (float, 8, 8.0),
            (float, np.float32(0.5), 0.5),
            (float, np.int32(2), 2.0),
            (float, Fraction(1, 2), 0.5),
            (bool, False, False),
            (str, "a", "a"),
            (int | None, None, None),
            (list[int], (1, 2), [1, 2]),
            (dict[str, int], {"a": 1}, {"a": 1}),
            (Callable, math.sin, math.sin),
            (Any, {"a": [1, None]}, {"a": [1, None]}),
            (Any, "1", "1"),
        ],
    )
    def test_values_of_the_type_pass(self, annotation: Any, value: Any, expected: Any) -> None:
        converted = convert(Node.of(value), annotation)
        assert converted == expected
        assert type(converted) is type(expected)

    @pytest.mark.parametrize(
        ("annotation", "value"),
        [
            *((int, value) for value in (3.5, 3.0, True, np.True_, "8", None, [1], np.array([1]), torch.tensor(1))),
            *((float, value) for value in (True, "0.5", None, math.nan, -math.inf, 10**400, 1j, np.array([1.0]))),
            *((bool, value) for value in (1, 0, "true", None)),
            *((str, value) for value in (1, None, b"a")),
            (int | None, "null"),
            (list[int], [1, "2"]),
            (list[int], "12"),
        ],
    )
    def test_values_of_another_type_do_not(self, annotation: Any, value: Any) -> None:
        with pytest.raises(MismatchError, match=r"^expected "):
            convert(Node.of(value), annotation)

    @pytest.mark.parametrize("value", [1, [1, {"a": (2, None)}], {"a": {"b": 0.5}}])
    def test_nodes_and_back(self, value: Any) -> None:
        def lists(item: Any) -> Any:
            if isinstance(item, dict):
                return {key: lists(inner) for key, inner in item.items()}
            return [lists(inner) for inner in item] if isinstance(item, (list, tuple)) else item

        assert Node.of(value).plain() == lists(value)


class TestRange:
    def test_ends(self) -> None:
        assert 0 in Range(0, 1)
        assert 1 in Range(0, 1)
        assert 0 not in Range(0, above=True)
        assert 1.1 not in Range(0, 1)
        assert -1e300 in Range(high=0)

    @pytest.mark.parametrize(
        ("annotation", "value", "message"),
        [
            (PositiveInt, 0, "expected a number of at least 1"),
            (PositiveInt, 2**60, "expected a number of at most 9.0072e+15"),
            (PositiveFloat, 0.0, "expected a number above 0"),
            (UnitFloat, 2.0, "expected a number between 0 and 1"),
            (Literal["relu", "tanh"], "Tanh", "expected one of relu, tanh (Did you mean 'tanh'?)"),
            (int | None, "x", "expected a whole number or null"),
            (list[PositiveInt], 1, "expected a list of int"),
            (Callable, 1, None),
        ],
    )
    def test_messages_say_what_would_do(self, annotation: Any, value: Any, message: str | None) -> None:
        if message is None:
            assert convert(Node.of(value), annotation) == value
            return
        with pytest.raises(MismatchError) as caught:
            convert(Node.of(value), annotation)
        assert str(caught.value) == message


class Base:
    """A base.

    Parameters
        size: rows that
            it holds.
        shared: told here.
    """


class Example(Base):
    """An example.

    Parameters
        gamma: discount.
        size: rows.

    Returns
        lam: not a parameter.
    """

    def __init__(
        self, device: str, size: PositiveInt, gamma: UnitFloat = 0.99, *, shared: Literal["a", "b"] | None = None
    ) -> None: ...


class TestSignatures:
    def test_are_read_with_types_defaults_and_prose(self) -> None:
        parameters = parameters_of(Example, injected=("device",), defaults={"gamma": 0.5})
        assert list(parameters) == ["size", "gamma", "shared"]
        assert parameters["size"] == Parameter("size", PositiveInt, parameters["size"].default, "rows.")
        assert [parameter.required for parameter in parameters.values()] == [True, False, False]
        assert [parameter.default for parameter in parameters.values()][1:] == [0.5, None]
        assert [parameter.doc for parameter in parameters.values()] == ["rows.", "discount.", "told here."]
        assert [parameter.type_name for parameter in parameters.values()] == ["int", "float", "a | b or null"]

    @pytest.mark.parametrize(
        ("annotation", "name"),
        [
            (int, "int"),
            (str, "text"),
            (Any, "anything"),
            (bool, "bool"),
            (Annotated[float, Range(0)], "float"),
            (int | None, "int or null"),
            (list[float], "a list of float"),
            (dict[str, list[int]], "a mapping of a list of int"),
            (torch.Tensor, "Tensor"),
        ],
    )
    def test_types_have_names(self, annotation: Any, name: str) -> None:
        assert describe_type(annotation) == name


class TestCheckAll:
    parameters = parameters_of(Example, injected=("device",))

    def told(self, config: Any, complete: bool = True) -> list[str]:
        problems = Problems("a.yaml")
        check_all(config, self.parameters, "Example", "storage", problems, complete)
        return problems.told

    def test_good_values(self) -> None:
        problems = Problems()
        values = check_all(text({"size": "3", "shared": "null"}), self.parameters, "Example", "", problems)
        problems.raise_any()
        assert values == {"size": 3, "shared": None}

    def test_every_problem_has_its_place(self) -> None:
        node = Node({"gama": Node("1", 2, True), "gamma": Node("x" * 99, 3, True), "lam": Node("1", 4, True)}, 1)
        assert self.told(node) == [
            "a.yaml line 2, storage.gama: Example has no parameter 'gama'. Did you mean 'gamma'?",
            f"a.yaml line 3, storage.gamma: expected a number, got '{'x' * 56}...",
            "a.yaml line 4, storage.lam: Example has no parameter 'lam'. Known: gamma, shared, size.",
            "a.yaml line 1, storage: Example needs 'size'",
        ]
        assert len(self.told(node, complete=False)) == 3

    def test_what_is_no_mapping(self) -> None:
        assert self.told(text(["1"])) == [
            "a.yaml line 1, storage: expected a mapping of Example's parameters, got a list"
        ]

    def test_all_are_raised_as_one(self) -> None:
        problems = Problems()
        problems.raise_any()
        problems.add("first", "Do this.")
        problems.add("second", path="a.b")
        with pytest.raises(ConfigError) as caught:
            problems.raise_any()
        assert str(caught.value) == "first. Do this.\na.b: second"
