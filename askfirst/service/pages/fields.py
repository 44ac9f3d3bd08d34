"""The fields, choices and steps of a form, as a page shows them and as a browser posts them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic_core import from_json

from askfirst.protocol import Form, FormField, visible_fields
from askfirst.requests import Option, Question
from askfirst.service.answers import LISTS, id_key, item_id
from askfirst.service.case import Case
from askfirst.service.pages.inert_text import Html, Passage, hidden_in, marked, passage
from askfirst.service.pages.language import Language
from askfirst.service.pages.subject import Shown, is_number, shown_all, text_of

# The items that a person chooses from, in a selection or a confirmation.


_TITLES = ("title", "label", "name")
_DESCRIPTION = "description"


_ON_A_LINE = 3
_SHORT = 60


@dataclass(frozen=True, slots=True)
class Fact:
    """A short value that stands beside others on one line."""

    name: Html
    text: Html


@dataclass(frozen=True, slots=True)
class Choice:
    """One item: its id, what it is called, and what is said about it; the first facts in one line."""

    id: str
    name: str
    description: Passage | None
    line: list[Fact]
    facts: list[Shown]

    @property
    def title(self) -> Passage:
        """What it is called."""
        return passage(self.name)


def choices_of(case: Case) -> list[Choice]:
    """The items to choose from, in order; empty where the context has none with distinct ids."""
    given: Any = case.context.get(LISTS.get(case.type, ""))
    items = [_choice(item) for item in cast("list[Any]", given)] if isinstance(given, list) else []
    choices = [item for item in items if item is not None]
    distinct = len({choice.id for choice in choices}) == len(items)
    return choices if distinct else []


def takes_one(case: Case) -> bool:
    """Whether only one item may be chosen."""
    return case.context.get("multiple") is False


def needs_one(case: Case) -> bool:
    """Whether choosing nothing is no answer."""
    return case.context.get("required", True) is not False


def _choice(item: Any) -> Choice | None:
    id_ = item_id(item)
    if id_ is None:
        return None
    if not isinstance(item, Mapping):
        return Choice(id_, id_, None, [], [])
    fields = cast("Mapping[str, Any]", item)
    named = next((name for name in _TITLES if isinstance(fields.get(name), str) and fields[name]), None)
    about = fields.get(_DESCRIPTION)
    told = _DESCRIPTION if isinstance(about, str) and about else None
    rest = {
        name: value
        for name, value in fields.items()
        if name not in (id_key(fields), named, told) and value is not None
    }
    short = [name for name, value in rest.items() if _is_short(name, value)][:_ON_A_LINE]
    return Choice(
        id_,
        id_ if named is None else fields[named],
        None if told is None else passage(fields[told]),
        [Fact(marked(name), marked(text_of(rest[name]))) for name in short],
        shown_all({name: value for name, value in rest.items() if name not in short}),
    )


def _is_short(name: str, value: Any) -> bool:
    if isinstance(value, dict | list) or len(name) > _SHORT or not name:
        return False
    text = text_of(value)
    return 0 < len(text) <= _SHORT and "\n" not in text and hidden_in(text) is None


# The steps of a form: which are shown, and which comes next.


@dataclass(frozen=True, slots=True)
class Step:
    """Where a person is in a form. ``place`` counts the steps that are shown with these answers."""

    number: int
    place: int
    of: int
    title: Passage | None
    description: Passage | None
    is_summary: bool
    is_last: bool
    is_first: bool


def walked(form: Form, values: Mapping[str, Any]) -> list[int]:
    """The steps that are shown, from 1: summaries, and those with a visible field."""
    if form.steps is None:
        return [1]
    shown = {field.key for field in visible_fields(form, values)}
    return [
        number
        for number, step in enumerate(form.steps, 1)
        if not step.fields or any(field.key in shown for field in step.fields)
    ] or [1]


def step_at(form: Form, values: Mapping[str, Any], number: int) -> Step:
    """The step with a number, or the nearest one before it that is shown."""
    steps = walked(form, values)
    number = max((each for each in steps if each <= number), default=steps[0])
    here = None if form.steps is None else form.steps[number - 1]
    return Step(
        number=number,
        place=steps.index(number) + 1,
        of=len(steps),
        title=None if here is None else passage(here.title),
        description=None if here is None or not here.description else passage(here.description),
        is_summary=here is not None and not here.fields,
        is_last=number == steps[-1],
        is_first=number == steps[0],
    )


def step_after(form: Form, values: Mapping[str, Any], number: int) -> int:
    """The step that follows, or the last."""
    steps = walked(form, values)
    return next((each for each in steps if each > number), steps[-1])


def step_before(form: Form, values: Mapping[str, Any], number: int) -> int:
    """The step before, or the first."""
    steps = walked(form, values)
    return next((each for each in reversed(steps) if each < number), steps[0])


def step_with(form: Form, keys: Mapping[str, Any], otherwise: int) -> int:
    """The first step with a field among the keys."""
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
_FEW = 7
"""Up to so many choices are radio buttons or boxes; more become a drop-down list."""


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
    """The value with its hidden characters marked, where it has some."""
    kept: bool
    """Whether a sensitive value was filled in already; it is never sent to the browser."""
    unfilled: bool
    """Whether a prefill could not be fetched."""
    when: str | None
    """The field's condition as JSON, for the script."""
    shown: bool
    fault: str | None
    longest: int | None
    """The most characters that it takes, where it has a limit."""


