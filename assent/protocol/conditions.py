"""Whether a field of a form is shown, given the answers to earlier ones."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from assent.protocol.form import Condition

ABSENT: Any = None
"""The value of a field that was left empty."""


def holds(condition: Condition, value: Any) -> bool:
    """Whether a condition holds for the value of the field it looks at.

    Values are equal as in JSON: 1 is 1.0, but not true and not "1". Of a multiple choice each chosen value
    is looked at: ``eq`` and ``in`` hold if one of them fits, ``neq`` if none does. For an empty field only
    ``neq`` holds. ``gt`` and ``lt`` compare numbers with numbers, and text with text as dates sort.
    """
    return _TESTS[condition.operator](value, condition.value)


def _equal(value: Any, other: Any) -> bool:
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, list) and not isinstance(other, list):
        return any(_equal(each, other) for each in cast("list[Any]", value))
    if isinstance(value, list) and isinstance(other, list):
        return sorted(map(repr, cast("list[Any]", value))) == sorted(map(repr, cast("list[Any]", other)))
    return value is not ABSENT and value == other


def _not_equal(value: Any, other: Any) -> bool:
    return not _equal(value, other)


def _in(value: Any, others: Any) -> bool:
    return isinstance(others, list) and any(_equal(value, each) for each in cast("list[Any]", others))


def _greater(value: Any, other: Any) -> bool:
    return _comparable(value, other) and value > other


def _less(value: Any, other: Any) -> bool:
    return _comparable(value, other) and value < other


def _comparable(value: Any, other: Any) -> bool:
    return any(_is(kind, value) and _is(kind, other) for kind in (str, (int, float)))


def _is(kind: Any, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": _equal,
    "neq": _not_equal,
    "in": _in,
    "gt": _greater,
    "lt": _less,
}
