"""Freeze the facts of the documentation pages as JSON: `python tools/freeze_pages.py SPEC_DIR OUT.json`.

The pages are the text of rendered Sphinx in three renderings: bare facts, facts with `[source]`, and with `- ` before
them too. Prose is passed over; a line that looks like a fact and is not understood raises `PageError`, so that no fact
is lost silently.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

Facts = dict[str, Any]

DTYPE = "$dtype"  # <class 'numpy.float32'> becomes {"$dtype": "float32"}
SECTIONS = {"Parameters", "Returns", "Return type", "Yields", "Raises", "Type", "Examples"}

SIGNATURE = re.compile(
    r"(?:(?P<kind>class|classmethod) )?(?P<path>[\w.]+)\((?P<parameters>.*)\)(?P<source>\[source\])?"
)
PROPERTY = re.compile(r"property (?P<name>\w+)")
ATTRIBUTE = re.compile(r"(?P<name>\w+) = (?P<value>.+)")
WORD = re.compile(r"[A-Za-z_]\w*")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
# "….base.AlgorithmDeep Q Learning algorithm class.": the base and the docstring's first, capitalized word run together.
GLUED_BASE = re.compile(r"(?P<base>(?:[a-z_]\w*\.)+[A-Z]\w*?)[A-Z][a-z]+ .+")
FACT_LIKE = re.compile(
    r"- |.*\[source\]|[\w.]+(?:\(|:|\s*=)"
    r"|(?:class|classmethod|staticmethod|static|property|cached_property|abstract|abstractmethod|async|final|exception)\b"
)


class PageError(ValueError):
    """A line of a page that looks like a fact and is not understood."""


def json_value(value: Any) -> Any:
    """`value` if JSON keeps it as it is; anything else raises, so that nothing changes on its way."""
    if isinstance(value, list):
        return [json_value(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: json_value(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise PageError(f"no JSON for {value!r}")


def parse_parameters(text: str) -> list[Facts]:
    """`a: int, b=0.5` -> `[{"name": "a", "annotation": "int"}, {"name": "b", "default": 0.5}]`."""
    text = re.sub(r"<class 'numpy\.(\w+)'>", rf"{{'{DTYPE}': '\1'}}", text)
    function = ast.parse(f"def f({text}): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    if arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
        raise PageError("parameters with / or *")
    parameters: list[Facts] = [{"name": argument.arg} for argument in arguments.args]
    for parameter, argument in zip(parameters, arguments.args, strict=True):
        if argument.annotation is not None:
            parameter["annotation"] = ast.unparse(argument.annotation)
    for parameter, default in zip(reversed(parameters), reversed(arguments.defaults), strict=False):
        parameter["default"] = json_value(ast.literal_eval(default))
    return parameters


class Page:
    """One page, read line by line into `classes` and `functions`."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.classes: dict[str, Facts] = {}
        self.functions: dict[str, Facts] = {}
        self.current: Facts | None = None  # the class that members belong to
        self.members: set[str] = set()
        self.dash: bool | None = None  # do this page's facts begin with "- "?
        self.source: bool | None = None  # do its signatures end with "[source]"?
        lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        texts = [line for _, line in lines]
        for index, (number, line) in enumerate(lines):
            try:
                self.read(line, texts[index - 1] if index else "", texts[index + 1 : index + 4])
            except (ValueError, SyntaxError) as error:
                raise PageError(f"{name}:{number}: {error}: {line!r}") from error
        for path, facts in self.classes.items():
            if not facts["bases"]:
                raise PageError(f"{name}: {path} has no bases")

    def read(self, line: str, before: str, after: list[str]) -> None:
        fact = line.removeprefix("- ")
        if fact in SECTIONS or line.startswith(("•", ">>>")):
            return
        if fact.startswith("Bases"):
            self.class_facts()["bases"] += self.bases(fact, after)
        elif match := SIGNATURE.fullmatch(fact):
            self.check_rendering(line, source=match["source"] is not None)
            self.signature(match["kind"], match["path"], parse_parameters(match["parameters"]))
        elif match := PROPERTY.fullmatch(fact):
            self.check_rendering(line)
            self.new_member(match["name"])["properties"].append(match["name"])
        elif match := ATTRIBUTE.fullmatch(fact):
            self.check_rendering(line)
            self.attribute(match["name"], match["value"])
        elif WORD.fullmatch(line) and before.removeprefix("- ") not in SECTIONS and self.current is not None:
            if len(after) < 3 or after[1] != "Type" or not DOTTED.fullmatch(after[2]):
                raise PageError("a lone word in a class, without description and type")
            self.new_member(line)["instance_attributes"][line] = after[2]
        elif FACT_LIKE.match(line):
            raise PageError("not understood")

    def check_rendering(self, line: str, source: bool | None = None) -> None:
        """All facts of a page are rendered alike; a line that is not is no fact."""
        self.dash = line.startswith("- ") if self.dash is None else self.dash
        if source is not None:
            self.source = source if self.source is None else self.source
        if line.startswith("- ") != self.dash or (source is not None and source != self.source):
            raise PageError("rendered unlike the page's other facts")

    def bases(self, fact: str, after: list[str]) -> list[str]:
        if fact == "Bases:":
            glued = GLUED_BASE.fullmatch(after[0]) if after else None
            if glued is None:
                raise PageError("no base on the next line")
            return [glued["base"]]
        bases = fact.removeprefix("Bases: ").split(", ")
        if not all(DOTTED.fullmatch(base) for base in bases):
            raise PageError("bases not understood")
        return bases

    def signature(self, kind: str | None, path: str, parameters: list[Facts]) -> None:
        dotted = "." in path
        if not DOTTED.fullmatch(path) or (kind is not None and dotted != (kind == "class")):
            raise PageError("name not understood")
        if path == "create_factory":
            if kind != "classmethod":
                raise PageError("create_factory is no classmethod")
            self.new_member(path)["create_factory"] = parameters
        elif not dotted:
            self.new_member(path)["methods"][path] = {"kind": kind or "method", "parameters": parameters}
        elif path in self.classes or path in self.functions:
            raise PageError("documented twice")
        elif kind is None:
            self.functions[path] = {"page": self.name, "parameters": parameters}
            self.current = None
        else:
            self.current = {"page": self.name, "bases": [], "constructor": parameters, "create_factory": None}
            self.current |= {
                "attributes": {},
                "instance_attributes": {},
                "methods": {},
                "properties": [],
                "schema": None,
            }
            self.classes[path] = self.current
            self.members = set()

    def attribute(self, name: str, value: str) -> None:
        facts = self.new_member(name)
        if name == "schema":
            facts["schema"] = value
            return
        names = ast.literal_eval(value)
        if not isinstance(names, tuple) or not all(isinstance(item, str) for item in names):
            raise PageError("class attribute is no tuple of names")
        facts["attributes"][name] = list(names)

    def class_facts(self) -> Facts:
        if self.current is None:
            raise PageError("member outside of a class")
        return self.current

    def new_member(self, name: str) -> Facts:
        if name in self.members:
            raise PageError("documented twice")
        self.members.add(name)
        return self.class_facts()


