"""Component: one signature gives factory, schema, checks and updates."""

import inspect
import pickle
from pathlib import Path
from typing import Any, Literal

import pytest
import strictyaml

from pytorchrl.component import Component, Factory
from pytorchrl.errors import ConfigError
from pytorchrl.parameters import NonNegativeFloat, PositiveInt, UnitFloat


class Storage(Component):
    """A component with everything that a signature can say.

    Parameters
        size: rows.
        gamma: discount.
        layers: widths.
        kind: which.
        extra: by name.
    """

    factory_defaults = {"gamma": 0.5}  # noqa: RUF012
    factory_arguments = ("device", "actor")
    fixed_parameters = ("size",)

    def __init__(
        self,
        device: Any,
        actor: Any,
        size: PositiveInt,
        gamma: UnitFloat = 0.99,
        layers: list[int] | None = None,
        kind: Literal["a", "b"] = "a",
        extra: dict[str, float] | None = None,
    ) -> None:
        self.device, self.actor, self.size, self.gamma, self.layers = device, actor, size, gamma, layers
        self.kind, self.extra = kind, extra


class Plain(Component):
    def __init__(
        self,
        count: PositiveInt,
        ratio: UnitFloat = 0.5,
        flag: bool = False,
        names: list[str] = [],  # noqa: B006
        eps: NonNegativeFloat = 0,
    ) -> None:
        if count == 13:
            raise ValueError("thirteen")
        self.count, self.ratio, self.flag, self.names, self.eps = count, ratio, flag, names, eps


class Derived(Storage):
    """Inherits the constructor, with its own table."""

    factory_defaults = {"gamma": 0.1, "kind": "b"}  # noqa: RUF012


