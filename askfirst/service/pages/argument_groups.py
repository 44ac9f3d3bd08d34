"""Groups of a call's many arguments: those that have the tool's default value, and those that differ from it.

The defaults are those of the tool's JSON Schema, so they come from its author, never from the model. An argument
without a default is in neither group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from askfirst.digests import canonical_json
from askfirst.errors import InvalidMessage
from askfirst.json_schema import MASK

MANY = 13
"""The least number of arguments that the page groups: it shows those that differ, and folds those with defaults."""
Group = Literal["first", "differs", "usual"]
"""``first``: important, or not comparable with a default. ``usual``: has the default value, and is folded."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """The arguments of a call by group. ``differing`` are the names of those that differ, important ones included."""

    groups: Mapping[str, Group]
    differing: frozenset[str]
    has_secrets: bool
    """Whether values were not compared because they are secret or masked."""


def defaults_of(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The defaults that a tool's JSON Schema has for its arguments, by name."""
    known: Any = (schema or {}).get("properties")
    if not isinstance(known, dict):
        return {}
    return {
        name: cast("dict[str, Any]", it)["default"]
        for name, it in cast("dict[str, Any]", known).items()
        if isinstance(it, dict) and "default" in it
    }


def grouped(
    values: Mapping[str, Any],
    defaults: Mapping[str, Any],
    *,
    secret: Collection[str],
    important: Collection[str],
    is_striking: Callable[[str], bool],
) -> Grouped:
    """Group the arguments of a call.

    A ``secret`` or masked value is not compared with its default. ``is_striking`` says of a name whether its value
    matches a risk pattern or has hidden characters: such a value is never folded.
    """
    groups: dict[str, Group] = {}
    differing: set[str] = set()
    has_secrets = False
    for name, value in values.items():
        unseen = name in secret or _is_masked(value)
        has_secrets = has_secrets or unseen
        differs = None if unseen or name not in defaults else _differ(value, defaults[name])
        if differs:
            differing.add(name)
        if differs is None or name in important:
            groups[name] = "first"
        elif differs:
            groups[name] = "differs"
        else:
            groups[name] = "first" if is_striking(name) else "usual"
    return Grouped(groups, frozenset(differing), has_secrets)


def _differ(value: Any, default: Any) -> bool | None:
    """Whether two values differ as JSON; None if one of them has no canonical JSON."""
    try:
        return canonical_json(value) != canonical_json(default)
    except InvalidMessage:
        return None


def _is_masked(value: Any) -> bool:
    """Whether the value contains the mask, which is the same for every hidden value and so cannot be compared."""
    waiting = [value]
    while waiting:
        it = waiting.pop()
        if isinstance(it, dict):
            waiting += cast("dict[str, Any]", it).values()
        elif isinstance(it, list):
            waiting += cast("list[Any]", it)
        elif it == MASK:
            return True
    return False
