"""Slack modals: the fields that a person fills in, and the values that they entered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from askfirst.delivery.fields import Field
from askfirst.delivery.slack_blocks import CONFIRM_TEXT, Block, plain, section
from askfirst.delivery.text import cut, shown
from askfirst.visible_text import visible

CALLBACK = "askfirst"
_TITLE_LIMIT = 24
_LABEL_LIMIT = 2000
_VALUE_LIMIT = 3000
_MOST_OPTIONS = 100
_MOST_CHECKBOXES = 10
_OPTION_LIMIT = 75
_OPTION_VALUE_LIMIT = 150
_MOST_FIELDS = 90
_DATE_LENGTH = 10


def fits(fields: Sequence[Field]) -> bool:
    """Whether a modal can show these fields uncut and take every value. Otherwise the person uses the page."""
    return len(fields) <= _MOST_FIELDS and all(_fits(each) for each in fields)


def _fits(field: Field) -> bool:
    if field.options:
        most = _MOST_OPTIONS if field.kind == "choice" else _MOST_CHECKBOXES
        values = [value for value, _ in field.options]
        return len(values) <= most and all(0 < len(each) <= _OPTION_VALUE_LIMIT for each in values)
    value = "" if field.value is None else str(field.value)
    return len(value) <= _VALUE_LIMIT and value == shown(value)


def modal(
    title: str, submit: str, metadata: Mapping[str, str], fields: Sequence[Field], note: str = ""
) -> Block:
    """A modal with these fields. Slack returns ``metadata`` together with the entered values."""
    blocks: list[Block] = [section(cut(shown(note), _VALUE_LIMIT))] if note else []
    blocks += [_input(number, each) for number, each in enumerate(fields)]
    return {
        "type": "modal",
        "callback_id": CALLBACK,
        "private_metadata": json.dumps(metadata),
        "title": plain(cut(visible(title), _TITLE_LIMIT)),
        "submit": plain(cut(visible(submit), _TITLE_LIMIT)),
        "close": plain("Cancel"),
        "blocks": blocks,
    }


def notice_modal(title: str, text: str) -> Block:
    """A modal that only shows a text."""
    return {
        "type": "modal",
        "title": plain(cut(visible(title), _TITLE_LIMIT)),
        "close": plain("Close"),
        "blocks": [section(cut(shown(text), _VALUE_LIMIT) or "…")],
    }


def block_id(number: int) -> str:
    """The id of the block of a field."""
    return f"field:{number}"


def _input(number: int, field: Field) -> Block:
    block: Block = {
        "type": "input",
        "block_id": block_id(number),
        "optional": not field.is_required,
        "label": plain(cut(visible(field.label) or field.key, _LABEL_LIMIT)),
        "element": {"action_id": "value", **_element(field)},
    }
    if field.hint:
        block["hint"] = plain(cut(shown(field.hint), CONFIRM_TEXT))
    return block


def _element(field: Field) -> Block:
    if field.kind == "yes_no":
        options = [_option("yes", "Yes"), _option("no", "No")]
        chosen = {} if field.value is None else {"initial_option": options[0 if field.value else 1]}
        return {"type": "radio_buttons", "options": options, **chosen}
    if field.kind == "choice":
        options = [_option(value, label) for value, label in field.options]
        chosen = [each for each in options if each["value"] == field.value]
        return {
            "type": "static_select",
            "options": options,
            **({"initial_option": chosen[0]} if chosen else {}),
        }
    if field.kind == "choices":
        options = [_option(value, label) for value, label in field.options]
        at_first = [each for each in options if each["value"] in (field.value or [])]
        return {
            "type": "checkboxes",
            "options": options,
            **({"initial_options": at_first} if at_first else {}),
        }
    if field.kind == "date":
        is_date = isinstance(field.value, str) and len(field.value) == _DATE_LENGTH
        return {"type": "datepicker", **({"initial_date": field.value} if is_date else {})}
    at_first = {} if field.value in (None, "") else {"initial_value": str(field.value)}
    if field.kind in ("number", "integer"):
        return {"type": "number_input", "is_decimal_allowed": field.kind == "number", **at_first}
    return {"type": "plain_text_input", "multiline": field.kind in ("lines", "json"), **at_first}


def _option(value: str, label: str) -> Block:
    return {"value": value, "text": plain(cut(visible(label) or value, _OPTION_LIMIT))}


def entered_values(view: Mapping[str, Any], fields: Sequence[Field]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values that a person entered in a modal by field key, and the faults by block id."""
    state: Mapping[str, Any] = view["state"]["values"]
    given: dict[str, Any] = {}
    faults: dict[str, str] = {}
    for number, field in enumerate(fields):
        block: Mapping[str, Any] = state.get(block_id(number)) or {}
        element: Mapping[str, Any] = block.get("value") or {}
        try:
            value = field.parse(_raw_value(element))
        except ValueError as error:
            faults[block_id(number)] = str(error)
            continue
        if value is None and field.is_required:
            faults[block_id(number)] = "Fill this in."
        given[field.key] = value
    return given, faults


def _raw_value(element: Mapping[str, Any]) -> Any:
    if "selected_options" in element:
        chosen: list[Mapping[str, Any]] = element["selected_options"] or []
        return [each["value"] for each in chosen]
    if "selected_option" in element:
        option: Mapping[str, Any] = element["selected_option"] or {}
        return option.get("value")
    return element.get("selected_date", element.get("value"))
