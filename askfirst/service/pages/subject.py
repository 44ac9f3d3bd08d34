"""What a case is about: the call that would run, its arguments edited and compared, why, and whose words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, cast
from urllib.parse import quote_plus

from pydantic_core import from_json

from askfirst.formats import CODE, ENGLISH, Style, formatted
from askfirst.messages import JsonObject, canonical_json
from askfirst.service.case import Case
from askfirst.service.pages.decision import words_for
from askfirst.service.pages.difference import DiffLine, difference
from askfirst.service.pages.inert_text import Html, Passage, has_hidden, marked, passage
from askfirst.service.pages.rows import Row

# A JSON value on a page: its name, its kind, and the whole value.


@dataclass(frozen=True, slots=True)
class Shown:
    """One named value. ``text`` is None for an empty text."""

    name: Passage
    kind: str
    text: Passage | None

    @property
    def is_code(self) -> bool:
        """Whether it is written as JSON."""
        return self.kind != "text"


def shown(name: str, value: Any) -> Shown:
    """A value under its name. A text is shown as it is, everything else as JSON."""
    if value == "":
        return Shown(_named(name), "text", None)
    return Shown(_named(name), kind_of(value), passage(text_of(value)))


def shown_all(values: Mapping[str, Any]) -> list[Shown]:
    """Every value of an object, in its order."""
    return [shown(name, value) for name, value in values.items()]


def text_of(value: Any) -> str:
    """A text as it is, everything else as JSON that spells no character differently."""
    if isinstance(value, str):
        return value
    # With an indent Python's own encoder is used, which is much slower.
    return json.dumps(value, indent=2 if isinstance(value, list | dict) else None, ensure_ascii=False)


def kind_of(value: Any) -> str:
    """What a value is, in a word."""
    if value is None:
        return "nothing"
    kinds = ((bool, "yes or no"), (int | float, "number"), (str, "text"), (list, "list"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")


def _named(name: str) -> Passage:
    return passage(name)


@dataclass(frozen=True, slots=True)
class Words:
    """What the agent or the calling service wrote: sentences, and facts by name; ``author`` says which of the two."""

    author: Literal["agent", "side", "service"]
    prompt: Passage | None = None
    message: Passage | None = None
    rows: tuple[Row, ...] = ()
    questions: list[Passage] = field(default_factory=list[Passage])
    """What was to be filled in or chosen from, where the page has no fields for it any more."""

    def __bool__(self) -> bool:
        return bool(self.prompt or self.message or self.rows or self.questions)


# Editing the arguments of a call.


Control = Literal["text", "lines", "number", "money", "date", "boolean", "items", "json", "fixed"]

_LONGEST = 50_000
"""A longer value cannot be edited: a browser takes many seconds to lay out its field."""
_MOST_FIELDS = 1_000
_MOST_POSTED = 1_500_000
"""Every decision posts all fields, so that they have to fit into the body limit; further ones cannot be edited."""
_MOST_ITEMS = 200
_AMOUNT = re.compile(r"-?\d[\d,. ]*")


class Unread(str):
    """A text that could not be parsed; it is shown to the person again."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Editable:
    """Values that a person may change, and under which action and key the answer has them."""

    action: Literal["edit", "retry"]
    key: Literal["edits", "modified_params"]
    values: JsonObject
    formats: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class EditField:
    """The field of one value, named by its number. ``word`` is its author's word for it, ``unit`` its currency."""

    name: str
    key: str
    label: Passage
    control: Control
    text: str
    fault: str | None = None
    word: Html | None = None
    unit: str = ""
    is_code: bool = False


def editable_of(case: Case) -> Editable | None:
    """The values that may be edited: the call's arguments, or the ``params`` of a service's escalation."""
    call = None if case.payload is None else case.payload.shown_call
    forms = _formats(case)
    if case.type == "approval" and call is not None:
        return Editable("edit", "edits", call[1], forms)
    if case.type != "escalation":
        return None
    params: Any = case.context.get("params") if call is None else call[1]
    if not isinstance(params, dict) or not params:
        return None
    return Editable("retry", "modified_params", cast("JsonObject", params), forms)


