"""What a question is put with: refused in a sentence where it makes none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_LONGEST = 1e12
"""The longest time-out in seconds: every store can keep its deadline."""


def checked_seconds(timeout: Any) -> float | None:
    """A time-out that a deadline can be made of."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise ValueError(f"a time-out is a number of seconds, or None for no limit; {timeout!r} is neither")
    if not 0 <= timeout <= _LONGEST:  # nan is not, either
        allowed = f"from 0 to {_LONGEST:g} seconds, or None for no limit"
        raise ValueError(f"a time-out is {allowed}; {timeout!r} is not")
    return timeout


def checked_choices(choices: Sequence[str]) -> list[str]:
    """Choices that a person can tell apart."""
    listed = list(choices)
    if isinstance(choices, str):
        raise ValueError(f"choices are a list of texts; {choices!r} is a single one")
    if not listed:
        raise ValueError("choices are empty; there is nothing to choose from")
    for choice in listed:
        if not choice or choice.isspace():
            raise ValueError(f"a choice has a text; {choice!r} has none")
        if listed.count(choice) > 1:
            raise ValueError(f"choices differ from one another; {choice!r} is there twice")
    return listed
