"""What was answered, in the words in which it was asked: labels in place of keys, and of the values behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

from assent.protocol import Form, FormField, sensitive_keys
from assent.requests import AskRequest
from assent.service.case import Case
from assent.service.pages.choices import choices_of
from assent.service.pages.fields import label_of
from assent.service.pages.passage import Passage, passage
from assent.service.pages.shown import Shown, shown

_NAMES = {
    "feedback": "Note",
    "reason": "Note",
    "note": "Note",
    "selected": "Chosen",
    "confirmed_items": "Confirmed",
    "response": "Answer",
    "modified_params": "Changed parameters",
}
_PICKED = ("selected", "confirmed_items")
_NOT_SHOWN = "given, not shown"
_NOTHING = "nothing"


def answered(case: Case, data: Mapping[str, Any]) -> list[Shown]:
    """The answer to a case, each part under the label that it was given under."""
    if case.form is not None:
        return filled_in(case, case.form, data)
    titles = _distinct([(choice.id, choice.name) for choice in choices_of(case)])
    return [
        shown(_NAMES.get(key, key), _chosen(titles, value) if key in _PICKED else value)
        for key, value in data.items()
    ]


def filled_in(case: Case, form: Form, values: Mapping[str, Any]) -> list[Shown]:
    """What stands in the fields of a form, in the form's order; of a sensitive one, only that something does."""
    hidden = sensitive_keys(form)
    fields = {field.key: field for field in form.all_fields}
    told = [
        shown(label_of(case, field), _NOT_SHOWN if key in hidden else _spoken(field, values[key]))
        for key, field in fields.items()
        if key in values
    ]
    return told + [shown(key, value) for key, value in values.items() if key not in fields]


def questions(case: Case) -> list[Passage]:
    """What a person was to fill in or to choose from, label by label."""
    payload = None if case.request is None else case.request.payload
    if case.form is not None and isinstance(payload, AskRequest):
        return [passage(question.prompt) for question in payload.questions]
    if case.form is not None:
        return [passage(field.label) for field in case.form.all_fields]
    return [choice.title for choice in choices_of(case)]


def _spoken(field: FormField, value: Any) -> Any:
    """A field's value as its choices call it."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    labels = _distinct([(option.value, option.label) for option in field.options or ()])
    if isinstance(value, list):
        return _chosen(labels, cast("list[Any]", value))
    return labels.get(value, value) if isinstance(value, str) else value


def _chosen(labels: Mapping[str, str], values: Any) -> Any:
    """What was chosen, a line each."""
    if not isinstance(values, list):
        return values
    chosen = [str(each) for each in cast("list[Any]", values)]
    return "\n".join(labels.get(each, each) for each in chosen) or _NOTHING


def _distinct(choices: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Labels by value; where several have the same, the value stands behind it."""
    known = list(choices)
    times = Counter(label for _, label in known)
    return {value: label if times[label] == 1 else f"{label} ({value})" for value, label in known}
