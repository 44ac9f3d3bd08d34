"""Checks of answers against their cases. Everything that a browser or a messenger sends is untrusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from pydantic_core import to_json

from askfirst import limits
from askfirst.errors import InvalidFormData, InvalidReview
from askfirst.json_schema import schema_faults
from askfirst.protocol import Form, clean_form_data
from askfirst.service.case import Case

_NOTE_LIMIT = limits.NOTE_CHARACTERS


def check_size(data: Mapping[str, Any]) -> None:
    """Check an answer, or a draft, against the limits of size, count and depth; raises `InvalidReview`."""
    if count_values(data, limits.ANSWER_VALUES) > limits.ANSWER_VALUES:
        raise InvalidReview({"data": f"must have at most {limits.ANSWER_VALUES} values"})
    if any(isinstance(it, float) and not math.isfinite(it) for it in _inner_values(data)):
        raise InvalidReview({"data": "has a number that JSON cannot hold"})  # 1e400 is read as infinity
    deep = depth_fault(data)
    if deep:
        raise InvalidReview({"data": deep})
    try:
        size = len(to_json(data))
    except ValueError:
        raise InvalidReview({"data": "must be valid Unicode"}) from None
    if size > limits.ANSWER_BYTES:
        raise InvalidReview({"data": f"must be at most {limits.ANSWER_BYTES} bytes of JSON"})


def clean_answer(case: Case, action: str, data: Mapping[str, Any] | None) -> dict[str, Any]:
    """The answer's data, checked against the case; raises `InvalidReview` with a sentence for each fault.

    The protocol lets an answer hold fields that its type does not define (`beyond`). They are passed on unchanged,
    within the limits of every answer. An Askfirst agent gets only the fields that it asked for.
    """
    check_size(data or {})
    if action not in case.actions:
        raise InvalidReview({"action": f"must be one of {', '.join(case.actions)}"})
    given = dict(data or {})
    if given.get("declined") is True and may_decline(case):
        return _checked_data(_declined(given), _text_faults(given, ("note",)))
    clean = _CLEANERS.get(case.type, _clean_input)
    return clean(case, action, given)


def may_decline(case: Case) -> bool:
    """Whether the caller of a case allows the answers "none of these" or "I cannot answer this" (``decline``).

    Such an answer has the case type's action and the data ``{"declined": true}``, because the protocol defines no
    action for it and allows further fields in an answer.
    """
    if case.type not in ("selection", "input") or (case.shown or {}).get("decline") is not True:
        return False
    return case.form is None or all(field.key != "declined" for field in case.form.all_fields)


def declines_by_cancelling(case: Case) -> bool:
    """Whether "none of these" or "I cannot answer this" cancels the case, with the person's words as its reason.

    That is so for an agent's question, and for a caller who did not set ``decline``: every caller knows the state
    ``cancelled``.
    """
    if case.payload is not None:
        return case.payload.kind == "ask"
    return case.type in ("selection", "input") and (case.shown or {}).get("decline") is None


DECLINE = "decline"
"""The action that `Authorize` is asked about, and that is held, where declining cancels the case."""
_CANNOT = "the person cannot answer this"


def is_decline(case: Case, action: str) -> bool:
    """Whether an action declines a case by cancelling it."""
    return action == DECLINE and declines_by_cancelling(case)


def declining(note: str | None) -> dict[str, Any]:
    """The result of a case that a person declines by cancelling it."""
    reason = {} if not note else {"reason": note[: limits.REASON_CHARACTERS]}
    return {"action": DECLINE, "data": {"declined": True, **reason}}


def reason_of_decline(data: Mapping[str, Any]) -> str:
    """Why a case was cancelled that a person declined, for whoever asked."""
    said = data.get("reason")
    return (f"{_CANNOT}: {said}" if said else _CANNOT)[: limits.REASON_CHARACTERS]


def given_reason(case: Case) -> str | None:
    """Why a case was cancelled, in the words of whoever did; None if they gave none."""
    if case.declined_by is None or case.reason is None:
        return case.reason
    return case.reason.removeprefix(_CANNOT).removeprefix(": ") or None


def _declined(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"declined": True, "note": data.get("note")}


def beyond(case: Case, data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an answer that neither its case type nor its form defines."""
    if case.form is not None:
        defined: Collection[str] = {field.key for field in case.form.all_fields}
    elif case.type in _DEFINED:
        defined = _DEFINED[case.type]
    else:
        return {}
    return {name: value for name, value in data.items() if name not in defined}


def check_step(case: Case, form: Form, data: Mapping[str, Any], step: int) -> None:
    """Check a form up to a step, counted from 1; raises `InvalidReview` as `clean_answer` does.

    ``form`` is the case's, in the steps in which pages show it.
    """
    more = beyond(case, data)
    known = {name: value for name, value in data.items() if name not in more}
    _clean_form(form, known, through_step=step)


