"""What every object of the protocol shares: reading, writing, scalars, faults, digests, lenient reading."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Annotated, Any, Generic, NamedTuple, Self, TypeVar, Union, cast, get_args, get_origin

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    StrictBool,
    StrictFloat,
    StrictInt,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema, from_json, to_json

from askfirst.digests import canonical_json
from askfirst.errors import InvalidMessage, InvalidProtocolObject
from askfirst.limits import FAULTS, URL_CHARACTERS

# Scalars: text, numbers, times, addresses, free JSON.


Text = Annotated[str, StringConstraints(strict=True, min_length=0)]
"""Any text that is valid Unicode; a constraint, however idle, makes pydantic refuse lone surrogates."""

CaseId = Annotated[Text, StringConstraints(pattern=r"^[a-zA-Z0-9_-]+$")]
"""A case's name, safe in an address."""

Flag = StrictBool
Number = StrictInt | StrictFloat


def _whole(value: object) -> object:
    """JSON has one kind of number: 3.0 is as whole as 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(strict=True, ge=0), BeforeValidator(_whole)]
"""A whole number from 0."""
Positive = Annotated[int, Field(strict=True, ge=1), BeforeValidator(_whole)]
"""A whole number from 1."""

_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-][0-9]{2}:[0-5][0-9])",
    re.IGNORECASE,
)


def _rfc_3339(value: object) -> object:
    if isinstance(value, datetime):
        return value
    if isinstance(value, str) and _RFC_3339.fullmatch(value):
        seconds, dot, fraction = value.partition(".")
        zone = fraction.lstrip("0123456789")
        return f"{seconds}.{fraction[: -len(zone)][:6]}{zone}" if dot else value
    raise ValueError("must be a date and time such as 2026-02-22T10:00:00Z")


Time = Annotated[AwareDatetime, BeforeValidator(_rfc_3339)]
"""A moment: RFC 3339 on the wire, a datetime with a time zone in Python."""

_PATH = r"[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2}"
_URI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*:"
    r"(?://(?:(?:[A-Za-z0-9\-._~!$&'()*+,;=:]|%[0-9A-Fa-f]{2})*@)?"
    r"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
    rf"(?:/(?:{_PATH})*)?|(?!//)(?:{_PATH})*)"
    rf"(?:\?(?:{_PATH}|\?)*)?(?:\#(?:{_PATH}|\?)*)?"
)
_SERVICE = r"^(https://.+|http://(localhost|127\.0\.0\.1)(:[0-9]+)?(/.*)?$)"
_IS_SERVICE = re.compile(_SERVICE)


def is_uri(text: str) -> bool:
    """Whether a text is a complete address (RFC 3986), of whatever scheme, and not longer than any need be."""
    return len(text) <= URL_CHARACTERS and _URI.fullmatch(text) is not None


def _uri(value: str) -> str:
    if len(value) > URL_CHARACTERS:
        raise ValueError(f"must have at most {URL_CHARACTERS} characters")
    if not is_uri(value):
        raise ValueError("must be a complete address such as https://example.com/a")
    return value


def _service(value: str) -> str:
    if not _IS_SERVICE.match(value):
        raise ValueError("must be an https address (http only on localhost or 127.0.0.1)")
    return value


Uri = Annotated[Text, AfterValidator(_uri), WithJsonSchema({"type": "string", "format": "uri"})]
"""A complete address."""

ServiceUrl = Annotated[
    Text,
    AfterValidator(_uri),
    AfterValidator(_service),
    WithJsonSchema({"type": "string", "format": "uri", "pattern": _SERVICE}),
]
"""An address that a case's parties call: https, or http on this machine."""

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


def is_email(text: str) -> bool:
    """Whether a text looks like an e-mail address: one @ with something on both sides, no blanks."""
    return _EMAIL.fullmatch(text) is not None


def _email(value: str) -> str:
    if not is_email(value):
        raise ValueError("must be an e-mail address")
    return value


Email = Annotated[Text, AfterValidator(_email), WithJsonSchema({"type": "string", "format": "email"})]
"""An e-mail address."""


def encodable(value: Any) -> Any:
    """Refuse what JSON cannot hold or no parser reads again: NaN, lone surrogates, bottomless nesting."""
    from_json(to_json(value, inf_nan_mode="constants"), allow_inf_nan=False)
    return value


def json_digest(facts: Mapping[str, Any], name: str) -> str:
    """SHA-256 (hex) over facts as canonical JSON; raises `InvalidProtocolObject` for ``name`` if they have none."""
    try:
        return hashlib.sha256(canonical_json(facts)).hexdigest()
    except InvalidMessage as error:
        raise InvalidProtocolObject("Result", {name: f"cannot be signed: {error.problem}"}) from None


Json = Annotated[JsonValue, AfterValidator(encodable)]
"""Any JSON."""
JsonObject = Annotated[dict[str, JsonValue], AfterValidator(encodable)]
"""Any JSON object."""


