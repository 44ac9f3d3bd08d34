"""Argument constraints: a path into a call's arguments, and a test of what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from askfirst.errors import InvalidPolicy
from askfirst.permissions import operators
from askfirst.permissions.operators import host_in, leads_to, within

Test = Callable[[Any], bool | None]

TESTS: Mapping[str, Callable[[Any], Test]] = {
    "equals": operators.equals,
    "not_equals": operators.negated(operators.equals),
    "in": operators.one_of,
    "not_in": operators.negated(operators.one_of),
    "glob": operators.glob,
    "regex": operators.regex,
    "lt": operators.less,
    "lte": operators.less_or_equal,
    "gt": operators.greater,
    "gte": operators.greater_or_equal,
    "within": within,
    "leads_to": leads_to,
    "host_in": host_in,
}
"""Every test by its name."""


@dataclass(frozen=True, slots=True)
class ArgConstraint:
    """A condition on one argument: ``ArgConstraint("cents", "lte", 500)``.

    ``path`` leads into the arguments: names joined by dots, numbers for places in a list, ``*`` for every item of a
    list. As a dict: ``{"path": "cents", "lte": 500}``. Raises `InvalidPolicy` for an unknown test or an operand that
    does not suit it.
    """

    path: str
    test: str
    value: Any
    _steps: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _holds: Test = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if problems := path_problems(self.path):
            raise InvalidPolicy(problems)
        object.__setattr__(self, "_steps", tuple(self.path.split(".")))
        if self.test not in TESTS:
            raise InvalidPolicy([f"{self.test!r} is not a test; there are {', '.join(TESTS)}"])
        try:
            object.__setattr__(self, "_holds", TESTS[self.test](self.value))
        except ValueError as error:
            raise InvalidPolicy([f"{self.test} {error}"]) from None

    def holds(self, args: Mapping[str, Any]) -> bool | None:
        """Whether the arguments fit: True, False, or None if that is undecidable.

        It is undecidable if the path leads nowhere, if the value has a type that the test is not for, and if ``*``
        meets an empty list or a list of which only some items fit.
        """
        told: set[bool | None] = set()
        for found, value in _values(args, self._steps):
            told.add(self._holds(value) if found else None)
        return told.pop() if len(told) == 1 else None

    @property
    def touches_files(self) -> bool:
        """Whether the test looks at the file system."""
        return self.test in ("within", "leads_to")


def all_hold(constraints: Iterable[ArgConstraint], args: Mapping[str, Any]) -> bool | None:
    """Whether all constraints hold: False if one does not, else None if one is undecidable."""
    told: bool | None = True
    for constraint in constraints:
        holds = constraint.holds(args)
        if holds is False:
            return False
        if holds is None:
            told = None
    return told


def path_problems(path: Any) -> list[str]:
    """What is wrong with a path into arguments, in sentences."""
    if not isinstance(path, str) or not path:
        return ["the path of a constraint is text such as 'to.0.email'"]
    return [f"the path {path!r} has an empty step"] if "" in path.split(".") else []


def _values(value: Any, steps: Sequence[str]) -> Iterator[tuple[bool, Any]]:
    """Each value that the steps lead to, or one ``(False, None)`` for each place where they lead nowhere."""
    if not steps:
        yield True, value
        return
    step, rest = steps[0], steps[1:]
    if isinstance(value, Mapping) and step in value:
        yield from _values(cast("Mapping[str, Any]", value)[step], rest)
    elif isinstance(value, list | tuple) and step == "*" and value:
        for item in cast("Sequence[Any]", value):
            yield from _values(item, rest)
    elif isinstance(value, list | tuple) and step.isdecimal() and step.isascii():
        items = cast("Sequence[Any]", value)
        yield from _values(items[int(step)], rest) if int(step) < len(items) else [(False, None)]
    else:
        yield False, None