def page_fields(
    case: Case,
    form: Form,
    step: int,
    values: Mapping[str, Any],
    faults: Mapping[str, str],
    prefills: Mapping[str, Any],
    language: Language,
) -> list[Field]:
    """The fields of a step, those included that a condition on this step's own fields hides."""
    standing = {**values, **{key: value for key, value in prefills.items() if value is not None}}
    visible = {field.key for field in visible_fields(form, standing)}
    fields = fields_of_step(form, step)
    here = {field.key for field in fields}
    return [
        _field(
            field,
            label_of(case, field),
            _question(case, field.key),
            values,
            prefills,
            faults.get(field.key),
            field.key in visible,
            language,
        )
        for field in fields
        if field.key in visible or (field.conditional is not None and field.conditional.field in here)
    ]


def fields_of_step(form: Form, step: int) -> Sequence[FormField]:
    """The fields of a step, counted from 1; a form without steps has one."""
    if form.steps is None:
        return form.fields or ()
    return form.steps[step - 1].fields if 1 <= step <= len(form.steps) else ()


def defaults(form: Form) -> dict[str, Any]:
    """The default values of fields that nobody has filled in yet."""
    return {field.key: field.default for field in form.all_fields if field.default is not None}


def read_field(field: FormField, posted: Sequence[str]) -> Any:
    """A field's value by its type; a text that does not fit stays text, for the check to refuse. None: empty."""
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


def label_of(case: Case, field: FormField) -> str:
    """The label of a field; an agent's question is shown whole, however long it is."""
    question = _question(case, field.key)
    return field.label if question is None else question.prompt


def _field(
    field: FormField,
    label: str,
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
    hint = None if field.hint in (None, label) else passage(field.hint or "")
    return Field(
        key=field.key,
        label=passage(label),
        control=_control(field),
        required=field.required,
        text=text,
        options=_options(field, question, value, language),
        hint=hint,
        placeholder=None if field.placeholder is None or hidden_in(field.placeholder) else field.placeholder,
        bounds=_bounds(field, language),
        hidden=None if field.sensitive else hidden_in(text),
        kept=field.sensitive and field.key in values,
        unfilled=field.key in prefills and prefills[field.key] is None,
        when=None if field.conditional is None else json.dumps(field.conditional.wire()),
        shown=shown,
        fault=fault,
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
    """The agent's question behind a field: the third is the field ``q3``."""
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