def _clean_approval(case: Case, action: str, data: dict[str, Any]) -> dict[str, Any]:
    faults = _text_faults(data, ("feedback",))
    edits = data.get("edits")
    if edits is not None and not isinstance(edits, Mapping):
        faults["data.edits"] = "must be an object with the changed values"
    elif edits is not None and action != "edit":
        faults["data.edits"] = f"is only for the action edit, not for {action}"
    elif (
        action == "edit"
        and edits is None
        and not data.get("feedback")
        and not _has_further_values(case, data)
    ):
        faults["data"] = "must say what to change: with edits or with feedback"
    elif isinstance(edits, Mapping):
        faults |= edit_faults(case, cast("Mapping[str, Any]", edits))
    return _checked_data(data, faults)


def edit_faults(case: Case, edits: Mapping[str, Any]) -> dict[str, str]:
    """The faults of the edited arguments of an agent's call, by the key of the argument.

    The edited arguments must have the names of the arguments that were shown, and fit the tool's JSON Schema. If the
    request has no schema, each must have the JSON type of the argument that was shown; the tool validates the rest
    before it runs.
    """
    payload = case.payload
    if payload is None:
        return {}
    schema, call = payload.edit_schema, payload.call
    if payload.gated_call is not None:
        key, shown = "data.edits", payload.gated_call.args
    elif schema is not None:
        key, shown = "data.modified_params", edits
    else:
        return {}
    faults = {f"{key}.{name}": "is not an argument of this call" for name in edits if name not in shown}
    faults |= {f"{key}.{name}": "is missing" for name in shown if name not in edits}
    asked = {} if call is None else call.args
    found = _type_faults(shown, edits) if schema is None else _schema_faults(schema, edits, asked)
    return {f"{key}.{name}": fault for name, fault in found.items()} | faults


def _type_faults(shown: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, str]:
    same = [name for name in edits if shown.get(name) is not None]
    return {
        name: f"must be {_type_name(shown[name])}"
        for name in same
        if _type_name(edits[name]) != _type_name(shown[name])
    }