def _formats(case: Case) -> dict[str, str]:
    given: Any = words_for(case).get("formats")
    if not isinstance(given, dict):
        return {}
    return {name: form for name, form in cast("dict[str, Any]", given).items() if isinstance(form, str)}


def edit_fields(
    editable: Editable, values: Mapping[str, Any], faults: Mapping[str, str], labels: Mapping[str, Any]
) -> list[EditField]:
    """The fields, filled with ``values``, else with the original values."""
    fields: list[EditField] = []
    room = _MOST_POSTED
    for place, (name, original) in enumerate(editable.values.items()):
        form = editable.formats.get(name, "")
        was, control = _text(original, original, form), _control(original, form)
        posted = len(quote_plus(was)) if len(was) <= _LONGEST else room + 1
        if posted > room or place >= _MOST_FIELDS:
            text, control = "", "fixed"
        else:
            text, room = _text(original, values.get(name, original), form), room - posted
        fields.append(
            EditField(
                name=f"arg.{place}",
                key=name,
                label=passage(name),
                control=control,
                text=text,
                fault=faults.get(f"{editable.key}.{name}"),
                word=marked(labels[name]) if isinstance(labels.get(name), str) else None,
                unit=form.partition(":")[2] if control == "money" else "",
                is_code=form.partition(":")[0] in CODE,
            )
        )
    return fields


def read_edits(editable: Editable, posted: Mapping[str, str]) -> tuple[JsonObject, dict[str, str]]:
    """Every value after the edit, and the faults by key. A value that was not posted is unchanged."""
    values: dict[str, Any] = {}
    faults: dict[str, str] = {}
    for place, (name, original) in enumerate(editable.values.items()):
        text = posted.get(f"arg.{place}")
        form = editable.formats.get(name, "")
        if text is None or _lines(text) == _lines(_text(original, original, form)):
            values[name] = original  # a browser changes line ends by itself: no edit
            continue
        try:
            values[name] = _read(original, text, form)
        except ValueError as error:
            values[name] = Unread(text)
            faults[f"{editable.key}.{name}"] = str(error)
    return values, faults


def _control(original: Any, form: str) -> Control:
    kind = form.partition(":")[0]
    if isinstance(original, bool):
        return "boolean"
    if isinstance(original, int | float):
        return "money" if kind == "money" and formatted(original, form) is not None else "number"
    if isinstance(original, list):
        return "items" if _is_plain_list(cast("list[Any]", original)) else "json"
    if not isinstance(original, str) or has_hidden(original):
        return "json"  # in a field of plain text, hidden characters would be hidden, or lost
    if kind == "date" and formatted(original, form) is not None:
        return "date"
    return "lines" if "\n" in original or len(original) > 40 or kind in CODE else "text"


def _is_plain_list(given: list[Any]) -> bool:
    """Whether a list can be written a line each, and read back from it: plain texts, or numbers, and not empty."""
    if not 0 < len(given) <= _MOST_ITEMS:
        return False
    if all(is_number(it) for it in given):
        return True
    return all(isinstance(it, str) and it and "\n" not in it and not has_hidden(it) for it in given)


def _text(original: Any, value: Any, form: str) -> str:
    if isinstance(value, Unread):
        return value
    control = _control(original, form)
    if isinstance(value, str) and control in ("text", "lines", "date"):
        return value
    if control == "money" and (said := formatted(value, form)) is not None:
        return said.removesuffix(form.partition(":")[2]).strip().replace(",", "")
    if control == "items" and isinstance(value, list) and _is_plain_list(cast("list[Any]", value)):
        return "\n".join(text_of(it) for it in cast("list[Any]", value))
    plain = json.dumps(value, indent=2, ensure_ascii=False)
    return json.dumps(value, indent=2) if has_hidden(plain) else plain


