"""The reader of the documentation pages: its three renderings, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.freeze_pages import Facts, PageError, freeze, main, parse_parameters, pretty

BARE_WITH_SOURCE = """
Buffers of all kinds

class a.b.Ring(size, device, demo_dtypes={'Action': <class 'numpy.float32'>}, dir=None)[source]

Bases: a.base.Storage, a.base.Mixin

A ring. It is (much) more than a list.

capacity

How much fits in.

Type

int

Parameters
  • size (int) – Storage capacity along time axis.

after(batch, info)[source]

Steps after. :param batch: Data. :type batch: dict

Returns

info – info dict.

Return type

dict

classmethod create_factory(size, rho=0.1)[source]

Returns a function.

Return type

func

storage_tensors = ('Observation', 'Done')
fields = ('Reward',)
property used

How much is used.
"""

DASHES_WITH_SOURCE = """
Double Thing
- class a.b.Algo(device, lr=0.0001, addons=[])[source]
Bases:
a.base.AlgorithmDeep Q Learning algorithm class.
- Parameters
device (torch.device) – CPU or GPU.
done (torch.tensor) – 1.0 if current obs is the last one in the episode, else 0.0.
Examples
>>> create = Algo.create_factory( lr=1e-4, alpha=1.0)
- loss(data, per_weights=1, cpu=True)[source]
Calculate.
- Return type
torch.tensor
- classmethod create_factory(lr=0.001, addons=[])[source]
Returns a function.
- property gamma
Returns discount factor gamma.
"""

BARE = """
a.B module

class a.B.B(obs_dim: int, lam: float = 0.95)

Bases: object

classmethod from_config(config)

Return type

cls

schema = Map({'obs_dim': Int(), Optional("lam"): Float()})
store(buffer_dict)

Store.

a.B.cumsum(x, discount)

Sum.

Returns

output

a.C module

Default.

class a.C.C(obs_dim: int)

