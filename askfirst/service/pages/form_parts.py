"""A form in parts that each fit on a page, and the step at which a person is.

A step that is too large for a page is split into several parts, which pages treat as steps. A field with very many
options is a part of its own, and its options are a list to choose from (`choices`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic_core import to_json

from askfirst.messages import JsonObject
from askfirst.protocol import Form, FormField, FormStep, visible_fields
from askfirst.service.case import Case
from askfirst.service.pages.choices import Choice
from askfirst.service.pages.fields import (
    Step,
    defaults,
    descriptions_of,
    fields_of_step,
    step_at,
    step_with,
)
from askfirst.service.pages.page_size import size_of

_PART = 40_000
"""Bytes of HTML for the fields of a part."""
_OPTIONS = 10_000
"""A field whose options take more bytes of HTML is a part of its own."""
_FIELD, _OPTION = 700, 160
_LONGEST_HINT = 2_000


def paged(form: Form) -> Form:
    """The form in parts, as steps; the same form if no step is too large for a page."""
    parts = list(_parts(form))
    if len(parts) == len(form.steps or [None]):
        return form
    steps = [
        FormStep.model_construct(title=title, description=about, fields=fields)
        for _, title, about, fields in parts
    ]
    return Form.model_construct(fields=None, steps=steps, session_id=form.session_id)


def real_step(form: Form, number: int) -> int:
    """The step of a form that a part belongs to, both counted from 1."""
    parts = list(_parts(form))
    return parts[min(max(number, 1), len(parts)) - 1][0]


def _parts(form: Form) -> Iterator[tuple[int, str, str | None, list[FormField]]]:
    """Every part: its step's number, title and description (in the step's first part only), and its fields."""
    if form.steps is None:
        steps = [FormStep.model_construct(title="", description=None, fields=form.fields or [])]
    else:
        steps = form.steps
    for number, step in enumerate(steps, 1):
        about = step.description
        for fields in _split(step.fields):
            yield number, step.title, about, fields
            about = None


def _split(fields: Sequence[FormField]) -> Iterator[list[FormField]]:
    part: list[FormField] = []
    room = _PART
    for field in fields:
        size = _weight(field)
        if part and (size > room or is_listed(field) or is_listed(part[0])):
            yield part
            part, room = [], _PART
        part.append(field)
        room -= size
    yield part


def _weight(field: FormField) -> int:
    hint = min(size_of(field.hint or ""), _LONGEST_HINT)
    return _FIELD + 2 * size_of(field.label) + hint + _options_weight(field)


def _options_weight(field: FormField) -> int:
    return sum(size_of(it.label) + size_of(it.value) + _OPTION for it in field.options or ())


def is_listed(field: FormField) -> bool:
    """Whether a field has more options than fit on a page with other fields."""
    return field.type in ("select", "multiselect") and _options_weight(field) > _OPTIONS


def listed_field(form: Form, step: int) -> FormField | None:
    """The field of a part whose options are a list to choose from; ``form`` is `paged`."""
    fields = fields_of_step(form, step)
    return fields[0] if len(fields) == 1 and is_listed(fields[0]) else None


def options_of(case: Case, field: FormField) -> list[Choice]:
    """The options of a field as a list to choose from."""
    told = descriptions_of(case, field)
    return [Choice(it.value, it.label, told.get(it.value) or "") for it in field.options or ()]


def chosen_of(value: Any) -> list[str]:
    """The options that a field's value names."""
    given: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [it for it in given if isinstance(it, str)]


def drafted_mark(case: Case) -> str:
    """A digest of the draft as this reader sees it.

    A page with one of several steps posts the digest, so that the server knows whether the other steps have changed.
    """
    return "" if not case.draft else hashlib.sha256(to_json(case.draft)).hexdigest()[:32]


def is_unseen(case: Case, drafted: str | None) -> bool:
    """Whether another browser has changed the draft since the page with this `drafted_mark` was made."""
    if case.form is None or drafted is None or not case.is_others_draft or drafted == drafted_mark(case):
        return False
    return paged(case.form).steps is not None


def progress_of(case: Case, data: Mapping[str, Any], step: int) -> JsonObject | None:
    """The protocol's progress object; None for a case without a form."""
    form = case.form
    if form is None:
        return None
    fields = visible_fields(form, data)
    filled = sum(1 for field in fields if data.get(field.key) not in (None, "", []))
    said: JsonObject = {"completed_fields": filled, "total_fields": len(fields)}
    if form.steps is not None:
        said |= {"current_step": real_step(form, step), "total_steps": len(form.steps)}
    return said


def fields_to_fill(
    case: Case,
    *,
    values: Mapping[str, Any] | None,
    faults: Mapping[str, str] | None = None,
    step: int = 1,
    notice: str | None = None,
    now: float,
) -> list[FormField]:
    """The fields of the step that `render_case` shows for the same arguments, if they need a prefill.

    Such a field has a ``default_ref`` and no value yet.
    """
    if case.form is None or case.is_final or now >= case.expires_at or is_again(faults, notice):
        return []
    form = paged(case.form)
    given = (case.draft or {}) if values is None else values
    _, here = standing_in(form, given, {}, step, again=False)
    shown = fields_of_step(form, here.number)
    return [field for field in shown if field.default_ref is not None and field.key not in given]


def is_again(faults: Mapping[str, str] | None, notice: str | None) -> bool:
    """Whether a step is shown again after a post.

    An empty field was then emptied by the person: no default fills it.
    """
    return bool(faults) or notice is not None


def standing_in(
    form: Form, given: Mapping[str, Any], faults: Mapping[str, str], step: int, *, again: bool
) -> tuple[dict[str, Any], Step]:
    """The values of the fields, and the step that is shown."""
    number = step_with(form, faults, step)
    cleared = {field.key for field in fields_of_step(form, number)} if again else set[str]()
    values = {key: value for key, value in defaults(form).items() if key not in cleared} | dict(given)
    return values, step_at(form, values, number)
