"""Answers to a form: which fields are shown, whether the answers fit, what of them is sensitive."""

from collections.abc import Iterator, Mapping
from typing import Any

from assent.errors import InvalidFormData, InvalidProtocolObject
from assent.protocol.conditions import ABSENT, holds
from assent.protocol.form import Form, FormField
from assent.protocol.form_limits import limit_faults
from assent.protocol.patterns import pattern_fault
from assent.protocol.values import fault_of, is_empty

REDACTED = "[redacted]"


def check_form(form: Form) -> None:
    """Whether a form makes sense beyond its shape; raises `InvalidProtocolObject` with every fault by field.

    It keeps within `assent.limits`. Keys are distinct, a condition looks at an earlier field, a choice has options,
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
    of the steps up to it are looked at, and only theirs are given back, as for a person half-way.
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
