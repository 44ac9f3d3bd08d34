"""The tests that compare an argument with what a rule says.

Each is made from the rule's operand, or raises ``ValueError`` with a sentence if the operand makes no sense.
It says True, False, or None where it cannot tell, such as for a value of another type, or for a text that fits in
another Unicode normal form than its own.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from assent.digests import canonical_json
from assent.errors import InvalidMessage
from assent.permissions.names import name_matcher
from assent.permissions.spellings import Untellable, normal, normal_json, spellings

Test = Callable[[Any], bool | None]

LONGEST_REGEX_VALUE = 100_000
"""How many characters ``regex`` looks at; it cannot tell about a longer value."""
_DECOMPOSED = 24
"""How many times longer than its composed form a text can be, in bytes."""


def equals(operand: Any) -> Test:
    """The value is this, type and all: 1 is 1.0, but neither is True nor "1"."""
    expected, kind = _Expected(operand), _kind(operand)

    def test(value: Any) -> bool | None:
        if kind not in (_kind(value), "null"):  # anything can be told from null
            return None
        return expected.is_equal(value)

    return test


def one_of(operand: Any) -> Test:
    """The value is one of these; one whose type none of them has cannot be told."""
    choices = _items(operand)
    expected = [_Expected(choice) for choice in choices]
    kinds = {_kind(choice) for choice in choices}

    def test(value: Any) -> bool | None:
        if _kind(value) not in kinds:
            return None
        found = [each.is_equal(value) for each in expected]
        return True if True in found else None if None in found else False

    return test


def negated(make: Callable[[Any], Test]) -> Callable[[Any], Test]:
    """The same test turned round. What it cannot tell stays so."""

    def make_negated(operand: Any) -> Test:
        test = make(operand)

        def negation(value: Any) -> bool | None:
            told = test(value)
            return None if told is None else not told

        return negation

    return make_negated


def glob(operand: Any) -> Test:
    """The whole text matches a glob; ``*`` stands for any characters, slashes too."""
    return _in_every_spelling(_text(operand), name_matcher)


def regex(operand: Any) -> Test:
    """The whole text matches a regular expression, in time that grows with its length and no faster.

    Rust's engine, which pydantic brings, never backtracks. So it has no look-around and no backreferences.
    """
    pattern = _text(operand)
    _regex(pattern)  # by itself, so that no bracket of it can close ours
    return _in_every_spelling(pattern, _searcher)


def _searcher(pattern: str) -> Test:
    search = _regex(rf"\A(?:{pattern})\z")

    def test(value: str) -> bool | None:
        if len(value) > LONGEST_REGEX_VALUE:
            return None
        try:
            search.validate_python(value)
        except ValidationError as error:
            told = (
                error.errors(include_url=False, include_input=False)[0]["type"] == "string_pattern_mismatch"
            )
            return False if told else None
        return True

    return test


def _in_every_spelling(pattern: str, make: Callable[[str], Test]) -> Test:
    """Whether a text matches a pattern, if its spelling makes no difference.

    It cannot be told for one that does not match but would in another normal form; nor for one that matches but
    would not if it were composed, as text is usually written.
    """
    matches = make(pattern)
    others = [matches, *_made(make, spellings(pattern))]
    composing = [matches, *_made(make, [normal(pattern, "NFC")])]
    is_plain = pattern.isascii()

    def test(value: Any) -> bool | None:
        if not isinstance(value, str):
            return None
        told = matches(value)
        if told is None or (is_plain and value.isascii()):
            return told
        try:
            if told:
                composed = normal(value, "NFC")
                return True if any(each(composed) for each in composing) else None
            respelt = [value, *spellings(value)]
        except Untellable:
            return None
        return None if any(each(it) for it in respelt for each in others) else False

    return test


def _made(make: Callable[[str], Test], patterns: Sequence[str]) -> Iterator[Test]:
    """Patterns in other normal forms, as tests; one that makes no sense in a form is left out."""
    for pattern in patterns:
        with suppress(ValueError):
            yield make(pattern)


def _regex(pattern: str) -> SchemaValidator:
    try:
        return SchemaValidator(
            core_schema.str_schema(pattern=pattern, strict=True, regex_engine="rust-regex")
        )
    except SchemaError as error:
        why = str(error).splitlines()[-1].strip().removeprefix("error: ").removeprefix("SchemaError: ")
        raise ValueError(f"is no regular expression that can be used: {why.rstrip('.')}") from None


def ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any], Test]:
    """Numbers in an order; True and False are no numbers."""

    def make(operand: Any) -> Test:
        if not _is_number(operand):
            raise ValueError(f"needs a number, not {_kind(operand)}")
        return lambda value: compare(value, operand) if _is_number(value) else None

    return make


less, less_or_equal = ordered(operator.lt), ordered(operator.le)
greater, greater_or_equal = ordered(operator.gt), ordered(operator.ge)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def _kind(value: Any) -> str:
    """A value's JSON type, by which it can be compared with another."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list | tuple) else "an object"


class _Expected:
    """What a rule says a value is, as it is written and in a normal form."""

    __slots__ = ("_longest", "_normal", "_written")

    def __init__(self, operand: Any) -> None:
        try:
            self._written = canonical_json(operand)
            self._normal = canonical_json(normal_json(operand))
        except (InvalidMessage, TypeError, RecursionError):
            raise ValueError("needs a value that JSON can hold") from None
        self._longest = _DECOMPOSED * len(self._normal)

    def is_equal(self, value: Any) -> bool | None:
        """Whether a value is this; None where only a normal form of it is, or where it is no JSON."""
        try:
            written = canonical_json(value)
            if written == self._written:
                return True
            if len(written) > self._longest or (written.isascii() and self._written.isascii()):
                return False
            return None if canonical_json(normal_json(value)) == self._normal else False
        except (InvalidMessage, TypeError, RecursionError, Untellable):
            return None


def _items(operand: Any) -> Sequence[Any]:
    if not isinstance(operand, list | tuple) or not operand:
        raise ValueError("needs a list with something in it")
    return cast("Sequence[Any]", operand)


def _text(operand: Any) -> str:
    if not isinstance(operand, str) or not operand:
        raise ValueError(f"needs text, not {_kind(operand) if operand != '' else 'an empty one'}")
    return operand
