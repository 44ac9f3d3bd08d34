"""Plain data from a file, together with the lines that it stands in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Path = tuple[str | int, ...]


def _no_lines() -> dict[Path, int]:
    return {}


def _no_faults() -> list[Fault]:
    return []


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with the text of a file, whatever it is about: the line, and a sentence."""

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
