"""Risk patterns: regular expressions for lines that people should look at twice, such as ``rm -rf``.

The page highlights the lines that match, and a normal risk becomes high. A line that matches no pattern may still be
risky. Matching takes linear time: the engine never backtracks (see `askfirst.protocol.patterns`).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from askfirst.errors import ServiceError
from askfirst.protocol.patterns import size_fault
from askfirst.service.shipped_patterns import SHIPPED

MOST_PATTERNS = 100
MOST_MARKED = 1_000
"""The most lines of one text that are marked."""
_NAME_CHARACTERS = 60
_CHUNK = 200
_STATEMENT_LINES = 10
"""The most lines of a statement, in which ``unless`` is searched: SQL spans several lines, to a semicolon."""
_LINE_CHARACTERS = 10_000
"""A longer line is searched in overlapping parts of this length."""
_OVERLAP = 500
_CONTINUES = re.compile(r"\s+\S|(?i:where|and|or|using|join|inner|left|set|from|returning|on)\b")
"""The beginning of a line that continues the statement of the line before it."""
_BOUNDARY = re.compile(r"\\b(?!\{)|\\.", re.DOTALL)
_EDGE = re.compile(r"\\[AzZ]")
_KEYS = ("name", "match", "unless")


class _Search:
    """A search for any of several patterns in a text, in linear time."""

    def __init__(self, patterns: Sequence[str]) -> None:
        joined = "|".join(f"(?:{_ascii_boundaries(each)})" for each in patterns)
        self._validator = SchemaValidator(
            core_schema.str_schema(pattern=f"(?m:{joined})", strict=True, regex_engine="rust-regex")
        )

    def __call__(self, text: str) -> bool:
        try:
            self._validator.validate_python(text)
        except ValidationError:
            return False
        return True


def _ascii_boundaries(pattern: str) -> str:
    """The pattern with ASCII word boundaries. With Unicode word boundaries the engine is 1,000 times slower."""
    return _BOUNDARY.sub(lambda found: r"(?-u:\b)" if found[0] == r"\b" else found[0], pattern)


@dataclass(frozen=True, slots=True)
class RiskPattern:
    """A named pattern. A line does not count if its statement also matches ``unless``."""

    name: str
    match: str
    unless: str | None = None


class RiskPatterns:
    """All patterns of a service. Raises `ServiceError` for a pattern that cannot be used."""

    def __init__(self, patterns: Sequence[RiskPattern]) -> None:
        if len(patterns) > MOST_PATTERNS:
            raise ServiceError(f"there must be at most {MOST_PATTERNS} risk patterns, not {len(patterns)}")
        self.patterns = tuple(patterns)
        self._each = [(it.name, _search(it, it.match), _exception(it)) for it in patterns]
        self._any = _Search([it.match for it in patterns]) if patterns else None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> RiskPatterns:
        """Read an operator's file; raises `ServiceError` with the reason if it cannot be used."""
        try:
            return cls(_read(Path(path).read_text("utf-8"), str(path)))
        except (OSError, UnicodeDecodeError) as error:
            raise ServiceError(f"the risk patterns in {path} cannot be read: {error}") from error

    def marked(self, lines: Sequence[str]) -> dict[int, str]:
        """The names of the first matching patterns, by the index of their line; at most `MOST_MARKED` lines."""
        found: dict[int, str] = {}
        if self._any is None:
            return found
        for start in range(0, len(lines), _CHUNK):
            chunk = lines[start : start + _CHUNK]
            if not self._any("\n".join(chunk)):
                continue
            for place, line in enumerate(chunk, start):
                if (name := self._name(line, lines, place)) is not None:
                    found[place] = name
                    if len(found) >= MOST_MARKED:
                        return found
        return found

    def _name(self, line: str, lines: Sequence[str], place: int) -> str | None:
        for part in _parts(line):
            if self._any is None or not self._any(part):
                continue
            for name, match, unless in self._each:
                if match(part) and not (unless is not None and unless(_statement(lines, place))):
                    return name
        return None


def _statement(lines: Sequence[str], place: int) -> str:
    """The statement that begins at a line: the line and those that continue it, up to a semicolon."""
    taken: list[str] = []
    for line in lines[place : place + _STATEMENT_LINES]:
        if taken and not _CONTINUES.match(line):
            break
        before, found, _ = line[:_LINE_CHARACTERS].partition(";")
        taken.append(before)
        if found:
            break
    return "\n".join(taken)


def _parts(line: str) -> Iterator[str]:
    if len(line) <= _LINE_CHARACTERS:
        yield line
        return
    for start in range(0, len(line), _LINE_CHARACTERS - _OVERLAP):
        yield line[start : start + _LINE_CHARACTERS]


def _search(pattern: RiskPattern, text: str) -> _Search:
    fault = size_fault(text)
    if fault is None and _EDGE.search(text):
        fault = "must use ^ and $ for a line's ends, not \\A or \\z"
    if fault is None:
        try:
            return _Search([text])
        except SchemaError as error:
            why = str(error).splitlines()[-1].strip()
            fault = f"is not a regular expression that can be used: {why}"
    raise ServiceError(f"the risk pattern {pattern.name!r} {fault}")


def _exception(pattern: RiskPattern) -> _Search | None:
    return None if pattern.unless is None else _search(pattern, pattern.unless)


def _read(text: str, path: str) -> list[RiskPattern]:
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ServiceError(f"the risk patterns in {path} are not valid TOML: {error}") from error
    given = said.pop("pattern", [])
    if said or not isinstance(given, list):
        raise ServiceError(f"{path} must have a list of [[pattern]] and nothing else")
    return [_pattern(it, path) for it in cast("list[Any]", given)]


def _pattern(given: Any, path: str) -> RiskPattern:
    it: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, dict) else {}
    strange = [name for name, value in it.items() if name not in _KEYS or not isinstance(value, str)]
    if strange or not it.get("name") or not it.get("match") or len(it["name"]) > _NAME_CHARACTERS:
        raise ServiceError(
            f"a [[pattern]] in {path} must have a name of at most {_NAME_CHARACTERS} characters, a match, and "
            "optionally an unless, each a text"
        )
    return RiskPattern(it["name"], it["match"], it.get("unless"))


NO_PATTERNS = RiskPatterns(())


@cache
def shipped_patterns() -> RiskPatterns:
    """The patterns that come with Askfirst."""
    return RiskPatterns(_read(SHIPPED, "the shipped patterns"))


def patterns_from(given: RiskPatterns | str | os.PathLike[str] | None) -> RiskPatterns:
    """The patterns that an operator gave, as a value or as the path of a file; None gives the shipped patterns."""
    if given is None:
        return shipped_patterns()
    return given if isinstance(given, RiskPatterns) else RiskPatterns.from_file(given)
