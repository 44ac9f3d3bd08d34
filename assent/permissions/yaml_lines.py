"""YAML with line numbers, read as plainly as JSON: ``no`` is a word and ``1:30`` is no number."""

from __future__ import annotations

import re
from typing import Any, Protocol, cast

from assent.errors import MissingExtra
from assent.permissions.located import Fault, Located, Path, Unreadable

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(
    _TAG + name
    for name in ("map", "seq", "str", "null", "bool", "int", "float", "timestamp", "merge", "value")
)
"""The tags that PyYAML gives to what has none; what it takes for a time or the like is read as text."""


class _Mark(Protocol):
    line: int


class _Node(Protocol):
    """A node as PyYAML makes it: a scalar's value is text, a sequence's nodes, a mapping's pairs of nodes."""

    id: str
    tag: str
    value: Any
    style: str | None
    start_mark: _Mark


def read_yaml(text: str) -> Located:
    """The value of a YAML text; raises `Unreadable` if it is none, `MissingExtra` without PyYAML."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise MissingExtra("a policy file in YAML", "yaml") from error
    try:
        node: _Node | None = cast(Any, yaml).compose(text, Loader=yaml.SafeLoader)
        located = Located()
        if node is not None:
            located.value = _Reader(located).value(node, ())
        return located
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = " ".join(part for part in (error.context, error.problem) if part)
        raise Unreadable(mark.line + 1 if mark else 1, f"this is no YAML: {why}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Unreadable(line, f"this is no YAML: {error.reason}") from None
    except ValueError as error:  # an integer of thousands of digits
        raise Unreadable(1, f"this is no YAML that can be read: {error}") from None
    except RecursionError:
        raise Unreadable(1, "this is no YAML that can be read: it nests too deep") from None


class _Reader:
    def __init__(self, located: Located) -> None:
        self._located = located
        self._seen: set[int] = set()

    def value(self, node: _Node, path: Path) -> Any:
        line = _line(node)
        self._located.lines.setdefault(path, line)
        if id(node) in self._seen:
            raise Unreadable(line, "this is used again further down; write it out there, without an alias")
        self._seen.add(id(node))
        if node.tag not in _PLAIN_TAGS:
            raise Unreadable(line, f"the tag {node.tag} means nothing here; write a plain value")
        match node.id:
            case "mapping":
                return self._mapping(node, path)
            case "sequence":
                return [self.value(item, (*path, place)) for place, item in enumerate(node.value)]
            case _:
                return _scalar(node)

    def _mapping(self, node: _Node, path: Path) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            line = _line(key_node)
            if key_node.id != "scalar":
                raise Unreadable(line, "a key is a word here, not a list or an object")
            key = _scalar(key_node)
            if key in members:
                self._located.faults.append(Fault(line, f"the key {key!r} is there twice"))
            self._located.lines[*path, key] = line
            members[key] = self.value(value_node, (*path, key))
        return members


def _scalar(node: _Node) -> Any:
    text: str = node.value
    if node.style is not None:  # in quotes, or a block of text
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _line(node: _Node) -> int:
    return node.start_mark.line + 1