def _read(original: Any, text: str, form: str) -> Any:
    control = _control(original, form)
    if control in ("text", "lines", "date"):
        return _lines(text)
    if control == "boolean":
        if text not in ("true", "false"):
            raise ValueError("must be true or false")
        return text == "true"
    if control == "money":
        return _minor_units(text, form)
    if control == "items":
        return _items(cast("list[Any]", original), text)
    try:
        value = from_json(text.strip(), allow_inf_nan=False)
    except ValueError:
        raise ValueError("must be a number" if control == "number" else "is no JSON") from None
    if control == "number" and not is_number(value):
        raise ValueError("must be a number")
    return value


def _minor_units(text: str, form: str) -> int:
    """An amount as people write it, in whole minor units."""
    written = text.strip().removesuffix(form.partition(":")[2]).strip()
    if not _AMOUNT.fullmatch(written):
        raise ValueError("must be a number")
    digits = next(count for count in (2, 0, 3) if formatted(10**count, form) == _one(count, form))
    try:
        minor = Decimal(written.replace(",", "").replace(" ", "")).scaleb(digits)
    except InvalidOperation:
        raise ValueError("must be a number") from None
    if minor != minor.to_integral_value():
        raise ValueError(f"must have at most {digits} digits behind the point")
    return int(minor)


def _one(digits: int, form: str) -> str:
    """One unit of a currency, with so many digits behind the point, as it is formatted."""
    point = f".{'0' * digits}" if digits else ""
    return f"1{point} {form.partition(':')[2]}".rstrip()


def _items(original: list[Any], text: str) -> list[Any]:
    lines = [line.strip() for line in _lines(text).split("\n") if line.strip()]
    if not all(is_number(it) for it in original):
        return lines
    try:
        numbers = [from_json(line, allow_inf_nan=False) for line in lines]
    except ValueError:
        raise ValueError("must be a number") from None
    if not all(is_number(it) for it in numbers):
        raise ValueError("must be a number")
    return numbers


def is_number(value: Any) -> bool:
    """Whether a value is a number of JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


# What an edit, or a new round, changes.


@dataclass(frozen=True, slots=True)
class Change:
    """One value: how it differs from before. ``row`` has its label, where the page shows it."""

    key: str
    changed: bool
    lines: tuple[DiffLine, ...] = ()
    before: Passage | None = None
    after: Passage | None = None
    """Both whole, where they are too long to be compared."""
    row: Row | None = None
    is_prose: bool = True

    @property
    def name(self) -> Html:
        """The value's name."""
        return marked(self.key)


def changes(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    rows: Mapping[str, Row] | None = None,
    style: Style = ENGLISH,
) -> list[Change]:
    """Every value after an edit, in order, then those that are gone."""
    names = [*after, *(name for name in before if name not in after)]
    return [_change(name, before, after, (rows or {}).get(name), style) for name in names]


def differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two objects are not the same JSON; 1 and true are not."""
    return canonical_json(before) != canonical_json(after)


def _change(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any], row: Row | None, style: Style
) -> Change:
    if name in before and name in after and not differ({"": before[name]}, {"": after[name]}):
        return Change(name, changed=False, row=row)
    form = "" if row is None else row.format
    was = _said(before[name], form, style) if name in before else None
    now = _said(after[name], form, style) if name in after else None
    if was == now:  # a number, and a text that spells it
        was, now = (None if it is None else json.dumps(it) for it in (before.get(name), after.get(name)))
    lines = difference(was, now)
    if lines is None:
        return Change(name, True, before=passage(was or ""), after=passage(now or ""), row=row)
    return Change(name, True, lines, row=row, is_prose=form.partition(":")[0] not in CODE)


def _said(value: Any, form: str, style: Style) -> str:
    """A value as it is compared: formatted where that says the same, else as it is."""
    text = formatted(value, form, style)
    return text_of(value) if text is None else text