@dataclass(frozen=True, slots=True)
class OneOfOrCustom:
    """Marks text that is one of the protocol's names, or a service's own that begins with ``x-``."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        return {"type": "string", "anyOf": [{"enum": list(self.names)}, {"pattern": "^x-"}]}

    def _check(self, value: str) -> str:
        if value not in self.names and not value.startswith("x-"):
            raise ValueError(f"must be one of {', '.join(self.names)}, or begin with x-")
        return value


# What is wrong with an object, as sentences by path, without any value of it.


_SENTENCES = {
    "missing": "is required",
    "extra_forbidden": "is no field of the protocol here",
    "string_type": "must be text",
    "string_unicode": "must be valid Unicode",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "greater_than_equal": "must be at least {ge}",
    "list_type": "must be a list",
    "too_short": "must have at least {min_length} item",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "literal_error": "must be {expected}",
    "timezone_aware": "must have a time zone",
    "value_error": "{error}",
}


def faults_of(error: ValidationError, data: Any) -> dict[str, str]:
    """Pydantic's complaints about some data: a sentence for each path, such as ``hitl.reminder_at[0]``.

    There is one more than are reported (`askfirst.limits.FAULTS`) if there are many.
    """
    faults: dict[str, str] = {}
    for each in error.errors(include_url=False, include_input=False):
        if len(faults) > FAULTS:
            break
        path = _path(each["loc"], data)
        sentence = _sentence(each["type"], each["msg"], each.get("ctx", {}))
        if path not in faults:
            faults[path] = sentence
        elif sentence not in faults[path]:
            faults[path] += f", or {sentence}"
    return faults


def _sentence(kind: str, message: str, facts: Mapping[str, Any]) -> str:
    if kind.startswith("datetime"):
        return "must be a date and time such as 2026-02-22T10:00:00Z"
    return _SENTENCES[kind].format(**facts) if kind in _SENTENCES else message


def _path(loc: Sequence[int | str], data: Any) -> str:
    """A location as a path into the data, without the union tags that pydantic puts between its steps."""
    path = ""
    for place, step in enumerate(loc):
        if isinstance(data, Mapping) and isinstance(step, str):
            known = cast("Mapping[str, Any]", data)
            if step not in known and place < len(loc) - 1:
                continue
            path, data = f"{path}.{step}", known.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            path, data = f"{path}[{step}]", cast("list[Any]", data)[step]
    return path.removeprefix(".")


_T = TypeVar("_T")
_Init = TypeVar("_Init", bound=Callable[..., None])


def _plain_init(init: _Init) -> _Init:
    """Mark an ``__init__`` that decoding need not go through; see `askfirst.messages`."""
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
                raise InvalidProtocolObject(cls.__name__, {"": f"is not JSON: {error}"}) from None
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
        for each in handler.resolve_ref_schema(schema).get("properties", {}).values():
            if each.get("default", "") is None:
                del each["default"]
        return schema


class OpenWire(Wire):
    """The base of objects to which a service may add fields of its own; they are kept."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    @model_validator(mode="after")
    def _own_fields_are_json(self) -> Self:
        encodable(self.__pydantic_extra__)
        return self


# Lenient reading, for objects of other parties.
#
# `Wire.read` is for what we write ourselves, and refuses an object for one unknown field. An agent that waits for
# a person cannot afford that: a service adds a field, or writes an optional one in its own way, and the wait goes
# on. So the objects of other parties are read field by field. A value that cannot be used is set aside, and kept.


MOST_ITEMS = 1_000
"""Of a list that the protocol knows, such as ``reminder_at``; a longer one cannot be used."""
MOST_FIELDS = 20_000
"""And items, of an object with all the objects in it; what comes after them cannot be used."""
MOST_BYTES = 64_000
"""Of what is set aside of an object, as JSON: more than that is not kept."""

W = TypeVar("W", bound=Wire)


@dataclass(frozen=True, slots=True)
class Lenient(Generic[W]):
    """An object that was read with leniency, and what of it is not in ``value``."""

    value: W
    aside: dict[str, Any] = field(repr=False)
    """The fields that the protocol does not know, and those whose values cannot be used, in their places."""
    odd: frozenset[str] = frozenset()
    """The paths of the latter, such as ``result.signature.signer``."""

    def is_odd(self, name: str) -> bool:
        """Whether a field, or something in it, could not be used."""
        return any(path == name or path.startswith((f"{name}.", f"{name}[")) for path in self.odd)


def read_leniently(model: type[W], data: Mapping[str, Any]) -> Lenient[W]:
    """Read an object whose required fields are right, whatever its other fields are.

    An optional field that cannot be used, or is null, counts as absent; a field that the protocol does not know
    is left out; so it is in the objects inside. A list keeps the items that can be used. Raises
    `InvalidProtocolObject` for required fields only. What a hostile object costs is bounded: see `MOST_ITEMS`
    and `MOST_FIELDS`.
    """
    reader = _Reader()
    taken, aside, faults = reader.fields(model, data)
    if faults:
        raise InvalidProtocolObject(model.__name__, faults)
    try:
        value = model.model_validate(taken)
    except ValidationError as error:
        raise InvalidProtocolObject(model.__name__, faults_of(error, taken)) from None
    return Lenient(value, _storable(aside), frozenset(reader.odd))


