"""Whether one value fits one field of a form."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, cast

from assent import limits
from assent.protocol.form import FieldValidation, FormField
from assent.protocol.patterns import matches
from assent.protocol.scalars import is_email, is_uri

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WEB = re.compile(r"https?://[^/?#]", re.IGNORECASE)


def is_empty(value: Any) -> bool:
    """Whether a value is no answer: null, blank text, or a choice of nothing."""
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def fault_of(field: FormField, value: Any) -> str | None:
    """What is wrong with a value that is not empty, as a sentence; None if it fits."""
    return _CHECKS.get(field.type, _text)(field, value)


def _text(field: FormField, value: Any) -> str | None:
    if not isinstance(value, str):
        return "must be text"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "must be valid Unicode"
    bounds = field.validation or FieldValidation()
    pattern = None if field.type == "textarea" else bounds.pattern
    longest = limits.TEXT_CHARACTERS if pattern is None else limits.PATTERN_TEXT_CHARACTERS
    if bounds.max_length is not None:
        longest = bounds.max_length if pattern is None else min(bounds.max_length, longest)
    if len(value) > longest:
        return f"must have at most {longest} characters"
    if bounds.min_length is not None and len(value) < bounds.min_length:
        return f"must have at least {bounds.min_length} characters"
    if pattern is not None and not matches(pattern, value):
        return "does not have the expected form"
    return None


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
    chosen, choices = cast("list[Any]", value), _choices(field)
    if not all(isinstance(each, str) and each in choices for each in chosen):
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
