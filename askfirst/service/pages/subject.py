"""What a case is about: the call that would run, its arguments edited and compared, why, and whose words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Literal, cast
from urllib.parse import quote_plus

from pydantic_core import from_json

from askfirst.messages import JsonObject, canonical_json
from askfirst.requests import HitlPayload
from askfirst.service.case import Case
from askfirst.service.pages.inert_text import Html, Passage, has_hidden, marked, passage

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
    return passage(name) if name else Passage(Html("<em>no name</em>"), "")


_USED = {"selection": ("items", "multiple", "required"), "confirmation": ("items_to_confirm",)}
_OURS = {"matched_rule_id": "Rule", "agent_path": "Agent", "principal": "On behalf of"}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool and every argument, as they are or were to run."""

    tool_name: str
    args: JsonObject
    digest: str | None = None

    @property
    def title(self) -> Passage:
        """The tool's name."""
        return passage(self.tool_name)

    @property
    def shown(self) -> list[Shown]:
        """The arguments."""
        return shown_all(self.args)


@dataclass(frozen=True, slots=True)
class Why:
    """Why a person is asked, from the policy's rules, without any words of the agent."""

    reason: Passage | None
    facts: list[Shown]


@dataclass(frozen=True, slots=True)
class Words:
    """What the agent or the calling service wrote: sentences, and facts by name; ``author`` says which of the two."""

    author: Literal["agent", "side", "service"]
    prompt: Passage | None
    message: Passage | None
    facts: list[Shown]
    questions: list[Passage] = field(default_factory=list[Passage])
    """What was to be filled in or chosen from, where the page has no fields for it any more."""

    def __bool__(self) -> bool:
        return bool(self.prompt or self.message or self.facts or self.questions)


def call_of(case: Case) -> Call | None:
    """The call that waits for the answer, or that is in doubt; None where there is none."""
    shown = None if case.payload is None else case.payload.shown_call
    return None if shown is None else Call(*shown, case.digest)


def why_of(case: Case) -> Why | None:
    """The reason, the rule, the agent and the principal of a call; None if none is given."""
    if case.payload is None:
        return None
    told = _told(case.payload)
    if not told:
        return None
    reason = told.pop("reason", None)
    return Why(_passage(reason), [shown(_OURS[name], text) for name, text in told.items()])


def _told(payload: HitlPayload) -> dict[str, str]:
    """What the gate tells of a call that waits to be approved, each as text."""
    told: dict[str, str] = {}
    if payload.gated_call is None:
        return told
    for name, value in (payload.details or {}).items():
        if name == "agent_path" and isinstance(value, list) and all(isinstance(each, str) for each in value):
            told[name] = " / ".join(cast("list[str]", value))
        elif name in ("reason", "matched_rule_id", "principal") and isinstance(value, str):
            told[name] = value
    return {name: text for name, text in told.items() if text}


def words_of(case: Case) -> Words:
    """Everything that the agent's side or the calling service wrote, but for the choices and fields to fill in."""
    payload = case.payload
    if payload is None:
        used = ("form", *_USED.get(case.type, ()))
        facts = {name: value for name, value in case.context.items() if name not in used}
        return Words("service", _passage(case.prompt), _passage(case.message), shown_all(facts))
    # The call itself, and the labels of a form, are shown elsewhere on the page.
    is_said = payload.gated_call is not None or case.form is not None
    prompt = None if is_said else " ".join(payload.sentences)
    used = (*payload.call_details, *_told(payload))
    facts = {name: value for name, value in (payload.details or {}).items() if name not in used}
    return Words(payload.written_by, _passage(prompt), None, shown_all(facts))


def _passage(text: str | None) -> Passage | None:
    return passage(text) if text else None


# Editing the arguments of a call.


Control = Literal["text", "lines", "number", "boolean", "json", "fixed"]

_LONGEST = 50_000
"""A longer value cannot be edited: a browser takes many seconds to lay out its field."""
_MOST_FIELDS = 1_000
_MOST_POSTED = 1_500_000
"""Every decision posts all fields, so that they have to fit into the body limit; further ones cannot be edited."""


class Unread(str):
    """A text that could not be parsed; it is shown to the person again."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Editable:
    """Values that a person may change, and under which action and key the answer has them."""

    action: Literal["edit", "retry"]
    key: Literal["edits", "modified_params"]
    values: JsonObject


@dataclass(frozen=True, slots=True)
class EditField:
    """The field of one value, named by its number."""

    name: str
    key: str
    label: Passage
    kind: str
    control: Control
    text: str
    fault: str | None = None


def editable_of(case: Case) -> Editable | None:
    """The values that may be edited: the call's arguments, or the ``params`` of a service's escalation."""
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
    """The fields, filled with ``values``, else with the original values."""
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
    """Every value after the edit, and the faults by key. A value that was not posted is unchanged."""
    values: dict[str, Any] = {}
    faults: dict[str, str] = {}
    for place, (name, original) in enumerate(editable.values.items()):
        text = posted.get(f"arg.{place}")
        if text is None or _lines(text) == _lines(_text(original, original)):
            values[name] = original  # a browser changes line ends by itself: no edit
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


# What an edit changes, line by line.


_MOST_LINES = 400
"""Longer values are not compared, which would take too long; both are shown whole."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that stays, goes or comes."""

    sign: Literal[" ", "-", "+"]
    text: Html


@dataclass(frozen=True, slots=True)
class Change:
    """One value of a call: what it is after the edit, and how it differs from before."""

    after: Shown
    changed: bool
    lines: tuple[Line, ...] = ()
    before: Passage | None = None
    """The value as it was, where it is too long for lines."""


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Every value after an edit, in order, then those that are gone."""
    names = [*after, *(name for name in before if name not in after)]
    return [_change(name, before, after) for name in names]


def differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two objects are not the same JSON; 1 and true are not."""
    return canonical_json(before) != canonical_json(after)


def _change(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Change:
    value = shown(name, after.get(name))
    if name in before and name in after and not differ({"": before[name]}, {"": after[name]}):
        return Change(value, changed=False)
    old = _diff_lines(before, name)
    new = _diff_lines(after, name)
    if len(old) + len(new) > _MOST_LINES:
        return Change(value, changed=True, before=passage("\n".join(old)))
    return Change(value, changed=True, lines=tuple(_compared(old, new)))


def _diff_lines(values: Mapping[str, Any], name: str) -> list[str]:
    return text_of(values[name]).split("\n") if name in values else []


def _compared(old: list[str], new: list[str]) -> Iterator[Line]:
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (Line(" ", marked(line)) for line in old[i1:i2])
        else:
            yield from (Line("-", marked(line)) for line in old[i1:i2])
            yield from (Line("+", marked(line)) for line in new[j1:j2])
