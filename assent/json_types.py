"""JSON and text as a transcript holds them: what can be written can be read again."""

from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, JsonValue, StringConstraints
from pydantic_core import CoreSchema, core_schema, from_json, to_json

Text = Annotated[str, StringConstraints(min_length=0)]
"""A string that is valid Unicode: any constraint makes pydantic refuse lone surrogates."""


class _Encodable:
    """Marks JSON that will be decoded again; only what was made in Python needs a look."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        checked = core_schema.no_info_after_validator_function(_encodable, schema)
        return core_schema.json_or_python_schema(schema, checked)


def _encodable(value: Any) -> Any:
    """Refuse lone surrogates, in keys too, and what nests deeper than a parser goes."""
    check_depth(to_json(value, inf_nan_mode="constants"))
    return value


def check_depth(encoded: bytes, within: int = 16) -> None:
    """Raise ``ValueError`` for JSON that no parser reads once it stands in a message, so many levels down."""
    if encoded.count(b"[") + encoded.count(b"{") > _SURELY_SHALLOW:
        from_json(b"[" * within + encoded + b"]" * within)


_SURELY_SHALLOW = 100
"""So few brackets cannot nest too deep, wherever they stand; the parser's limit is twice that."""


JsonObject = Annotated[dict[str, JsonValue], _Encodable()]
