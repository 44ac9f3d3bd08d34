"""Whether one value fits one field of a form."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, cast

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from assent.protocol.form import FieldValidation, FormField
from assent.protocol.scalars import is_email, is_uri

LONGEST_TEXT = 1_000_000
"""How many characters a text may have where the form sets no bound of its own."""

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WEB = re.compile(r"https?://[^/?#]", re.IGNORECASE)


def is_empty(value: Any) -> bool:
    """Whether a value is no answer: null, blank text, or a choice of nothing."""
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def fault_of(field: FormField, value: Any) -> str | None:
    """What is wrong with a value that is not empty, as a sentence; None if it fits."""
    return _CHECKS.get(field.type, _text)(field, value)


def pattern_fault(pattern: str) -> str | None:
    """Why a pattern cannot be used; None if it can."""
    try:
        _regex(pattern)
    except SchemaError as error:
        why = str(error).splitlines()[-1].strip().removeprefix("error: ").removeprefix("SchemaError: ")
        return f"is no regular expression that can be used: {why.rstrip('.')}"
    return None


def _regex(pattern: str) -> SchemaValidator:
    """A test of the whole text in linear time: this engine never backtracks."""
    for each in (pattern, rf"\A(?:{pattern})\z"):  # by itself first, so that no bracket of it can close ours
        validator = SchemaValidator(
            core_schema.str_schema(pattern=each, strict=True, regex_engine="rust-regex")
        )
    return validator  # pyright: ignore[reportPossiblyUnbound]


def _text(field: FormField, value: Any) -> str | None:
    if not isinstance(value, str):
        return "must be text"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "must be valid Unicode"
    bounds = field.validation or FieldValidation()
    longest = LONGEST_TEXT if bounds.max_length is None else bounds.max_length
    if len(value) > longest:
        return f"must have at most {longest} characters"
    if bounds.min_length is not None and len(value) < bounds.min_length:
        return f"must have at least {bounds.min_length} characters"
    if bounds.pattern is not None and field.type != "textarea" and not _matches(bounds.pattern, value):
        return "does not have the expected form"
    return None


def _matches(pattern: str, value: str) -> bool:
    try:
        _regex(pattern).validate_python(value)
    except ValidationError:
        return False
    return True


def _email(field: FormField, value: Any) -> str | None:
    fault = _text(field, value)
    return fault or (None if is_email(value) else "must be an e-mail address")


def _url(field: FormField, value: Any) -> str | None:
    fault = _text(field, value)
    if fault or (is_uri(value) and _WEB.match(value)):
        return fault
    return "must be an address that begins with https:// or http://"


def _number(field: FormField, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "must be a number"
    bounds = field.validation or FieldValidation()
    if bounds.min is not None and value < bounds.min:
        return f"must be at least {bounds.min}"
    if bounds.max is not None and value > bounds.max:
        return f"must be at most {bounds.max}"
    return None


def _date(field: FormField, value: Any) -> str | None:
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            date.fromisoformat(value)
        except ValueError:
            return "is no day of the calendar"
        return None
    return "must be a date such as 2026-05-01"


def _boolean(field: FormField, value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _select(field: FormField, value: Any) -> str | None:
    return None if isinstance(value, str) and value in _choices(field) else "must be one of the options"


def _multiselect(field: FormField, value: Any) -> str | None:
    if not isinstance(value, list):
        return "must be a list of options"
    chosen = cast("list[Any]", value)
    if not all(isinstance(each, str) and each in _choices(field) for each in chosen):
        return "must be options only"
    return None if len(set(chosen)) == len(chosen) else "must not name an option twice"


def _choices(field: FormField) -> set[str]:
    return {option.value for option in field.options or ()}


_CHECKS: Mapping[str, Callable[[FormField, Any], str | None]] = {
    "email": _email,
    "url": _url,
    "number": _number,
    "range": _number,
    "date": _date,
    "boolean": _boolean,
    "select": _select,
    "multiselect": _multiselect,
}
"""Every other type, a service's own included, is text."""