def _schema_faults(
    schema: Mapping[str, Any], edits: Mapping[str, Any], asked: Mapping[str, Any]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for (name, *inside), why in schema_faults(schema, edits, asked):
        said = f"Inside, {'.'.join(inside)} {why}." if inside else why
        found[name] = f"{found[name]} {said}" if name in found else said
    return found


def _type_name(value: Any) -> str:
    kinds = ((bool, "true or false"), (int | float, "a number"), (str, "text"), (list, "a list"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "an object")


def _clean_selection(case: Case, action: str, data: dict[str, Any]) -> dict[str, Any]:
    faults = _text_faults(data, ("note",))
    selected = data.get("selected")
    if selected is None and _has_further_values(case, data):
        return _checked_data(data, faults)
    if not isinstance(selected, list):
        faults["data.selected"] = "must be a list of ids"
        return _checked_data(data, faults)
    chosen = cast("list[Any]", selected)
    if not all(isinstance(each, str) for each in chosen):
        faults["data.selected"] = "must be a list of ids, each a text"
    elif len(set(chosen)) < len(chosen):
        faults["data.selected"] = "must not have the same choice twice"
    elif strange := _not_offered(case, "items", chosen):
        faults["data.selected"] = f"has a choice that is not offered: {strange!r}"
    if not chosen and case.context.get("required", True):
        faults["data.selected"] = "needs a choice"
    if len(chosen) > 1 and case.context.get("multiple") is False:
        faults["data.selected"] = "takes one choice"
    return _checked_data(data, faults)


def _clean_input(case: Case, action: str, data: dict[str, Any]) -> dict[str, Any]:
    form = case.form
    if form is not None:
        more = beyond(case, data)
        known = {name: value for name, value in data.items() if name not in more}
        return more | _clean_form(form, known)
    if all(_is_blank(value) for value in data.values()):
        raise InvalidReview({"data.response": "Write your answer."})
    return data


def _is_blank(value: Any) -> bool:
    return value in (None, [], {}) or (isinstance(value, str) and not value.strip())


def _clean_form(form: Form, data: Mapping[str, Any], through_step: int | None = None) -> dict[str, Any]:
    try:
        return clean_form_data(form, data, through_step=through_step)
    except InvalidFormData as error:
        faults = {f"data.{key}": fault for key, fault in error.faults.items()}
        raise InvalidReview(faults, omitted=error.omitted) from None


def _clean_confirmation(case: Case, action: str, data: dict[str, Any]) -> dict[str, Any]:
    faults = _text_faults(data, ("note",))
    items = data.get("confirmed_items")
    if items is not None and not (
        isinstance(items, list) and all(isinstance(each, str) for each in cast("list[Any]", items))
    ):
        faults["data.confirmed_items"] = "must be a list of texts"
        return _checked_data(data, faults)
    confirmed = cast("list[str]", items or [])
    if len(set(confirmed)) < len(confirmed):
        faults["data.confirmed_items"] = "must not have the same item twice"
    elif strange := _not_offered(case, "items_to_confirm", confirmed):
        faults["data.confirmed_items"] = f"has an item that is not asked about: {strange!r}"
    return _checked_data(data, faults)


def _not_offered(case: Case, name: str, chosen: Sequence[str]) -> str | None:
    """The first choice that is none of the case's items; None without one, or if no item has an id."""
    items: Any = case.context.get(name)
    offered = {item_id(item) for item in cast("list[Any]", items)} - {None} if isinstance(items, list) else ()
    return next((each for each in chosen if each not in offered), None) if offered else None


def _clean_escalation(case: Case, action: str, data: dict[str, Any]) -> dict[str, Any]:
    faults = _text_faults(data, ("reason",))
    params = data.get("modified_params")
    if params is not None and not isinstance(params, Mapping):
        faults["data.modified_params"] = "must be an object"
    elif params is not None and action != "retry":
        faults["data.modified_params"] = f"is only for the action retry, not for {action}"
    elif isinstance(params, Mapping):
        faults |= edit_faults(case, cast("Mapping[str, Any]", params))
    return _checked_data(data, faults)


_CLEANERS: Mapping[str, Callable[[Case, str, dict[str, Any]], dict[str, Any]]] = {
    "approval": _clean_approval,
    "selection": _clean_selection,
    "confirmation": _clean_confirmation,
    "escalation": _clean_escalation,
}


_DEFINED: Mapping[str, tuple[str, ...]] = {
    "approval": ("feedback", "edits"),
    "selection": ("selected", "note"),
    "confirmation": ("confirmed_items", "note"),
    "escalation": ("reason", "modified_params"),
}
"""The fields that the protocol defines for an answer's data, by case type."""


def _has_further_values(case: Case, data: Mapping[str, Any]) -> bool:
    """Whether an answer has values in further fields (`beyond`), which a caller may understand.

    An Askfirst agent understands none.
    """
    return case.request is None and not all(_is_blank(value) for value in beyond(case, data).values())


def _text_faults(data: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    faults: dict[str, str] = {}
    for name in names:
        value = data.get(name)
        if value is not None and not isinstance(value, str):
            faults[f"data.{name}"] = "must be text"
        elif isinstance(value, str) and len(value) > _NOTE_LIMIT:
            faults[f"data.{name}"] = f"must have at most {_NOTE_LIMIT} characters"
    return faults


def _checked_data(data: Mapping[str, Any], faults: Mapping[str, str]) -> dict[str, Any]:
    """The data without values that are None; raises `InvalidReview` if there are faults."""
    if faults:
        raise InvalidReview(faults)
    return {name: value for name, value in data.items() if value is not None}


# The items that a person chooses from: their ids, and the faults of a list of items.


LISTS: Mapping[str, str] = {"selection": "items", "confirmation": "items_to_confirm"}
"""The field of the context that has the items, by case type."""


def item_id(item: Any) -> str | None:
    """The id of an item: its ``id``, else its ``value``; a bare text or number is its own id."""
    if isinstance(item, Mapping):
        fields = cast("Mapping[str, Any]", item)
        item = fields.get(id_key(fields))
    elif item == "":
        return None
    return str(item) if isinstance(item, str | int) and not isinstance(item, bool) else None


def id_key(item: Mapping[str, Any]) -> str:
    """The name of the field with an item's id."""
    return "value" if item.get("id") is None else "id"


def item_faults(type_: str, context: Mapping[str, Any]) -> dict[str, str]:
    """The first fault of the items in a context, by its path; empty if there is none."""
    name = LISTS.get(type_, "")
    given: Any = context.get(name)
    if given is None:
        return {}
    if not isinstance(given, list):
        return {f"context.{name}": "must be a list of the items to choose from"}
    items = cast("list[Any]", given)
    if not items and type_ == "selection":
        return {f"context.{name}": "must have at least one item to choose from"}
    seen: set[str] = set()
    for place, item in enumerate(items):
        id_ = item_id(item)
        if id_ is None:
            said = 'has no id: give it one, as in {"id": "a", "title": "The first"}'
            return {f"context.{name}.{place}": said}
        if id_ in seen:
            return {f"context.{name}.{place}": f"has the id {id_[:100]!r}, which another item has, too"}
        seen.add(id_)
    return {}


# The size of JSON: estimated in its bytes before it is parsed, and counted in parsed values.


def has_more_values(raw: bytes, most: int) -> bool:
    """Whether a JSON text has more than ``most`` values; names of fields are not counted.

    It needs only a few passes over the bytes, however many values there are.
    """
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") < most:
        return False
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * most:  # two quotes for each text, and two for the name of each value
        return True
    outside = b"".join(plain.split(b'"')[::2])
    return outside.count(b",") + outside.count(b"[") + outside.count(b"{") >= most


def count_values(data: Any, most: int) -> int:
    """How many values a JSON value contains, itself included. Counting stops at one more than ``most``."""
    return sum(1 for _ in islice(_inner_values(data), most + 1))


def depth_fault(data: Any, most: int = limits.BODY_DEPTH) -> str | None:
    """A sentence if objects and lists are nested deeper than ``most``; otherwise None."""
    level = [data]
    for _ in range(most + 1):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return None
    return f"must not nest objects and lists deeper than {most}"


def _inner_values(data: Any) -> Iterator[Any]:
    waiting = [data]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += _inside(each)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []
