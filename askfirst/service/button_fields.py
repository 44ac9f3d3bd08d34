"""The buttons of a message that open fields: to edit a call's arguments, to fill in a form, or to choose items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from askfirst.delivery.base import Button
from askfirst.delivery.fields import Field, FieldKind, schema_fields
from askfirst.protocol import FormField
from askfirst.service.answers import item_id
from askfirst.service.case import Case

_KINDS: Mapping[str, FieldKind] = {
    "text": "text",
    "textarea": "lines",
    "number": "number",
    "range": "number",
    "date": "date",
    "email": "text",
    "url": "text",
    "boolean": "yes_no",
    "select": "choice",
    "multiselect": "choices",
}
_TITLES = ("title", "label", "name")


def edit_button(case: Case, labels: Mapping[str, str]) -> Button | None:
    """The button that edits a call's arguments and approves the edited call.

    None if the case is not about a gated call with arguments, or if some of the arguments are hidden.
    """
    payload = case.payload
    call = None if payload is None else payload.gated_call
    if payload is None or call is None or not call.args or payload.seal is not None:
        return None
    return Button("edit", "Edit…", schema_fields(payload.edit_schema, call.args, labels))


def answer_button(case: Case) -> Button | None:
    """The button that answers a question with its form or its choices; None if only the page can ask it."""
    if case.type == "input":
        fields = _form_fields(case)
        return None if fields is None else Button("submit", "Answer…", fields)
    if case.type == "selection":
        choice = _choice(case)
        return None if choice is None else Button("select", "Choose…", (choice,))
    return None


def _form_fields(case: Case) -> tuple[Field, ...] | None:
    """The fields of a form; None if it has steps, conditions, prefills or sensitive fields: those need the page."""
    form = case.form
    if form is None or form.fields is None or any(_needs_page(field) for field in form.fields):
        return None
    return tuple(
        Field(
            field.key,
            field.label,
            _KINDS[field.type],
            field.default,
            tuple((option.value, option.label) for option in field.options or ()),
            field.required,
            field.hint,
        )
        for field in form.fields
    )


def _needs_page(field: FormField) -> bool:
    is_hidden = field.sensitive or field.default_ref is not None or field.conditional is not None
    is_choice = field.type in ("select", "multiselect")
    return is_hidden or field.type not in _KINDS or (is_choice and not field.options)


def _choice(case: Case) -> Field | None:
    items: Any = case.context.get("items")
    if not isinstance(items, list) or not items:
        return None
    options: list[tuple[str, str]] = []
    for item in cast("list[Any]", items):
        id_ = item_id(item)
        if id_ is None or _has_more(item):
            return None
        options.append((id_, _title(item) or id_))
    is_one = case.context.get("multiple") is False
    is_required = bool(case.context.get("required", True))
    return Field("selected", "Choose", "choice" if is_one else "choices", None, tuple(options), is_required)


def _title(item: Any) -> str | None:
    if not isinstance(item, Mapping):
        return None
    known = cast("Mapping[str, Any]", item)
    return next((str(known[name]) for name in _TITLES if known.get(name)), None)


def _has_more(item: Any) -> bool:
    """Whether an item has more than an id and a title. Only the page can show the rest."""
    return isinstance(item, Mapping) and bool(
        set(cast("Mapping[str, Any]", item)) - {"id", "value", *_TITLES}
    )
