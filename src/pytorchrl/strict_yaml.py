"""Reads YAML as text with line numbers, refuses what hides meaning, and builds nothing but dicts, lists and text.

The parser is the one inside strictyaml, used at the level of its events: tags, anchors, aliases and duplicate keys are
refused before anything is constructed, and every value keeps the line that it stands on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from strictyaml import ruamel

from pytorchrl.errors import ConfigError
from pytorchrl.parameters import Node, convert

LARGEST_FILE = 1 << 20
DEEPEST_NESTING = 20
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_yaml(path: str | Path) -> Node:
    """The file's one document; ``ConfigError`` names file, line and cause, ``FileNotFoundError`` a missing file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # a name with NUL in it, or with letters that no file has
        cause = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: cannot be read as a file ({cause})") from error
    if len(data) > LARGEST_FILE:
        raise ConfigError(f"{path}: too large for a configuration (at most {LARGEST_FILE} bytes)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, source: str) -> Node:
    """The text's one document as nodes."""
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        line = text.count("\n", 0, unprintable.start()) + 1
        raise ConfigError(f"{source} line {line}: unprintable character {unprintable[0]!r}")
    try:
        return _Builder(ruamel.parse(text, Loader=ruamel.SafeLoader), source).document()
    except ruamel.error.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{source}{place}: broken YAML, {error.problem or error.context}") from None
    except ruamel.error.YAMLError as error:
        raise ConfigError(f"{source}: broken YAML, {str(error).splitlines()[0]}") from None


class _Builder:
    """Nodes from parser events."""

    def __init__(self, events: Iterator[Any], source: str) -> None:
        self.events = events
        self.source = source

    def document(self) -> Node:
        next(self.events)  # stream start
        if isinstance(next(self.events), ruamel.StreamEndEvent):
            raise ConfigError(f"{self.source}: the file is empty")
        root = self.node(next(self.events), 0)
        next(self.events)  # document end
        after = next(self.events)
        if not isinstance(after, ruamel.StreamEndEvent):
            self.refuse(after, "a second document")
        return root

    def node(self, event: Any, depth: int) -> Node:
        line = event.start_mark.line + 1
        if depth > DEEPEST_NESTING:
            self.refuse(event, f"nesting deeper than {DEEPEST_NESTING}")
        if isinstance(event, ruamel.AliasEvent) or event.anchor is not None:
            self.refuse(event, "an anchor or alias")
        if event.tag is not None:
            self.refuse(event, f"the tag {event.tag!r}")
        if isinstance(event, ruamel.ScalarEvent):
            if _UNPRINTABLE.search(event.value):
                self.refuse(event, f"an unprintable character ({event.value!r})")
            return Node(event.value, line, text=True, quoted=event.style in ("'", '"'))
        if isinstance(event, ruamel.SequenceStartEvent):
            items = []
            while not isinstance(event := next(self.events), ruamel.SequenceEndEvent):
                items.append(self.node(event, depth + 1))
            return Node(items, line)
        return Node(self.mapping(depth), line)

    def mapping(self, depth: int) -> dict[str, Node]:
        items: dict[str, Node] = {}
        while not isinstance(event := next(self.events), ruamel.MappingEndEvent):
            name = self.node(event, depth + 1)
            key = name.value
            if not isinstance(key, str):
                self.refuse(event, "a key that is not text")
            if key in items:
                self.refuse(event, f"the key '{key}' twice")
            item = self.node(next(self.events), depth + 1)
            # A value left out is marked where the next token stands, which can be lines below its key.
            items[key] = Node("", name.line, text=True) if item.value == "" else item
        return items

    def refuse(self, event: Any, what: str) -> None:
        raise ConfigError(f"{self.source} line {event.start_mark.line + 1}: {what} is not allowed in a configuration")


def to_yaml(value: Any, indent: int = 0) -> str:
    """Plain dicts, lists and scalars as YAML text that ``parse_yaml`` reads back."""
    pad = "  " * indent
    lines = []
    for key, item in value.items():
        if isinstance(item, dict) and item:
            lines.append(f"{pad}{_scalar(key)}:\n{to_yaml(item, indent + 1)}")
        elif isinstance(item, dict):
            lines.append(f"{pad}{_scalar(key)}: {{}}\n")
        elif isinstance(item, (list, tuple)):
            lines.append(f"{pad}{_scalar(key)}: {_flow(item)}\n")
        else:
            lines.append(f"{pad}{_scalar(key)}: {_scalar(item)}\n")
    return "".join(lines)


def _flow(value: Any) -> str:
    """Lists, and what is inside them, in a line."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_scalar(key)}: {_flow(item)}' for key, item in value.items())}}}"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    text = value.__name__ if isinstance(value, (type, FunctionType)) else str(value)
    plain = re.fullmatch(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*(:[A-Za-z0-9_./+-]+)*", text)
    if plain and convert(Node(text, text=True), Any) == text:  # what would be read as a number is quoted
        return text
    if _UNPRINTABLE.search(text) or "\n" in text or "\t" in text:
        raise ConfigError(f"{text!r} cannot be written to a configuration file")
    return "'" + text.replace("'", "''") + "'"
