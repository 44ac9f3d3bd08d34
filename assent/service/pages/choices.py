"""The items that a person chooses from, in a selection or a confirmation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from assent.service.case import Case
from assent.service.items import LISTS, id_key, item_id
from assent.service.pages.passage import Passage, passage
from assent.service.pages.shown import Shown, shown_all

_TITLES = ("title", "label", "name")
_DESCRIPTION = "description"


@dataclass(frozen=True, slots=True)
class Choice:
    """One item: its id, what it is called, and what is said about it."""

    id: str
    name: str
    description: Passage | None
    facts: list[Shown]

    @property
    def title(self) -> Passage:
        """What it is called."""
        return passage(self.name)


def choices_of(case: Case) -> list[Choice]:
    """The items on offer, in order; none where the context has none that can be told apart."""
    given: Any = case.context.get(LISTS.get(case.type, ""))
    items = [_choice(item) for item in cast("list[Any]", given)] if isinstance(given, list) else []
    choices = [item for item in items if item is not None]
    distinct = len({choice.id for choice in choices}) == len(items)
    return choices if distinct else []


def takes_one(case: Case) -> bool:
    """Whether only one item may be chosen."""
    return case.context.get("multiple") is False


def needs_one(case: Case) -> bool:
    """Whether choosing nothing is no answer."""
    return case.context.get("required", True) is not False


def _choice(item: Any) -> Choice | None:
    id_ = item_id(item)
    if id_ is None:
        return None
    if not isinstance(item, Mapping):
        return Choice(id_, id_, None, [])
    fields = cast("Mapping[str, Any]", item)
    named = next((name for name in _TITLES if isinstance(fields.get(name), str) and fields[name]), None)
    about = fields.get(_DESCRIPTION)
    told = _DESCRIPTION if isinstance(about, str) and about else None
    rest = {
        name: value
        for name, value in fields.items()
        if name not in (id_key(fields), named, told) and value is not None
    }
    return Choice(
        id_,
        id_ if named is None else fields[named],
        None if told is None else passage(fields[told]),
        shown_all(rest),
    )