Bases: object
"""


def frozen(text: str) -> Facts:
    return freeze({"page.txt": text})


def test_bare_with_source() -> None:
    assert frozen(BARE_WITH_SOURCE)["classes"] == {
        "a.b.Ring": {
            "page": "page.txt",
            "bases": ["a.base.Storage", "a.base.Mixin"],
            "constructor": [
                {"name": "size"},
                {"name": "device"},
                {"name": "demo_dtypes", "default": {"Action": {"$dtype": "float32"}}},
                {"name": "dir", "default": None},
            ],
            "create_factory": [{"name": "size"}, {"name": "rho", "default": 0.1}],
            "attributes": {"storage_tensors": ["Observation", "Done"], "fields": ["Reward"]},
            "instance_attributes": {"capacity": "int"},
            "methods": {"after": {"kind": "method", "parameters": [{"name": "batch"}, {"name": "info"}]}},
            "properties": ["used"],
        }
    }


def test_dashes_with_source() -> None:
    data, weights, cpu = {"name": "data"}, {"name": "per_weights", "default": 1}, {"name": "cpu", "default": True}
    assert frozen(DASHES_WITH_SOURCE)["classes"] == {
        "a.b.Algo": {
            "page": "page.txt",
            "bases": ["a.base.Algorithm"],
            "constructor": [{"name": "device"}, {"name": "lr", "default": 0.0001}, {"name": "addons", "default": []}],
            "create_factory": [{"name": "lr", "default": 0.001}, {"name": "addons", "default": []}],
            "methods": {"loss": {"kind": "method", "parameters": [data, weights, cpu]}},
            "properties": ["gamma"],
        }
    }


def test_bare() -> None:
    assert frozen(BARE) == {
        "classes": {
            "a.B.B": {
                "page": "page.txt",
                "bases": ["object"],
                "constructor": [
                    {"name": "obs_dim", "annotation": "int"},
                    {"name": "lam", "annotation": "float", "default": 0.95},
                ],
                "methods": {
                    "from_config": {"kind": "classmethod", "parameters": [{"name": "config"}]},
                    "store": {"kind": "method", "parameters": [{"name": "buffer_dict"}]},
                },
                "schema": "Map({'obs_dim': Int(), Optional(\"lam\"): Float()})",
            },
            "a.C.C": {
                "page": "page.txt",
                "bases": ["object"],
                "constructor": [{"name": "obs_dim", "annotation": "int"}],
            },
        },
        "functions": {"a.B.cumsum": {"page": "page.txt", "parameters": [{"name": "x"}, {"name": "discount"}]}},
    }


@pytest.mark.parametrize(
    "line",
    [
        "class a.b.Broken(size,[source]",
        "class Undotted(size)[source]",
        "classmethod a.b.dotted(size)[source]",
        "staticmethod make(size)[source]",
        "static make(size)[source]",
        "create_factory(size)[source]",
        "after(batch)[source]",  # again
        "make(size)",  # no [source]
        "- make(size)[source]",  # a dash
        "make(size=<object object at 0x1>)[source]",
        "make(size=(1, 2))[source]",
        "make(*sizes)[source]",
        "make(size, *, other=1)[source]",
        "make(size) -> int[source]",
        "make[source]",
        "property used: int",
        "property used.up",
        "- property used",
        "size: int = 3",
        "size = 3",
        "names = ['Observation']",
        "names=('Observation',)",
        "Bases:",
        "Bases: a.b.C (generic)",
        "lonely",
        "class a.b.Baseless()[source]",
        "a.b.Ring(size)[source]",
    ],
)
def test_line_that_is_not_understood(line: str) -> None:
    with pytest.raises(PageError, match=r"page\.txt"):
        frozen(f"{BARE_WITH_SOURCE}\n{line}\n\nSome prose.\n")


@pytest.mark.parametrize("line", ["store(sample)[source]", "property used", "fields = ('Reward',)", "Bases: object"])
def test_member_outside_of_a_class(line: str) -> None:
    with pytest.raises(PageError, match=r"page\.txt:1: member outside"):
        frozen(line)


@pytest.mark.parametrize("base", ["a.base.Algorithm", "a.base.AlgorithmDQN is an algorithm.", "Algorithm of all"])
def test_base_that_cannot_be_told_from_the_prose(base: str) -> None:
    with pytest.raises(PageError, match=r"page\.txt:\d+: no base"):
        frozen(DASHES_WITH_SOURCE.replace("a.base.AlgorithmDeep Q Learning algorithm class.", base))


def test_instance_attribute_whose_type_is_cut_off() -> None:
    with pytest.raises(PageError, match="lone word"):
        frozen(f"{BARE_WITH_SOURCE}\nlonely\n\nSome prose.\n\nType\n")


def test_page_without_a_class_and_class_on_two_pages() -> None:
    with pytest.raises(PageError, match="no class"):
        frozen("Prose only.")
    with pytest.raises(PageError, match="another page too"):
        freeze({"1.txt": BARE, "2.txt": BARE})


def test_every_signature_with_source_becomes_a_fact() -> None:
    (ring,) = frozen(BARE_WITH_SOURCE)["classes"].values()
    assert BARE_WITH_SOURCE.count("[source]") == 2 + len(ring["methods"])  # the class and create_factory


def test_defaults_keep_their_type() -> None:
    defaults = [p["default"] for p in parse_parameters("a=1, b=1.0, c=True, d=-2, e='x', f={}")]
    assert repr(defaults) == "[1, 1.0, True, -2, 'x', {}]"


def test_pretty_is_json_of_short_lines_and_pages_are_read_in_any_order(tmp_path: Path) -> None:
    spec = tmp_path / "spec"
    spec.mkdir()
    (spec / "2.txt").write_text(BARE)
    (spec / "1.txt").write_text(DASHES_WITH_SOURCE)
    main(str(spec), str(tmp_path / "out.json"))
    text = (tmp_path / "out.json").read_text()
    facts = freeze({"1.txt": DASHES_WITH_SOURCE, "2.txt": BARE})
    assert json.loads(text) == facts
    assert text == pretty(facts) + "\n"
    assert text.count("\n") > 10
