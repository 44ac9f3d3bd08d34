"""Results of other frameworks' tools: encoded as JSON for the ledger, and decoded again."""

from __future__ import annotations

from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from askfirst.adapters.gated_call import Codec
from askfirst.messages import JsonObject

_PLAIN, _LIST = "value", "list"


def result_codec(*kinds: type[Any]) -> Codec[Any]:
    """A codec for results that are JSON, or values of ``kinds``, alone or in a list: they come back as equal values.

    ``kinds`` are dataclasses or pydantic models. Any other result is decoded as the JSON that pydantic made of it.
    """
    known: dict[str, TypeAdapter[Any]] = {kind.__name__: TypeAdapter(kind) for kind in kinds}

    def encode(result: Any) -> JsonObject:
        if isinstance(result, kinds):
            name = next(it.__name__ for it in kinds if isinstance(result, it))
            return {name: known[name].dump_python(result, mode="json", by_alias=True, fallback=str)}
        if isinstance(result, list) and any(isinstance(it, kinds) for it in cast("list[Any]", result)):
            return {_LIST: [encode(it) for it in cast("list[Any]", result)]}
        return {_PLAIN: to_jsonable_python(result, by_alias=True, bytes_mode="base64", fallback=str)}

    def decode(stored: Any) -> Any:
        [(name, value)] = stored.items()
        if name == _LIST:
            return [decode(it) for it in value]
        return value if name == _PLAIN else known[name].validate_python(value)

    return Codec(encode, decode)
