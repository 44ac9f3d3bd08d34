"""How much is in JSON: counted before it is parsed, and in values that were."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from assent import limits


def has_more_values(raw: bytes, most: int) -> bool:
    """Whether a text of JSON has more than ``most`` values, names of fields not counted.

    It costs a few passes over the bytes, however many values there are.
    """
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") < most:
        return False
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * most:  # each text has two, and each value may have a name
        return True
    outside = b"".join(plain.split(b'"')[::2])
    return outside.count(b",") + outside.count(b"[") + outside.count(b"{") >= most


def count_values(data: Any, most: int) -> int:
    """How many values there are in a value of JSON, itself included; counted to one more than ``most``."""
    return sum(1 for _ in islice(_each(data), most + 1))


def depth_fault(data: Any, most: int = limits.BODY_DEPTH) -> str | None:
    """What is wrong with how deep objects and lists are within one another; None if nothing is."""
    level = [data]
    for _ in range(most + 1):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return None
    return f"must have at most {most} objects and lists within one another"


def _each(data: Any) -> Iterator[Any]:
    waiting = [data]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += _inside(each)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []
