"""The fields, choices and steps of a form: as a page shows them, and as a browser posts them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from pydantic_core import from_json

from askfirst.protocol import Form, FormField, visible_fields
from askfirst.requests import Option, Question
from askfirst.service.case import Case
from askfirst.service.pages.inert_text import Html, Passage, hidden_in, passage
from askfirst.service.pages.language import Language
from askfirst.service.pages.page_size import TYPED, Room, size_of
from askfirst.service.pages.subject import is_number

# The steps of a form: which are shown, and which comes next.


@dataclass(frozen=True, slots=True)
class Step:
    """The step of a form that is shown.

    ``place`` is its position among the ``of`` steps that these answers make visible.
    """

    number: int
    place: int
    of: int
    title: Passage | None
    description: Passage | None
    is_summary: bool
    is_last: bool
    is_first: bool


def walked(form: Form, values: Mapping[str, Any]) -> list[int]:
    """The numbers of the visible steps, from 1: summaries, and steps with a visible field."""
    if form.steps is None:
        return [1]
    shown = {field.key for field in visible_fields(form, values)}
    return [
        number
        for number, step in enumerate(form.steps, 1)
        if not step.fields or any(field.key in shown for field in step.fields)
    ] or [1]


def step_at(form: Form, values: Mapping[str, Any], number: int) -> Step:
    """The step with a number, or the nearest visible step before it."""
    steps = walked(form, values)
    number = max((each for each in steps if each <= number), default=steps[0])
    here = None if form.steps is None else form.steps[number - 1]
    return Step(
        number=number,
        place=steps.index(number) + 1,
        of=len(steps),
        title=None if here is None or not here.title else passage(here.title, "step", number - 1),
        description=None
        if here is None or not here.description
        else passage(here.description, "step", number - 1),
        is_summary=here is not None and not here.fields,
        is_last=number == steps[-1],
        is_first=number == steps[0],
    )


@dataclass(frozen=True, slots=True)
class StepLink:
    """One entry of the list of steps: its number, its position, its title, and whether it is done or is shown now."""

    number: int
    place: int
    title: Passage | None
    is_done: bool
    is_here: bool


def step_links(form: Form, values: Mapping[str, Any], here: Step) -> list[StepLink]:
    """The steps that are visible with these answers. Those before the step that is shown now count as done."""
    if form.steps is None:
        return []
    return [
        StepLink(
            number,
            place,
            passage(title) if (title := form.steps[number - 1].title) else None,
            number < here.number,
            number == here.number,
        )
        for place, number in enumerate(walked(form, values), 1)
    ]


def step_after(form: Form, values: Mapping[str, Any], number: int) -> int:
    """The number of the next visible step, or of the last one."""
    steps = walked(form, values)
    return next((each for each in steps if each > number), steps[-1])


def step_before(form: Form, values: Mapping[str, Any], number: int) -> int:
    """The number of the previous visible step, or of the first one."""
    steps = walked(form, values)
    return next((each for each in reversed(steps) if each < number), steps[0])


def step_with(form: Form, keys: Mapping[str, Any], otherwise: int) -> int:
    """The first step that has a field with one of the keys; ``otherwise`` if none has."""
    for number in range(1, len(form.steps or ()) + 1):
        if any(field.key in keys for field in fields_of_step(form, number)):
            return number
    return otherwise


Control = Literal["text", "lines", "number", "date", "email", "url", "secret", "one", "list", "many"]

_CONTROLS: Mapping[str, Control] = {
    "textarea": "lines",
    "number": "number",
    "range": "number",
    "date": "date",
    "email": "email",
    "url": "url",
    "boolean": "one",
    "select": "one",
    "multiselect": "many",
}
_SHORT = 200
_PLACEHOLDER = 200
_FEW = 7
"""Up to this many options are shown as radio buttons or checkboxes; more become a drop-down list."""


@dataclass(frozen=True, slots=True)
class FieldOption:
    """One choice of a field."""

    value: str
    label: Passage
    description: Passage | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class Field:
    """One field, with its current value."""

    key: str
    label: Passage
    control: Control
    required: bool
    text: str
    options: list[FieldOption]
    hint: Passage | None
    placeholder: str | None
    bounds: str | None
    hidden: Html | None
    """The value with its hidden characters marked; None if it has none."""
    kept: bool
    """Whether a sensitive value was filled in already. The value itself is never sent to the browser."""
    unfilled: bool
    """Whether a prefill could not be fetched."""
    when: str | None
    """The field's condition as JSON, for the script."""
    shown: bool
    fault: str | None
    long: int
    """The length of a value that is too long to be sent back to the page and stays in the draft; otherwise 0."""
    longest: int | None
    """The most characters that the field takes; None without a limit."""


def page_fields(
    case: Case,
    form: Form,
    step: int,
    values: Mapping[str, Any],
    faults: Mapping[str, str],
    prefills: Mapping[str, Any],
    language: Language,
    room: Room,
) -> list[Field]:
    """The fields of a step. A field hidden by a condition on the same step is included: a script may show it."""
    standing = {**values, **{key: value for key, value in prefills.items() if value is not None}}
    visible = {field.key for field in visible_fields(form, standing)}
    fields = fields_of_step(form, step)
    here = {field.key for field in fields}
    places = {field.key: place for place, field in enumerate(form.all_fields)}
    return [
        _kept(
            _field(
                field,
                passage(label_of(case, field), "field", places[field.key]),
                _question(case, field.key),
                values,
                prefills,
                faults.get(field.key),
                field.key in visible,
                language,
            ),
            room,
        )
        for field in fields
        if field.key in visible or (field.conditional is not None and field.conditional.field in here)
    ]


