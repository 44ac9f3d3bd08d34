"""The results of bodies as JSON, encoded and decoded by the function's return annotation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from askfirst.errors import FailedBefore, ResultNotKept
from askfirst.gate.outcomes import Stored
from askfirst.visible_text import error_text

MOST_BYTES = 1_000_000
"""A larger result is kept as its digest alone."""


class Results:
    """Encodes and decodes what one function returns."""

    __slots__ = ("_adapter",)

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        if function is None:
            return
        try:
            annotation = get_type_hints(function, include_extras=True).get("return", Any)
            self._adapter = TypeAdapter(annotation)
        except (PydanticUserError, NameError, TypeError):
            pass  # no annotation that pydantic knows: what is JSON is kept, and the rest is not

    def encode(self, value: Any) -> Stored:
        """What is stored of a result."""
        try:
            text = (
                to_json(value) if self._adapter is None else self._adapter.dump_json(value, warnings="error")
            )
        except (PydanticSerializationError, ValueError, TypeError) as error:
            written = repr(value).encode("utf-8", "replace")
            return _unkept(written, f"it has no JSON form: {type(error).__name__}")
        if len(text) > MOST_BYTES:
            return _unkept(text, f"it has {len(text):,} bytes, and {MOST_BYTES:,} are kept")
        return Stored(value=from_json(text))

    def decode(self, key: str, stored: Stored) -> Any:
        """The result again. Raises `FailedBefore` and `ResultNotKept`."""
        if stored.error is not None:
            raise FailedBefore(key, stored.error)
        if stored.digest is not None:
            raise ResultNotKept(key, stored.digest, stored.problem or "unknown")
        if self._adapter is None:
            return stored.value
        try:
            return self._adapter.validate_json(to_json(stored.value))
        except ValidationError:
            digest = hashlib.sha256(to_json(stored.value)).hexdigest()
            raise ResultNotKept(
                key, digest, "it does not fit the function's return annotation any more"
            ) from None


PLAIN = Results()
"""For results without a known type, which have to be JSON."""


def failure(error: BaseException) -> Stored:
    """What is stored of an exception: its type and what it says, up to 2,000 characters."""
    return Stored(error=error_text(error)[:2000])


def _unkept(written: bytes, problem: str) -> Stored:
    return Stored(digest=hashlib.sha256(written).hexdigest(), problem=problem)
