"""Patterns of form fields: what one costs to compile, and each compiled once.

The engine never backtracks, so matching takes linear time. Compiling does not: ``\\w{1,4000}`` is four thousand
copies of a class of a hundred thousand characters. So the weight of a pattern is computed before it is compiled.
"""

import re
from collections import OrderedDict
from threading import Lock

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from askfirst import limits

_COUNT = re.compile(r"\{\s*([0-9]*)\s*(?:(,)\s*([0-9]*)\s*)?\}")
_GROUP = re.compile(r"\(\?(?:P?<[^>]*>|([a-zA-Z]*)-?([a-zA-Z]*)(?::|(?=\))))")
_UNICODE = frozenset("wWdDsSbBpP")
_CLASS_WEIGHT = 10


def pattern_fault(pattern: str) -> str | None:
    """Why a pattern cannot be used; None if it can."""
    try:
        _COMPILED.get(pattern)
    except SchemaError as error:
        why = str(error).splitlines()[-1].strip().removeprefix("error: ").removeprefix("SchemaError: ")
        return f"is no regular expression that can be used: {why.rstrip('.')}"
    return None


def size_fault(pattern: str) -> str | None:
    """Why a caller's pattern is too costly to compile; None if it is not. It is not compiled for that."""
    if len(pattern) > limits.PATTERN_CHARACTERS:
        return f"has more than {limits.PATTERN_CHARACTERS} characters"
    if any("x" in found[1] for found in _GROUP.finditer(pattern) if found[1]):
        return "must not use the flag x"
    if weight_of(pattern) > limits.PATTERN_WEIGHT:
        return "repeats too much: write + or * in place of a high count, or [A-Za-z0-9_] in place of \\w"
    return None


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern fits the whole of a text."""
    try:
        _COMPILED.get(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


def weight_of(pattern: str) -> int:
    """The weight of a pattern with its counted repetitions written out: a character is 1, a class of Unicode 10.

    It is an estimate from above for what the engine accepts, without the flag ``x``.
    """
    groups: list[list[int]] = [[]]
    at = 0
    while at < len(pattern):
        char, at = pattern[at], at + 1
        here = groups[-1]
        if char == "(":
            opened = _GROUP.match(pattern, at - 1)
            at = at if opened is None else opened.end()
            groups.append([])
        elif char == ")":
            inner = sum(groups.pop()) if len(groups) > 1 else 0
            groups[-1].append(1 + inner)
        elif char == "{" and here and (counted := _COUNT.match(pattern, at - 1)):
            at = counted.end()
            here[-1] *= max(int(counted[1] or 0) + bool(counted[2]), int(counted[3] or 0), 1)
        elif char == "[":
            weight, at = _class(pattern, at)
            here.append(weight)
        elif char == "\\":
            weight, at = _escape(pattern, at)
            here.append(weight)
        else:
            here.append(1)
    return sum(map(sum, groups))


def _escape(pattern: str, at: int) -> tuple[int, int]:
    """The weight of an escape, and where it ends."""
    name = pattern[at : at + 1]
    if name in ("p", "P", "x", "u", "U", "b") and pattern[at + 1 : at + 2] == "{":
        end = pattern.find("}", at)
        return (_CLASS_WEIGHT if name in _UNICODE else 1), (len(pattern) if end < 0 else end + 1)
    return (_CLASS_WEIGHT if name in _UNICODE else 1), at + 1


def _class(pattern: str, at: int) -> tuple[int, int]:
    """The weight of a class in brackets, and where it ends."""
    weight, depth, first = 1, 1, True
    while at < len(pattern) and depth:
        char, at = pattern[at], at + 1
        if char == "\\":
            inner, at = _escape(pattern, at)
            weight += inner if inner > 1 else 0
        elif char == "[":
            depth += 1
        elif char == "]" and not first:
            depth -= 1
        elif not char.isascii():
            weight += 1
        first = first and char == "^"
    return weight, at


class _Compiled:
    """A cache of compiled patterns, whose weights are at most ``most`` together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, tuple[SchemaValidator, int]] = OrderedDict()
        self._weight = 0
        self._lock = Lock()

    def get(self, pattern: str) -> SchemaValidator:
        """A test of the whole text in linear time; raises ``SchemaError``."""
        with self._lock:
            if pattern in self._kept:
                self._kept.move_to_end(pattern)
                return self._kept[pattern][0]
        made, weight = _compile(pattern), max(weight_of(pattern), len(pattern))
        with self._lock:
            if pattern not in self._kept:
                self._kept[pattern] = made, weight
                self._weight += weight
            while self._weight > self._most and self._kept:
                self._weight -= self._kept.popitem(last=False)[1][1]
        return made


def _compile(pattern: str) -> SchemaValidator:
    for each in (
        pattern,
        rf"\A(?:{pattern})\z",
    ):  # compiled alone first, so that no bracket in it can close ours
        validator = SchemaValidator(
            core_schema.str_schema(pattern=each, strict=True, regex_engine="rust-regex")
        )
    return validator  # pyright: ignore[reportPossiblyUnbound]


_COMPILED = _Compiled(limits.PATTERN_CACHE_WEIGHT)
