"""What every object of the protocol shares: how it is read, written and described."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, from_json

from assent.errors import InvalidProtocolObject
from assent.protocol.faults import faults_of
from assent.protocol.scalars import encodable

_T = TypeVar("_T")
_Init = TypeVar("_Init", bound=Callable[..., None])


def _plain_init(init: _Init) -> _Init:
    """Mark an ``__init__`` that decoding need not go through; see `assent.messages`."""
    cast(Any, init).__pydantic_base_init__ = True
    return init


def _absent(value: object) -> bool:
    return value is None


class _NeverNull:
    """A field that may be absent, and is then None in Python; a null on the wire is a fault."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: dict[str, Any] = cast(Any, handler(source))
        return schema["schema"] if schema["type"] == "nullable" else cast(Any, schema)


Opt = Annotated[_T | None, _NeverNull(), Field(exclude_if=_absent)]
"""``Opt[T]``: a T, or None for a field that is not there."""


class Wire(BaseModel):
    """The base of the protocol's objects: frozen, closed to unknown fields, quiet about what it holds."""

    model_config = ConfigDict(
        defer_build=True,  # import stays quick; the first use of a type builds it
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        serialize_by_alias=True,
    )

    @_plain_init
    def __init__(self, /, **fields: Any) -> None:
        """Make an object in Python. None means that a field is not there."""
        known = type(self).model_fields
        given = {
            name: value
            for name, value in fields.items()
            if value is not None or name not in known or known[name].is_required()
        }
        try:
            self.__pydantic_validator__.validate_python(given, self_instance=self)
        except ValidationError as error:
            raise InvalidProtocolObject(type(self).__name__, faults_of(error, given)) from None

    @classmethod
    def read(cls, data: bytes | str | Mapping[str, Any]) -> Self:
        """Read an object from JSON, or from JSON that was decoded already.

        Raises `InvalidProtocolObject`, which lists every fault and quotes no value.
        """
        if isinstance(data, bytes | str):
            try:
                data = cast("Mapping[str, Any]", from_json(data, allow_inf_nan=False))
            except ValueError as error:
                raise InvalidProtocolObject(cls.__name__, {"": f"is no JSON: {error}"}) from None
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise InvalidProtocolObject(cls.__name__, faults_of(error, data)) from None

    def wire(self) -> dict[str, Any]:
        """The object as it goes over the wire, ready for a JSON encoder."""
        return self.model_dump(mode="json")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> Any:
        """Without the nulls that stand for absent fields in Python."""
        schema = handler(core_schema)
        for field in handler.resolve_ref_schema(schema).get("properties", {}).values():
            if field.get("default", "") is None:
                del field["default"]
        return schema


class OpenWire(Wire):
    """The base of objects to which a service may add fields of its own; they are kept."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    @model_validator(mode="after")
    def _own_fields_are_json(self) -> Self:
        encodable(self.__pydantic_extra__)
        return self
