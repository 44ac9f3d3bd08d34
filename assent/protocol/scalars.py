"""The single values of the protocol's objects: text, numbers, times, addresses, free JSON."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    StrictBool,
    StrictFloat,
    StrictInt,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema, from_json, to_json

from assent.limits import URL_CHARACTERS

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
