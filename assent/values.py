"""What all values of a transcript have in common: frozen, keeping what they do not know, quick to make."""

from collections.abc import Callable
from functools import cache
from typing import Any, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from assent.errors import InvalidMessage

_Init = TypeVar("_Init", bound=Callable[..., None])
_JSON_FIELDS = ("args", "details", "provider")


def plain_init(init: _Init) -> _Init:
    """Mark an ``__init__`` that adds nothing to pydantic's own but its signature and its error type.

    Without the mark pydantic would call it for every value it decodes; decoding needs no such detour.
    (Should pydantic ever drop the mark, decoding gets slower and nothing else changes.)
    """
    cast(Any, init).__pydantic_base_init__ = True
    return init


class Value(BaseModel):
    """The base of all transcript values: frozen, and keeping fields it does not know."""

    model_config = ConfigDict(
        defer_build=True,  # import stays quick; the first use of a type builds it
        frozen=True,
        extra="allow",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        ser_json_bytes="base64",
        ser_json_inf_nan="constants",  # kept in sight, for `encode` to refuse
        val_json_bytes="base64",
    )

    @plain_init
    def __init__(self, **fields: Any) -> None:
        try:
            self.__pydantic_validator__.validate_python(fields, self_instance=self)
        except ValidationError as error:
            raise invalid_value(error, error.errors(include_url=False)[0]["loc"]) from None

    @classmethod
    def of_valid(cls, **fields: Any) -> Self:
        """A value of fields that are valid, each as it is kept; nothing is looked at, and nothing copied.

        It is pydantic's ``model_construct`` in a tenth of its time.
        """
        value = cls.__new__(cls)
        fill(value, fields)
        return value


def fill(value: Value, fields: dict[str, Any]) -> None:
    """Give a new value its fields, which are valid as they are."""
    _set(value, "__dict__", _defaults(value.__class__) | fields)
    _set(value, "__pydantic_fields_set__", set(fields))
    _set(value, "__pydantic_extra__", {})
    _set(value, "__pydantic_private__", None)


_set = object.__setattr__


@cache
def _defaults(kind: type[Value]) -> dict[str, Any]:
    """All fields in their order, with what they are if nothing is said."""
    return {name: field.default for name, field in kind.model_fields.items()}


def invalid_value(error: ValidationError, loc: tuple[int | str, ...]) -> InvalidMessage:
    """The first of pydantic's complaints, its location written as a path."""
    more = error.error_count() - 1
    problem = error.errors(include_url=False)[0]["msg"] + (f" (and {more} more)" if more else "")
    return InvalidMessage(_path(loc), problem)


def _path(loc: tuple[int | str, ...]) -> str:
    """A location as a path into the data, without the union tags that pydantic puts between its steps."""
    path, is_tag, in_json = "", False, False
    for step in loc:
        if is_tag:
            is_tag = False
            continue
        is_tag = in_json or (isinstance(step, int) and path == ".content")
        in_json = in_json or step in _JSON_FIELDS
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")