class TestFactory:
    def test_binds_now_and_builds_later(self) -> None:
        factory = Storage.create_factory(size=3, kind="b")
        storage = factory("cpu", "actor")
        assert isinstance(factory, Factory)
        assert vars(storage) == {
            "device": "cpu",
            "actor": "actor",
            "size": 3,
            "gamma": 0.5,
            "layers": None,
            "kind": "b",
            "extra": None,
        }

    def test_constructor_and_factory_have_their_own_defaults(self) -> None:
        assert Storage("cpu", None, 3).gamma == 0.99
        assert Storage.create_factory(3)("cpu").gamma == 0.5
        assert Derived("cpu", None, 3).gamma == 0.99
        assert (Derived.create_factory(3)("cpu").gamma, Derived.create_factory(3)("cpu").kind) == (0.1, "b")

    def test_parts_may_be_named_or_left_out(self) -> None:
        factory = Storage.create_factory(3)
        assert factory(actor="actor", device="cpu").actor == "actor"
        assert factory("cpu").actor is None

    @pytest.mark.parametrize(
        ("args", "chosen", "message"),
        [
            ((), {"siz": 3}, "Storage has no parameter 'siz'. Did you mean 'size'?"),
            ((), {"size": 0}, "size: expected a number of at least 1, got 0"),
            ((), {}, "Storage needs 'size'"),
            ((3, 2.0), {}, "gamma: expected a number between 0 and 1, got 2.0"),
            ((3,), {"kind": "c"}, "kind: expected one of a, b"),
            ((3,), {"layers": [1, "2"]}, "layers: expected a whole number or null, got a list"),
            ((3,), {"device": "cpu"}, "Storage has no parameter 'device'"),
        ],
    )
    def test_what_is_wrong_fails_at_once(self, args: Any, chosen: Any, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Storage.create_factory(*args, **chosen)
        assert message in str(caught.value)

    def test_arguments_are_counted_as_python_counts_them(self) -> None:
        with pytest.raises(TypeError, match="takes 5 arguments, got 6"):
            Storage.create_factory(1, 1, None, "a", None, 6)
        with pytest.raises(TypeError, match="got 'size' twice"):
            Storage.create_factory(3, size=3)

    def test_can_be_pickled(self) -> None:
        assert pickle.loads(pickle.dumps(Storage.create_factory(size=3)))("cpu").size == 3

    @pytest.mark.parametrize(("cls", "gamma", "kind"), [(Storage, 0.5, "a"), (Derived, 0.1, "b")])
    def test_signature_shows_the_factorys_table(self, cls: type[Component], gamma: float, kind: str) -> None:
        parameters = inspect.signature(cls.create_factory).parameters
        assert list(parameters) == ["size", "gamma", "layers", "kind", "extra"]
        assert parameters["size"].default is inspect.Parameter.empty
        assert (parameters["gamma"].default, parameters["kind"].default) == (gamma, kind)
        assert cls.__name__ in (cls.create_factory.__doc__ or "")


class TestSchema:
    def test_is_read_from_the_signature(self) -> None:
        assert repr(Plain.schema) == (
            'Map({\'count\': Int(), Optional("ratio"): Float(), Optional("flag"): Bool(),'
            ' Optional("names"): Seq(Str()), Optional("eps"): Float()})'
        )
        assert repr(Storage.schema) == (
            'Map({\'size\': Int(), Optional("gamma"): Float(), Optional("layers"): NullNone() | Seq(Int()),'
            ' Optional("kind"): Str(), Optional("extra"): NullNone() | MapPattern(Str(), Float())})'
        )

    def test_works_with_strictyaml(self) -> None:
        loaded = strictyaml.load("count: 3\nflag: yes\nnames:\n- a\n", Plain.schema)
        assert loaded.data == {"count": 3, "flag": True, "names": ["a"]}
        assert vars(Plain.instantiate_from_config_dict(loaded.data))["names"] == ["a"]

    def test_hyperparameters_have_prose(self) -> None:
        found = Storage.hyperparameters()
        assert {name: parameter.doc for name, parameter in found.items()} == {
            "size": "rows.",
            "gamma": "discount.",
            "layers": "widths.",
            "kind": "which.",
            "extra": "by name.",
        }


class TestConfig:
    def test_dict(self) -> None:
        plain = Plain.instantiate_from_config_dict({"count": 3, "names": ("a", "b"), "ratio": 1})
        assert vars(plain) == {"count": 3, "ratio": 1.0, "flag": False, "names": ["a", "b"], "eps": 0}

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({}, "Plain needs 'count'"),
            (None, "expected a mapping of Plain's parameters, got None"),
            ([], "expected a mapping of Plain's parameters, got a list"),
            ({"count": 3.5}, "count: expected a whole number, got 3.5"),
            ({"count": True}, "count: expected a whole number, got True"),
            ({"count": "3"}, "count: expected a whole number, got '3'"),
            ({"count": 1, "ratio": float("nan")}, "ratio: expected a finite number, got nan"),
            ({"count": 1, "flag": 1}, "flag: expected true or false, got 1"),
            ({"count": 1, "name": ["a"]}, "name: Plain has no parameter 'name'. Did you mean 'names'?"),
            ({1: 2}, "1: Plain has no parameter '1'"),
        ],
    )
    def test_dict_refused(self, config: Any, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Plain.instantiate_from_config_dict(config)
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        "text",
        [
            "count: 3\nflag: on\nnames: [a, 1]\n",
            "name: Plain\nconfig:\n  count: 3\n  flag: true\n  names:\n  - a\n  - 1\n",
        ],
    )
    def test_file(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "plain.yaml"
        path.write_text(text, encoding="utf-8")
        plain = Plain.instantiate_from_config(path)
        assert (plain.count, plain.flag, plain.names) == (3, True, ["a", "1"])

    def test_a_constructors_error_is_chained(self, tmp_path: Path) -> None:
        path = tmp_path / "plain.yaml"
        path.write_text("count: 13\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"plain\.yaml: thirteen") as caught:
            Plain.instantiate_from_config(path)
        assert isinstance(caught.value.__cause__, ValueError)
        assert str(caught.value.__cause__) == "thirteen"

    def test_neither_defaults_nor_bound_values_are_shared(self) -> None:
        bound = ["x"]
        for build, start in (
            (lambda: Plain.instantiate_from_config_dict({"count": 1}), []),
            (Plain.create_factory(1), []),
            (Plain.create_factory(1, names=bound), ["x"]),
        ):
            build().names.append("a")
            assert build().names == start
        assert bound == ["x"]


class TestUpdate:
    def test_is_checked_and_takes_effect(self) -> None:
        plain = Plain(3)
        plain.update_parameter("ratio", 1)
        plain.update_parameter("names", ["a"])
        assert (plain.ratio, plain.names) == (1.0, ["a"])

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("ratio", 2, "ratio: expected a number between 0 and 1, got 2"),
            ("rat", 1, "rat: Storage has no parameter 'rat'"),
            ("gama", 1, "Did you mean 'gamma'?"),
            ("size", 4, "size: fixed once a Storage is built"),
            ("device", "cpu", "device: Storage has no parameter 'device'"),
        ],
    )
    def test_refused(self, name: str, value: Any, message: str) -> None:
        component = Plain(3) if name == "ratio" else Storage("cpu", None, 3)
        before = dict(vars(component))
        with pytest.raises(ConfigError) as caught:
            component.update_parameter(name, value)
        assert message in str(caught.value)
        assert vars(component) == before
