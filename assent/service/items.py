"""The items that a case lets a person choose from: what each is chosen by, and which lists are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

LISTS: Mapping[str, str] = {"selection": "items", "confirmation": "items_to_confirm"}
"""Where a case of a type has its items in the context."""


def item_id(item: Any) -> str | None:
    """What an item is chosen by: its ``id``, or else its ``value``; a bare text or number is its own."""
    if isinstance(item, Mapping):
        fields = cast("Mapping[str, Any]", item)
        item = fields.get(id_key(fields))
    elif item == "":
        return None
    return str(item) if isinstance(item, str | int) and not isinstance(item, bool) else None


def id_key(item: Mapping[str, Any]) -> str:
    """Under which name an item has its id."""
    return "value" if item.get("id") is None else "id"


def item_faults(type_: str, context: Mapping[str, Any]) -> dict[str, str]:
    """Why nobody could choose from the items of a context; empty if they can, or if it has none."""
    name = LISTS.get(type_, "")
    given: Any = context.get(name)
    if given is None:
        return {}
    if not isinstance(given, list):
        return {f"context.{name}": "is a list of the items to choose from"}
    items = cast("list[Any]", given)
    if not items and type_ == "selection":
        return {f"context.{name}": "has nothing to choose from"}
    seen: set[str] = set()
    for place, item in enumerate(items):
        id_ = item_id(item)
        if id_ is None:
            said = 'has nothing to be chosen by: give it an id, as in {"id": "a", "title": "The first"}'
            return {f"context.{name}.{place}": said}
        if id_ in seen:
            return {f"context.{name}.{place}": f"has the id {id_[:100]!r}, which another has, too"}
        seen.add(id_)
    return {}