def freeze(pages: dict[str, str]) -> Facts:
    """Page name -> text, into one tree of facts in a stable order; what a class does not have is left out."""
    facts: dict[str, Facts] = {"classes": {}, "functions": {}}
    for name, text in sorted(pages.items()):
        page = Page(name, text)
        if not page.classes:
            raise PageError(f"{name}: no class")
        for kind, found in (("classes", page.classes), ("functions", page.functions)):
            if twice := facts[kind].keys() & found.keys():
                raise PageError(f"{name}: on another page too: {sorted(twice)}")
            facts[kind] |= found
    for path, found in facts["classes"].items():
        found["properties"].sort()
        found["methods"] = dict(sorted(found["methods"].items()))
        facts["classes"][path] = {
            key: value for key, value in found.items() if key == "constructor" or value not in (None, [], {})
        }
    return {kind: dict(sorted(found.items())) for kind, found in facts.items()}


def pretty(value: Any, indent: int = 0) -> str:
    """JSON with each list or object on one line if it fits there: a changed fact is a changed line."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(flat) + indent <= 100:
        return flat
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        items = [f"{inner}{json.dumps(key)}: {pretty(item, indent + 2)}" for key, item in value.items()]
    else:
        items = [f"{inner}{pretty(item, indent + 2)}" for item in value]
    left, right = "{}" if isinstance(value, dict) else "[]"
    return left + "\n" + ",\n".join(items) + "\n" + " " * indent + right


def main(spec_dir: str, out: str) -> None:
    facts = freeze({path.name: path.read_text(encoding="utf-8") for path in Path(spec_dir).glob("*.txt")})
    Path(out).write_text(pretty(facts) + "\n", encoding="utf-8")
    print(f"{len(facts['classes'])} classes, {len(facts['functions'])} functions")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
