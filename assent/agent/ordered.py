"""Sets in one order: Python's own differs from process to process, and digests and people compare."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from assent.digests import canonical_json
from assent.messages import JsonObject


def in_order(model: BaseModel, shown: JsonObject) -> JsonObject:
    """What is shown of a model, with all that are sets in it sorted."""
    return (
        _beside(model.model_dump(by_alias=True, warnings=False), shown) if _has_sets(type(model)) else shown
    )


@lru_cache(1024)
def _has_sets(model: type[BaseModel]) -> bool:
    try:
        return "'uniqueItems': True" in repr(model.model_json_schema())
    except PydanticUserError:  # something in it has no JSON form, and no tool takes such a model
        return False


def _beside(value: Any, shown: Any) -> Any:
    if isinstance(value, set | frozenset) and isinstance(shown, list):
        return sorted(cast("list[Any]", shown), key=canonical_json)
    if isinstance(value, Mapping) and isinstance(shown, dict):
        parts, entries = list(cast("Mapping[Any, Any]", value).values()), cast(JsonObject, shown)
        if len(parts) != len(entries):  # two keys that are one in JSON
            return entries
        return {key: _beside(part, each) for part, (key, each) in zip(parts, entries.items(), strict=True)}
    if isinstance(value, list | tuple) and isinstance(shown, list):
        pairs = zip(cast("list[Any]", value), cast("list[Any]", shown), strict=True)
        return [_beside(part, each) for part, each in pairs]
    return shown
