"""Changing the arguments of a call, each in a field of its kind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import quote_plus

from pydantic_core import from_json

from assent.messages import JsonObject
from assent.service.case import Case
from assent.service.pages.passage import Passage, has_hidden, passage
from assent.service.pages.shown import kind_of
from assent.service.pages.subject import call_of

Control = Literal["text", "lines", "number", "boolean", "json", "fixed"]

_LONGEST = 50_000
"""A browser takes many seconds to lay out a field with more; such a value stays as it is."""
_MOST_FIELDS = 1_000
_MOST_POSTED = 1_500_000
"""Every decision posts the fields, so all of them have to fit into what the service takes; the rest stays."""


class Unread(str):
    """What a person typed that could not be read; it is shown to them again as it is."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Editable:
    """Values that a person may change, and under which action and key the answer has them."""

    action: Literal["edit", "retry"]
    key: Literal["edits", "modified_params"]
    values: JsonObject


@dataclass(frozen=True, slots=True)
class EditField:
    """The field of one value, by its place among them."""

    name: str
    key: str
    label: Passage
    kind: str
    control: Control
    text: str
    fault: str | None = None


def editable_of(case: Case) -> Editable | None:
    """What may be changed: the call's arguments, or the ``params`` of a service's escalation."""
    call = call_of(case)
    if case.type == "approval" and call is not None:
        return Editable("edit", "edits", call.args)
    if case.type != "escalation":
        return None
    params: Any = case.context.get("params") if call is None else call.args
    if not isinstance(params, dict) or not params:
        return None
    return Editable("retry", "modified_params", cast("JsonObject", params))


def edit_fields(editable: Editable, values: Mapping[str, Any], faults: Mapping[str, str]) -> list[EditField]:
    """The fields, filled with ``values`` where there are some, else with what is there now."""
    fields: list[EditField] = []
    room = _MOST_POSTED
    for place, (name, original) in enumerate(editable.values.items()):
        was, control = _text(original, original), _control(original)
        posted = len(quote_plus(was)) if len(was) <= _LONGEST else room + 1
        if posted > room or place >= _MOST_FIELDS:
            text, control = "", "fixed"
        else:
            text, room = _text(original, values.get(name, original)), room - posted
        fault = faults.get(f"{editable.key}.{name}")
        fields.append(EditField(f"arg.{place}", name, passage(name), kind_of(original), control, text, fault))
    return fields


def read_edits(editable: Editable, posted: Mapping[str, str]) -> tuple[JsonObject, dict[str, str]]:
    """Every value as it is after the edit, and the faults by key. What was not posted is as it was."""
    values: dict[str, Any] = {}
    faults: dict[str, str] = {}
    for place, (name, original) in enumerate(editable.values.items()):
        text = posted.get(f"arg.{place}")
        if text is None or _lines(text) == _lines(_text(original, original)):
            values[name] = original  # a browser changes line ends by itself; that is no edit
            continue
        try:
            values[name] = _read(original, text)
        except ValueError as error:
            values[name] = Unread(text)
            faults[f"{editable.key}.{name}"] = str(error)
    return values, faults


def _control(original: Any) -> Control:
    if isinstance(original, bool):
        return "boolean"
    if isinstance(original, int | float):
        return "number"
    if not isinstance(original, str) or has_hidden(original):
        return "json"  # in a field of plain text, hidden characters would be hidden, or lost
    return "lines" if "\n" in original or len(original) > 60 else "text"


def _text(original: Any, value: Any) -> str:
    if isinstance(value, Unread):
        return value
    if isinstance(value, str) and _control(original) in ("text", "lines"):
        return value
    plain = json.dumps(value, indent=2, ensure_ascii=False)
    return json.dumps(value, indent=2) if has_hidden(plain) else plain


def _read(original: Any, text: str) -> Any:
    control = _control(original)
    if control in ("text", "lines"):
        return _lines(text)
    if control == "boolean":
        if text not in ("true", "false"):
            raise ValueError("must be true or false")
        return text == "true"
    try:
        value = from_json(text.strip(), allow_inf_nan=False)
    except ValueError:
        raise ValueError("must be a number" if control == "number" else "is no JSON") from None
    if control == "number" and not is_number(value):
        raise ValueError("must be a number")
    return value


def is_number(value: Any) -> bool:
    """Whether a value is a number of JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
