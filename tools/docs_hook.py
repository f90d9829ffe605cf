"""A hook of MkDocs: the tables of hyper-parameters are generated from the components' own declarations."""

from __future__ import annotations

from typing import Any

from pytorchrl.parameters import Parameter
from pytorchrl.registry import KINDS, load_class

MARK = "<!-- hyper-parameters -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace(MARK, tables()) if MARK in markdown else markdown


def tables() -> str:
    """One table per component, from the one place where its parameters are declared."""
    return "\n".join(
        line
        for kind, names in KINDS.items()
        for line in (f"## {kind.capitalize()}s\n", *(table(kind, name) for name in names))
    )


def table(kind: str, name: str) -> str:
    rows = [row(kind, parameter) for parameter in load_class(kind, name).configurable().values()]
    return "\n".join([f"### {name}\n", "| path | default | type | |", "|---|---|---|---|", *rows, ""])


def row(kind: str, parameter: Parameter) -> str:
    default = "required" if parameter.required else f"`{parameter.default}`"
    kind_of_value = parameter.type_name.replace("|", "or")
    return f"| `{kind}.{parameter.name}` | {default} | {kind_of_value} | {parameter.doc} |"
