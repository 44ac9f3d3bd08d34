"""JSON with line numbers: Python's own decoder reads the values, this follows the brackets."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Any

from assent.permissions.located import Fault, Located, Path, Unreadable

_SPACE = re.compile(r"[ \t\n\r]*")


def read_json(text: str) -> Located:
    """The value of a JSON text; raises `Unreadable` if it is none."""
    reader = _Reader(text)
    try:
        end = reader.skip(reader.value(0, ()))
        if end != len(text):
            raise reader.unreadable("there is more text after its end", end)
    except json.JSONDecodeError as error:
        raise Unreadable(error.lineno, f"this is no JSON: {error.msg}") from None
    except ValueError as error:  # an integer of thousands of digits
        raise Unreadable(1, f"this is no JSON that can be read: {error}") from None
    except RecursionError:
        raise Unreadable(1, "this is no JSON that can be read: it nests too deep") from None
    return reader.located


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.located = Located()
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._decode = json.JSONDecoder(parse_constant=self._no_constant).raw_decode

    def value(self, at: int, path: Path) -> int:
        """Read the value at a place in the text, and say where it ends; the outermost is kept."""
        value, end = self._read(at, path)
        self.located.value = value
        return end

    def skip(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return found.end() if found else at

    def unreadable(self, sentence: str, at: int) -> Unreadable:
        return Unreadable(self._line(at), f"this is no JSON: {sentence}")

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
        raise json.JSONDecodeError(f"{name} is no JSON", self.text, max(self.text.find(name), 0))
