"""TOML with line numbers: Python's own parser reads the values, this finds where they stand."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections import Counter
from typing import Any

from assent.permissions.located import Located, Path, Unreadable

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
        raise Unreadable(line, f"this is no TOML: {_AT.sub('', str(error))}") from None
    except ValueError as error:  # an integer of thousands of digits
        raise Unreadable(1, f"this is no TOML that can be read: {error}") from None
    except RecursionError:
        raise Unreadable(1, "this is no TOML that can be read: it nests too deep") from None
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
