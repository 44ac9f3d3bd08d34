"""Which fields of a form are shown, and which answers fit."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any, cast

from askfirst import limits
from askfirst.errors import InvalidFormData, InvalidProtocolObject
from askfirst.protocol.form import Condition, FieldValidation, Form, FormField, limit_faults
from askfirst.protocol.patterns import matches, pattern_fault
from askfirst.protocol.wire import is_email, is_uri

# Whether a field of a form is shown, given the answers to earlier ones.


ABSENT: Any = None
"""The value of a field that was left empty."""


def holds(condition: Condition, value: Any) -> bool:
    """Whether a condition holds for the value of the field it looks at.

    Values are equal as in JSON: 1 is 1.0, but not true and not "1". Of a multiple choice each chosen value
    is looked at: ``eq`` and ``in`` hold if one of them fits, ``neq`` if none does. For an empty field only
    ``neq`` holds. ``gt`` and ``lt`` compare numbers with numbers, and text with text as dates sort.
    """
    return _TESTS[condition.operator](value, condition.value)


def _equal(value: Any, other: Any) -> bool:
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, list) and not isinstance(other, list):
        return any(_equal(each, other) for each in cast("list[Any]", value))
    if isinstance(value, list) and isinstance(other, list):
        return sorted(map(repr, cast("list[Any]", value))) == sorted(map(repr, cast("list[Any]", other)))
    return value is not ABSENT and value == other


def _not_equal(value: Any, other: Any) -> bool:
    return not _equal(value, other)


def _in(value: Any, others: Any) -> bool:
    return isinstance(others, list) and any(_equal(value, each) for each in cast("list[Any]", others))


def _greater(value: Any, other: Any) -> bool:
    return _comparable(value, other) and value > other


def _less(value: Any, other: Any) -> bool:
    return _comparable(value, other) and value < other


def _comparable(value: Any, other: Any) -> bool:
    return any(_is(kind, value) and _is(kind, other) for kind in (str, (int, float)))


def _is(kind: Any, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": _equal,
    "neq": _not_equal,
    "in": _in,
    "gt": _greater,
    "lt": _less,
}


# Whether one value fits one field of a form.


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
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return "must be a number"  # NaN is none, and math.isfinite raises for very large whole numbers
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


REDACTED = "[redacted]"


def check_form(form: Form) -> None:
    """Whether a form makes sense beyond its shape; raises `InvalidProtocolObject` with every fault by field.

    It keeps within `askfirst.limits`. Keys are distinct, a condition looks at an earlier field, a choice has options,
    a pattern can be used, and bounds leave room. A date has no ``min`` or ``max``: the protocol has only numbers
    there, without meaning.
    """
    too_much = limit_faults(form)
    if too_much:
        raise InvalidProtocolObject("Form", too_much)
    _check_sense(form)


def _check_sense(form: Form) -> None:
    faults: dict[str, str] = {}
    seen: set[str] = set()
    for field in form.all_fields:
        problems = list(_field_faults(field, seen))
        if problems:
            faults[field.key] = "; ".join(problems)
        seen.add(field.key)
    if faults:
        raise InvalidProtocolObject("Form", faults)


def _field_faults(field: FormField, earlier: set[str]) -> Iterator[str]:
    if field.key in earlier:
        yield "is the key of an earlier field too"
    if field.conditional and field.conditional.field not in earlier:
        yield f"its condition looks at {field.conditional.field!r}, which is no earlier field"
    if field.type in ("select", "multiselect") and not field.options:
        yield f"a {field.type} needs options"
    if field.sensitive and field.default is not None:
        yield "a sensitive field has no default; use default_ref"
    bounds = field.validation
    if bounds is None:
        return
    pattern = None if bounds.pattern is None else pattern_fault(bounds.pattern)
    if pattern:
        yield f"its pattern {pattern}"
    if field.type == "date" and (bounds.min is not None or bounds.max is not None):
        yield "a date has no min or max"
    pairs = ((bounds.min, bounds.max), (bounds.min_length, bounds.max_length))
    if any(low is not None and high is not None and low > high for low, high in pairs):
        yield "its bounds leave no room"


def visible_fields(form: Form, data: Mapping[str, Any]) -> list[FormField]:
    """The fields that a person who gave these answers sees, in order. A hidden field hides those that look at it."""
    shown: dict[str, FormField] = {}
    for field in form.all_fields:
        if _is_shown(field, shown, data):
            shown[field.key] = field
    return list(shown.values())


def _is_shown(field: FormField, shown: Mapping[str, FormField], data: Mapping[str, Any]) -> bool:
    condition = field.conditional
    if condition is None:
        return True
    value = data.get(condition.field)
    return condition.field in shown and holds(condition, ABSENT if is_empty(value) else value)


def clean_form_data(
    form: Form, data: Mapping[str, Any], *, through_step: int | None = None
) -> dict[str, Any]:
    """The answers to a form, checked: every visible field that was filled in, and nothing else.

    Raises `InvalidFormData` with a sentence for each key at fault: a required field left empty, a value that
    does not fit, a value for a field that is hidden or unknown. With ``through_step`` (from 1) only the fields
    of the steps up to it are checked and returned, as for a person half-way.
    """
    _check_sense(form)
    fields = form.all_fields
    later: set[str] = set()
    if through_step is not None and form.steps is not None:
        later = {field.key for step in form.steps[through_step:] for field in step.fields}
    known = {field.key for field in fields}
    faults = {key: "is no field of this form" for key in data if key not in known}
    clean: dict[str, Any] = {}
    shown: dict[str, FormField] = {}
    unsettled: set[str] = set()
    for field in fields:
        key, value = field.key, data.get(field.key)
        if key in later:
            continue
        if field.conditional and field.conditional.field in unsettled:
            unsettled.add(key)  # whether it is shown cannot be told until that fault is mended
        elif not _is_shown(field, shown, data):
            if not is_empty(value):
                faults[key] = "is not shown, so it takes no value"
        else:
            shown[key] = field
            fault = _answer_fault(field, value)
            if fault:
                faults[key] = fault
                unsettled.add(key)
            elif not is_empty(value):
                clean[key] = value
    if faults:
        raise InvalidFormData(faults)
    return clean


def _answer_fault(field: FormField, value: Any) -> str | None:
    if is_empty(value):
        return "is required" if field.required else None
    return fault_of(field, value)


def sensitive_keys(form: Form) -> frozenset[str]:
    """The keys of fields whose values must not be logged or shown."""
    return frozenset(field.key for field in form.all_fields if field.sensitive)


def redacted(data: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """The same answers with every sensitive value replaced, for logs and the like."""
    hidden = sensitive_keys(form)
    return {key: REDACTED if key in hidden else value for key, value in data.items()}
