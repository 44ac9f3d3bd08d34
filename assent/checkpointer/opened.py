"""What each part of an SQL checkpointer stands on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from assent.errors import StoreError
from assent.messages import JsonObject

if TYPE_CHECKING:
    from assent.store.store import Store


class Opened(ABC):
    """A checkpointer's store and its time."""

    @property
    @abstractmethod
    def _store(self) -> Store:
        """The open store; raises `StoreError` if it is not open."""

    @abstractmethod
    def _now(self) -> int:
        """Milliseconds since 1970, by the checkpointer's clock."""


def encode_body(body: JsonObject) -> str:
    """A body as JSON that can be read again; raises `StoreError` for one that is none."""
    try:
        encoded = to_json(body)
        is_object = isinstance(from_json(encoded, allow_inf_nan=False), dict)
    except (ValueError, PydanticSerializationError) as error:
        raise StoreError(f"this body is no JSON: {error}") from None
    if not is_object:
        raise StoreError(f"a body is a JSON object, not a {type(body).__name__}")
    return encoded.decode()


def decode_body(body: str) -> JsonObject:
    """What `encode_body` was given."""
    return cast(JsonObject, from_json(body))