def _storable(aside: dict[str, Any]) -> dict[str, Any]:
    """The values that were set aside; none if they are not JSON, or are too large to store."""
    try:
        told = to_json(aside, inf_nan_mode="constants")
        return {} if len(told) > MOST_BYTES else cast("dict[str, Any]", from_json(told, allow_inf_nan=False))
    except ValueError:
        return {}


_TOO_MANY = "is one field too many"


@dataclass(frozen=True, slots=True)
class _Unusable:
    fault: str


class _Used(NamedTuple):
    """A value as far as it can be used, and what of it is set aside."""

    value: Any
    aside: Any = None


class _Reader:
    """Reads one object, and counts what it looks at."""

    def __init__(self) -> None:
        self.odd: set[str] = set()
        self._looked_at = 0

    def fields(
        self, model: type[Wire], data: Mapping[str, Any], path: str = ""
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
        """The fields of an object that can be used, what is set aside, and the faults of the required ones."""
        known = {info.alias or name: name for name, info in model.model_fields.items()}
        taken: dict[str, Any] = {}
        aside = {name: value for name, value in data.items() if name not in known}
        faults: dict[str, str] = {}
        for wire_name, name in known.items():
            value, is_required = data.get(wire_name), model.model_fields[name].is_required()
            if value is None:
                if is_required:
                    faults[wire_name] = "is required"
                continue
            used = self._used(model, name, value, f"{path}{wire_name}")
            if isinstance(used, _Unusable):
                self.odd.add(f"{path}{wire_name}")
                aside[wire_name] = value
                if is_required:
                    faults[wire_name] = used.fault
                continue
            taken[wire_name] = used.value
            if used.aside is not None:
                aside[wire_name] = used.aside
        return taken, aside, faults

    def _used(self, model: type[Wire], name: str, value: Any, path: str) -> _Used | _Unusable:
        self._looked_at += 1
        if self._looked_at > MOST_FIELDS:
            return _Unusable(_TOO_MANY)
        inner, is_list = _inside(model.model_fields[name])
        if is_list and isinstance(value, list):
            return self._list(model, name, cast("list[Any]", value), inner, path)
        if inner is not None and not is_list:
            return self._object(inner, value, path)
        fault = _fault(model, name, value)
        return _Used(value) if fault is None else _Unusable(fault)

    def _object(self, model: type[Wire], value: Any, path: str) -> _Used | _Unusable:
        if not isinstance(value, Mapping):
            return _Unusable("must be an object")
        taken, aside, faults = self.fields(model, cast("Mapping[str, Any]", value), f"{path}.")
        if not faults:
            try:
                model.model_validate(taken)
            except ValidationError as error:
                faults = faults_of(error, taken)
        if faults:
            told = (f"its {name} {fault}" if name else fault for name, fault in faults.items())
            return _Unusable("; ".join(told))
        return _Used(taken, aside or None)

    def _list(
        self, model: type[Wire], name: str, items: list[Any], inner: type[Wire] | None, path: str
    ) -> _Used | _Unusable:
        if len(items) > MOST_ITEMS:
            return _Unusable(f"has more than {MOST_ITEMS} items")
        self._looked_at += len(items)
        if self._looked_at > MOST_FIELDS:
            return _Unusable(_TOO_MANY)
        usable: list[Any] = []
        is_whole = True
        for place, item in enumerate(items):
            here = f"{path}[{place}]"
            if inner is not None:
                used = self._object(inner, item, here)
            else:
                fault = _fault(model, name, [item])
                used = _Used(item) if fault is None else _Unusable(fault)
            if isinstance(used, _Unusable):
                self.odd.add(here)
                is_whole = False
            else:
                usable.append(used.value)
                is_whole = is_whole and used.aside is None
        if items and not usable:
            return _Unusable("has no item that can be used")
        return _Used(usable, None if is_whole else items)


def _fault(model: type[Wire], name: str, value: Any) -> str | None:
    """What is wrong with the value of a single field."""
    try:
        _adapter(model, name).validate_python(value)
    except ValidationError as error:
        return "; ".join(faults_of(error, value).values())
    return None


@cache
def _adapter(model: type[Wire], name: str) -> TypeAdapter[Any]:
    """The pydantic adapter that checks a single field of a model."""
    info = model.model_fields[name]
    kind: Any = info.annotation
    for each in info.metadata:
        kind = cast(Any, Annotated)[kind, each]
    return TypeAdapter[Any](kind)


def _inside(info: FieldInfo) -> tuple[type[Wire] | None, bool]:
    """The model of the objects in a field, if it holds such, and whether it holds a list."""
    for kind in _kinds(info.annotation):
        if get_origin(kind) is list:
            (item,) = get_args(kind)
            return (item if _is_wire(item) else None), True
        if _is_wire(kind):
            return kind, False
    return None, False


def _is_wire(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Wire)


def _kinds(annotation: Any) -> Iterator[Any]:
    """The members of a union, or the one kind that it is."""
    if get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from _kinds(each)
    elif get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    else:
        yield annotation
