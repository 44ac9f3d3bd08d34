"""JSON, TOML and YAML read with the line of every value."""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from askfirst.errors import MissingExtra

# Plain data from a file, together with the lines that it stands in.


Path = tuple[str | int, ...]


def _no_lines() -> dict[Path, int]:
    return {}


def _no_faults() -> list[Fault]:
    return []


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in the syntax of a file: the line, and a sentence."""

    line: int
    sentence: str


class Unreadable(Exception):
    """Text that is not in the format it should be in."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.fault = Fault(line, sentence)


@dataclass(slots=True)
class Located:
    """A value, the lines of what is in it by path (keys and places), and faults that did not stop reading."""

    value: Any = None
    lines: dict[Path, int] = field(default_factory=_no_lines)
    faults: list[Fault] = field(default_factory=_no_faults)

    def line_of(self, path: Path) -> int:
        """The line of what a path leads to, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


# JSON with line numbers: Python's own decoder reads the values, this follows the brackets.


_SPACE = re.compile(r"[ \t\n\r]*")


def read_json(text: str) -> Located:
    """The value of a JSON text; raises `Unreadable` if it is none."""
    reader = _JsonReader(text)
    try:
        end = reader.skip(reader.value(0, ()))
        if end != len(text):
            raise reader.unreadable("there is more text after its end", end)
    except json.JSONDecodeError as error:
        raise Unreadable(error.lineno, f"this is not JSON: {error.msg}") from None
    except ValueError as error:  # an integer of thousands of digits
        raise Unreadable(1, f"this is not JSON that can be read: {error}") from None
    except RecursionError:
        raise Unreadable(1, "this is not JSON that can be read: it nests too deep") from None
    return reader.located


class _JsonReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.located = Located()
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._decode = json.JSONDecoder(parse_constant=self._no_constant).raw_decode

    def value(self, at: int, path: Path) -> int:
        """Read the value at a position of the text; returns where it ends. The outermost value is kept."""
        value, end = self._read(at, path)
        self.located.value = value
        return end

    def skip(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return found.end() if found else at

    def unreadable(self, sentence: str, at: int) -> Unreadable:
        return Unreadable(self._line(at), f"this is not JSON: {sentence}")

    def _read(self, at: int, path: Path) -> tuple[Any, int]:
        at = self.skip(at)
        self.located.lines.setdefault(path, self._line(at))
        match self.text[at : at + 1]:
            case "{":
                return self._object(at + 1, path)
            case "[":
                return self._array(at + 1, path)
            case _:
                return self._decode(self.text, at)

    def _object(self, at: int, path: Path) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        at = self.skip(at)
        if self.text.startswith("}", at):
            return members, at + 1
        while True:
            at = self.skip(at)
            if not self.text.startswith('"', at):
                raise self.unreadable("a key in double quotes should stand here", at)
            line = self._line(at)
            key, at = self._decode(self.text, at)
            if key in members:
                self.located.faults.append(Fault(line, f"the key {key!r} is there twice"))
            self.located.lines[*path, key] = line
            at = self.skip(at)
            if not self.text.startswith(":", at):
                raise self.unreadable("a colon should stand here", at)
            members[key], at = self._read(at + 1, (*path, key))
            at, ended = self._next(at, "}")
            if ended:
                return members, at

    def _array(self, at: int, path: Path) -> tuple[list[Any], int]:
        items: list[Any] = []
        if self.text.startswith("]", self.skip(at)):
            return items, self.skip(at) + 1
        while True:
            item, at = self._read(at, (*path, len(items)))
            items.append(item)
            at, ended = self._next(at, "]")
            if ended:
                return items, at

    def _next(self, at: int, bracket: str) -> tuple[int, bool]:
        at = self.skip(at)
        if self.text.startswith(bracket, at):
            return at + 1, True
        if not self.text.startswith(",", at):
            raise self.unreadable(f"a comma or {bracket!r} should stand here", at)
        return at + 1, False

    def _line(self, at: int) -> int:
        return bisect_right(self._starts, at)

    def _no_constant(self, name: str) -> Any:
        raise json.JSONDecodeError(f"{name} is not JSON", self.text, max(self.text.find(name), 0))


# TOML with line numbers: Python's own parser reads the values, this finds where they stand.


_AT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")


def read_toml(text: str) -> Located:
    """The value of a TOML text; raises `Unreadable` if it is none."""
    text = text.replace("\r\n", "\n")
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT.search(str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        raise Unreadable(line, f"this is not TOML: {_AT.sub('', str(error))}") from None
    except ValueError as error:  # an integer of thousands of digits
        raise Unreadable(1, f"this is not TOML that can be read: {error}") from None
    except RecursionError:
        raise Unreadable(1, "this is not TOML that can be read: it nests too deep") from None
    scan = _Scan(text)
    scan.document()
    return Located(value, scan.lines)


class _Scan:
    """Walks over text that is known to be TOML, noting the line of every key and item."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines: dict[Path, int] = {}
        self._at = 0
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._tables: Counter[Path] = Counter()

    def document(self) -> None:
        table: Path = ()
        self._skip()
        while self._at < len(self.text):
            if self._peek("["):
                table = self._header()
            else:
                self._pair(table)
            self._skip()

    def _header(self) -> Path:
        line = self._line()
        is_array = self._peek("[[")
        self._at += 2 if is_array else 1
        keys = self._key()
        self._at += 2 if is_array else 1
        path: Path = ()
        for place, key in enumerate(keys):
            path = (*path, key)
            if is_array and place == len(keys) - 1:
                self.lines.setdefault(path, line)
                self._tables[path] += 1
            if self._tables[path]:
                path = (*path, self._tables[path] - 1)
            self.lines.setdefault(path, line)
        return path

    def _pair(self, table: Path) -> None:
        line = self._line()
        path = table
        for key in self._key():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._at += 1  # the equals sign
        self._value(path)

    def _key(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip()
            quoted = _STRING.match(self.text, self._at)
            found = quoted or _BARE_KEY.match(self.text, self._at)
            if found is None:
                return keys
            self._at = found.end()
            keys.append(_unquoted(found[0]) if quoted else found[0])
            self._skip()
            if not self._peek("."):
                return keys
            self._at += 1

    def _value(self, path: Path) -> None:
        self._skip()
        if self._peek("["):
            self._each("]", path, is_table=False)
        elif self._peek("{"):
            self._each("}", path, is_table=True)
        else:
            found = _STRING.match(self.text, self._at) or _SCALAR.match(self.text, self._at)
            self._at = found.end() if found else self._at + 1

    def _each(self, bracket: str, path: Path, *, is_table: bool) -> None:
        self._at += 1
        place = 0
        self._skip()
        while not self._peek(bracket) and self._at < len(self.text):
            if is_table:
                self._pair(path)
            else:
                self.lines[*path, place] = self._line()
                self._value((*path, place))
            place += 1
            self._skip()
            if self._peek(","):
                self._at += 1
                self._skip()
        self._at += 1

    def _skip(self) -> None:
        found = _BLANK.match(self.text, self._at)
        self._at = found.end() if found else self._at

    def _peek(self, what: str) -> bool:
        return self.text.startswith(what, self._at)

    def _line(self) -> int:
        return bisect_right(self._starts, self._at)


def _unquoted(key: str) -> str:
    parsed: dict[str, Any] = tomllib.loads(f"{key} = 0")
    return next(iter(parsed))


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
            located.value = _YamlReader(located).value(node, ())
        return located
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = " ".join(part for part in (error.context, error.problem) if part)
        raise Unreadable(mark.line + 1 if mark else 1, f"this is not YAML: {why}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Unreadable(line, f"this is not YAML: {error.reason}") from None
    except ValueError as error:  # an integer of thousands of digits
        raise Unreadable(1, f"this is not YAML that can be read: {error}") from None
    except RecursionError:
        raise Unreadable(1, "this is not YAML that can be read: it nests too deep") from None


class _YamlReader:
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