def _kept(it: Field, room: Room) -> Field:
    """The field, with its value if the page has room for it. Otherwise the value stays in the draft."""
    size = size_of(it.text)
    if size > max(min(room.left, TYPED), _SHORT):
        return replace(it, text="", hidden=None, long=len(it.text))
    room.left -= size + len((it.hidden or "").encode())
    return it


def fields_of_step(form: Form, step: int) -> Sequence[FormField]:
    """The fields of a step, counted from 1. A form without steps counts as one step."""
    if form.steps is None:
        return form.fields or ()
    return form.steps[step - 1].fields if 1 <= step <= len(form.steps) else ()


def defaults(form: Form) -> dict[str, Any]:
    """The default values of fields that nobody has filled in yet."""
    return {field.key: field.default for field in form.all_fields if field.default is not None}


def read_field(field: FormField, posted: Sequence[str]) -> Any:
    """The value of a posted field, converted to the field's type; None if it is empty.

    A text that cannot be converted stays text. The check of the answer then reports it.
    """
    if field.type == "multiselect":
        return list(posted) or None
    text = posted[0].replace("\r\n", "\n") if posted else ""
    if not text.strip():
        return None
    if field.type == "boolean":
        return {"true": True, "false": False}.get(text, text)
    if field.type in ("number", "range"):
        try:
            value = from_json(text.strip().removeprefix("+"), allow_inf_nan=False)
        except ValueError:
            return text
        return value if is_number(value) else text
    return text


def field_text(case: Case, field: FormField) -> str:
    """The whole text of a field: its label, its hint and its options, a line each."""
    told = descriptions_of(case, field)
    texts = [label_of(case, field), *([field.hint] if field.hint else [])]
    for option in field.options or ():
        texts += [option.label, *([about] if (about := told.get(option.value)) else [])]
    return "\n".join(texts)


def descriptions_of(case: Case, field: FormField) -> dict[str, str | None]:
    """The descriptions that an agent gave to the options of its question, by value."""
    question = _question(case, field.key)
    return {} if question is None else {it.value: it.description for it in question.options or ()}


def label_of(case: Case, field: FormField) -> str:
    """The label of a field: the agent's whole question, if the field stands for one."""
    question = _question(case, field.key)
    return field.label if question is None else question.prompt


def _field(
    field: FormField,
    label: Passage,
    question: Question | None,
    values: Mapping[str, Any],
    prefills: Mapping[str, Any],
    fault: str | None,
    shown: bool,
    language: Language,
) -> Field:
    value = prefills.get(field.key)
    if value is None and not field.sensitive:
        value = values.get(field.key)
    text = _text(value)
    hint = None if field.hint in (None, label.text) else passage(field.hint or "", label.of, label.row)
    when = None if field.conditional is None else json.dumps(field.conditional.wire())
    placeholder = field.placeholder or ""
    return Field(
        key=field.key,
        label=label,
        control=_control(field),
        required=field.required,
        text=text,
        options=_options(field, question, value, language),
        hint=hint,
        placeholder=None if hidden_in(placeholder) else placeholder[:_PLACEHOLDER] or None,
        bounds=_bounds(field, language),
        hidden=None if field.sensitive else hidden_in(text),
        kept=field.sensitive and field.key in values,
        unfilled=field.key in prefills and prefills[field.key] is None,
        when=when if when is None or size_of(when) <= _SHORT else None,  # the server tests it, too
        shown=shown,
        fault=fault,
        long=0,
        longest=None if field.validation is None else field.validation.max_length,
    )


def _text(value: Any) -> str:
    if value is None or isinstance(value, list | bool):
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _control(field: FormField) -> Control:
    control = _CONTROLS.get(field.type, "text")
    if control == "one" and len(field.options or ()) > _FEW and not _has_long(field):
        return "list"
    if field.sensitive and control not in ("one", "many"):
        return "secret"
    return control


def _has_long(field: FormField) -> bool:
    """Whether an option is too long for a drop-down list, which does not wrap."""
    return any(passage(option.label).is_long for option in field.options or ())


def _options(
    field: FormField, question: Question | None, value: Any, language: Language
) -> list[FieldOption]:
    if field.type == "boolean":
        return [
            FieldOption("true", passage(language.plain("yes")), None, value is True),
            FieldOption("false", passage(language.plain("no")), None, value is False),
        ]
    given: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    chosen = {each for each in given if isinstance(each, str)}
    told = {} if question is None else {option.value: _told(option) for option in question.options or ()}
    return [
        FieldOption(option.value, passage(option.label), told.get(option.value), option.value in chosen)
        for option in field.options or ()
    ]


def _told(option: Option) -> Passage | None:
    return None if not option.description else passage(option.description)


def _question(case: Case, key: str) -> Question | None:
    """The agent's question behind a field: the field ``q3`` is the third question."""
    asked = () if case.payload is None else case.payload.questions_asked
    if not asked or key[:1] != "q" or not key[1:].isdecimal():
        return None
    place = int(key[1:])
    return asked[place - 1] if 1 <= place <= len(asked) else None


def _bounds(field: FormField, language: Language) -> str | None:
    bounds = field.validation
    if bounds is None:
        return None
    if bounds.min is not None or bounds.max is not None:
        return _between(bounds.min, bounds.max, "", language)
    return _between(bounds.min_length, bounds.max_length, ".chars", language)


def _between(low: float | None, high: float | None, unit: str, language: Language) -> str | None:
    if low is None and high is None:
        return None
    sides = "both" if low is not None and high is not None else "low" if high is None else "high"
    return language.plain(f"bounds.{sides}{unit}", low=_grouped(low), high=_grouped(high))


def _grouped(number: float | None) -> str:
    return "" if number is None else f"{number:,}"
