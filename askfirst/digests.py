"""The digest of a call, to which an approval is bound, and the canonical JSON that it is computed from."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, cast

import rfc8785
from pydantic_core import to_json

from askfirst.errors import InvalidMessage


def canonical_json(value: Any) -> bytes:
    """RFC 8785 canonical JSON: equal values give equal bytes, whoever encodes them.

    Different values give different bytes. The RFC alone guarantees that only up to 2**53, because it writes every
    number as a double. Larger integers, such as many identifiers, are written here with all their digits. So are
    whole floats up to 1e21: the RFC would round 1152921504606846976.0 to 1152921504606847000, which is also an
    integer. From 1e21 on, a float is written with an exponent, which no integer has.
    """
    try:
        return to_json(_in_order(value))
    except _NotPlain:
        pass
    except ValueError as error:
        raise _no_canonical_json(error) from None
    mark = secrets.token_hex(16)
    try:
        written = rfc8785.dumps(_mark_large(value, mark))
    except ValueError as error:
        raise _no_canonical_json(error) from None
    return re.sub(rf'"{mark}(-?\d+)"'.encode(), rb"\1", written)


def _no_canonical_json(error: ValueError) -> InvalidMessage:
    return InvalidMessage("", f"no canonical JSON: {error}")


_EXACT = 2**53
"""A double holds every integer between minus this and this exactly."""


class _NotPlain(Exception):
    """A value that pydantic's encoder may write differently from the RFC."""


def _in_order(value: Any) -> Any:
    """The value with its keys sorted, for pydantic's encoder, which is twenty times faster than the RFC's.

    Raises `_NotPlain` for floats, large integers and keys that are not ASCII, where the two encoders differ. A test
    keeps both equal for all other values.
    """
    kind = value.__class__
    if kind is str or kind is bool or value is None:
        return value
    if kind is dict:
        fields: dict[Any, Any] = value
        for key in fields:
            if not (key.__class__ is str and key.isascii()):
                raise _NotPlain
        ordered: dict[str, Any] = {}
        for key in sorted(fields):  # a loop: before Python 3.12 a comprehension is a call
            item = fields[key]
            kind = item.__class__
            is_plain = kind is str or (kind is int and -_EXACT < item < _EXACT)
            ordered[key] = item if is_plain else _in_order(item)
        return ordered
    if kind is list:
        return [_in_order(item) for item in value]
    if kind is int and -_EXACT < value < _EXACT:
        return value
    raise _NotPlain


def _mark_large(value: Any, mark: str) -> Any:
    """The value with each number that the RFC would round replaced by a marked text. `canonical_json` turns the
    marked texts back into digits."""
    if isinstance(value, int) and not -_EXACT < value < _EXACT:
        return f"{mark}{value}"
    if isinstance(value, float) and _EXACT <= abs(value) < 1e21:  # a double that large is whole
        return f"{mark}{int(value)}"
    if isinstance(value, dict):
        return {key: _mark_large(item, mark) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_mark_large(item, mark) for item in cast("Sequence[Any]", value)]
    return value


def call_digest(name: str, args: Mapping[str, Any]) -> str:
    """SHA-256 (hex) over the canonical JSON of a tool's name and arguments.

    An approval is bound to it: what was seen is what runs.
    """
    return hashlib.sha256(canonical_json({"args": args, "name": name})).hexdigest()
