"""A form that a browser posted, read as an answer or as a step towards one; no script is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from pydantic_core import from_json

from askfirst import limits
from askfirst.protocol import visible_fields
from askfirst.service.answers import edit_faults
from askfirst.service.case import Case
from askfirst.service.pages.fields import choices_of, fields_of_step, read_field, step_after, step_before
from askfirst.service.pages.subject import Editable, differ, editable_of, read_edits
from askfirst.service.verification import MOST_PROOFS

Intent = Literal["answer", "decline", "preview", "revise", "next", "back", "draft", "more"]
Posted = Mapping[str, list[str]]
_UNCHANGED = "Nothing is changed yet."
_IN_BETWEEN = "You have begun to change something, so nothing is decided yet."
_LONGEST_NONCE = 100
_NOTES = ("feedback", "reason", "note")
_WITHOUT_EDITS = ("reject", "skip", "abort")
"""Decisions after which the call does not run, so that edits of it do not matter."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What the person wants, and what they filled in.

    - ``answer``: settle the case with ``action`` and ``data``, which has the shape of the protocol's result.
    - ``preview``: show what the edits change; ``revise``: go on editing. ``pressed`` in the data is the decision
      for the unchanged call that was pressed although fields were changed.
    - ``decline``: the person chooses none, or cannot answer.
    - ``next``, ``back``: go to another step; ``draft``: come back later. All three keep ``data`` as the draft.
    - ``more``: the answers brought up fields that the page did not have; show the step again.

    With ``faults`` the same step is shown again, else ``goto``; ``values`` for `render_case` is ``data``.
    """

    intent: Intent
    action: str
    data: dict[str, Any] = field(repr=False)
    step: int = 1
    goto: int = 1
    faults: dict[str, str] = field(default_factory=dict[str, str])
    email_code: str = field(default="", repr=False)
    send_code: int | None = None
    """The number of the address to send a code to; the form asks for nothing else then."""
    proofs: dict[int, str] = field(default_factory=dict[int, str], repr=False)
    """What was entered as proofs, by place."""
    nonce: str = field(default="", repr=False)
    """The nonce of the form: the same form posted twice is one decision."""
    confirmed: str = ""
    """What the second step sent: see `askfirst.service.friction`."""
    unread: bool = False
    """Whether the person says that they decide without having read all of it."""
    carried: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The form's fields that the second step has to send again."""


def read_submission(case: Case, form_data: Posted) -> Submission:
    """Read the fields that the page of a case posted. What they say is checked when the case is answered."""
    submission = _with_code(case, form_data)
    return replace(
        submission,
        proofs=_proofs(form_data) if case.verification_policy else {},
        nonce=_first(form_data, "nonce")[:_LONGEST_NONCE],
        confirmed=_first(form_data, "confirmed")[:_LONGEST_NONCE],
        unread=_first(form_data, "unread") == "accepted",
        carried=_carried(form_data),
    )


def _carried(posted: Posted) -> tuple[tuple[str, str], ...]:
    """What the second step sends again: the decision and its data, without what that step asks for itself."""
    own = ("nonce", "confirmed", "unread", "email_code", "send_code", *_NOTES)
    return tuple(
        (name, text)
        for name, texts in posted.items()
        if name not in own and not name.startswith("arg.")
        for text in texts
    )


def _with_code(case: Case, form_data: Posted) -> Submission:
    if not case.verify_email:
        return _read(case, form_data)
    wished = _first(form_data, "send_code")
    # The preview of an edit posts the edit, which is kept.
    submission = _read(case, {"intent": ["answer"], **form_data} if wished else form_data)
    email_code = _first(form_data, "email_code").strip()[: limits.CODE_CHARACTERS]
    send_code = int(wished) if wished.isascii() and wished.isdigit() and len(wished) < 4 else None
    if submission.intent == "preview" and email_code and _UNCHANGED in submission.faults.values():
        send_code = (
            0  # the Enter key presses a form's first button, which shows the changes if there are fields
        )
    elif send_code is not None and "pressed" in form_data:
        submission.data["pressed"] = _action(case, form_data, "pressed")
    return replace(submission, email_code=email_code, send_code=send_code)


def _proofs(posted: Posted) -> dict[int, str]:
    entered = {place: _first(posted, f"proof.{place}").strip() for place in range(MOST_PROOFS)}
    return {place: text for place, text in entered.items() if 0 < len(text) <= limits.PROOF_CHARACTERS}


def _read(case: Case, form_data: Posted) -> Submission:
    if case.type in ("selection", "input") and _first(form_data, "decline"):
        action = "select" if case.type == "selection" else "submit"
        return Submission("decline", action, {"declined": True, **_texts(form_data, "note")})
    if case.type == "approval":
        return _approval(case, form_data)
    if case.type == "selection":
        return _selection(case, form_data)
    if case.type == "confirmation":
        return _confirmation(case, form_data)
    if case.type == "escalation":
        return _escalation(case, form_data)
    return _input(case, form_data)


def _approval(case: Case, posted: Posted) -> Submission:
    data = _texts(posted, "feedback")
    action = _action(case, posted)
    editable = editable_of(case)
    edited = None if editable is None else _edited(case, editable, posted, data)
    if edited is not None:
        return edited
    faults = _chosen(action)
    if action == "edit" and not data:
        faults = {"feedback": "Say what should be different."}
    return Submission("answer", action, data, faults=faults)


def _escalation(case: Case, posted: Posted) -> Submission:
    data = _texts(posted, "reason")
    action = _action(case, posted)
    editable = editable_of(case)
    edited = None if editable is None else _edited(case, editable, posted, data)
    if edited is not None:
        return edited
    faults = _chosen(action)
    params = _first(posted, "modified_params").strip()
    if params and action in ("retry", "") and editable is None:
        data["modified_params"] = params
        try:
            data["modified_params"] = from_json(params, allow_inf_nan=False)
        except ValueError:
            faults["modified_params"] = "is no JSON"
    return Submission("answer", action, data, faults=faults)


def _edited(case: Case, editable: Editable, posted: Posted, data: dict[str, Any]) -> Submission | None:
    """The submission of edited arguments; None if the decision does not concern them.

    An edit goes through a page that shows what it changes; that page posts it as one JSON object. So does a
    decision for the call as it was that comes with changed fields: nobody can tell which of the two is meant.
    """
    action, intent = _action(case, posted), _first(posted, "intent")
    if action == editable.action and intent in ("answer", "revise", "original"):
        return _previewed(case, editable, posted, data)
    values, faults = read_edits(editable, {name: texts[0] for name, texts in posted.items() if texts})
    changed = bool(faults) or differ(editable.values, values)
    wanted = intent == "preview" or action == editable.action == "edit"
    if not wanted and (not changed or action in _WITHOUT_EDITS):
        return None
    kept = {**data, editable.key: values}
    if not wanted and not action:
        return Submission("answer", "", kept, faults=faults | _chosen(action))
    if not changed:
        return Submission("preview", editable.action, kept, faults={editable.key: _UNCHANGED})
    faults = faults or edit_faults(case, values)
    if not wanted:
        kept["pressed"] = action
        faults = faults and {editable.key: _IN_BETWEEN, **faults}
    return Submission("preview", editable.action, kept, 1, 2, faults)


def _previewed(case: Case, editable: Editable, posted: Posted, data: dict[str, Any]) -> Submission:
    """What was pressed on the page that shows the changes."""
    intent = _first(posted, "intent")
    if intent == "original":
        action = _action(case, posted, "pressed")
        return Submission("answer", action, data, faults=_chosen(action))
    try:
        values: Any = from_json(_first(posted, editable.key), allow_inf_nan=False)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        fault = {editable.key: "The changes did not arrive. Please make them again."}
        return Submission("preview", editable.action, data, faults=fault)
    data[editable.key] = cast("dict[str, Any]", values)
    if intent == "revise":
        return Submission("revise", editable.action, data, 2, 1)
    return Submission("answer", editable.action, data, 2, 2)


def _selection(case: Case, posted: Posted) -> Submission:
    note = _texts(posted, "note") if case.request is None else {}  # an agent's question takes no note
    return Submission("answer", "select", {"selected": _picked(case, posted, "selected"), **note})


def _confirmation(case: Case, posted: Posted) -> Submission:
    action = _action(case, posted)
    data: dict[str, Any] = _texts(posted, "note")
    faults = _chosen(action)
    picked = _picked(case, posted, "confirmed_items") if choices_of(case) and action != "cancel" else []
    if picked:
        data["confirmed_items"] = picked
    elif action == "confirm" and choices_of(case):
        data["confirmed_items"] = []
        faults["confirmed_items"] = "Choose what you confirm, or cancel."
    return Submission("answer", action, data, faults=faults)


def _picked(case: Case, posted: Posted, name: str) -> list[str]:
    """The ids of the chosen items, which are posted by their place; without items, ids typed line by line."""
    choices = choices_of(case)
    if not choices:
        lines = [line.strip() for text in posted.get(name, ()) for line in text.splitlines()]
        return [line for line in lines if line]
    places = set(posted.get(name, ()))
    return [choice.id for place, choice in enumerate(choices) if str(place) in places]


def _input(case: Case, posted: Posted) -> Submission:
    form = case.form
    intent = _first(posted, "intent") or "answer"
    if form is None:
        return Submission("answer", "submit", _texts(posted, "response"))
    step = _number(_first(posted, "step"))
    data: dict[str, Any] = dict(case.draft or {})
    for each in fields_of_step(form, step):
        value = read_field(each, posted.get(f"f.{each.key}", ()))
        if value is not None:
            data[each.key] = value
        elif not each.sensitive:  # an empty sensitive field means: unchanged
            data.pop(each.key, None)
    visible = visible_fields(form, data)
    data = {each.key: data[each.key] for each in visible if each.key in data}
    had = set(posted.get("shown", ()))
    here = {each.key for each in fields_of_step(form, step)}
    if intent == "back":
        return Submission("back", "submit", data, step, step_before(form, data, step))
    if intent == "draft":
        return Submission("draft", "submit", data, step, step)
    if any(each.key in here and each.key not in had for each in visible):
        return Submission("more", "submit", data, step, step)
    if intent == "next":
        return Submission("next", "submit", data, step, step_after(form, data, step))
    return Submission("answer", "submit", data, step, step)


def _action(case: Case, posted: Posted, name: str = "action") -> str:
    """The pressed button's action, if the case has it."""
    action = _first(posted, name)
    return action if action in case.actions else ""


def _chosen(action: str) -> dict[str, str]:
    return {} if action else {"action": "Press one of the buttons."}


def _texts(posted: Posted, name: str) -> dict[str, Any]:
    text = _first(posted, name).replace("\r\n", "\n")
    return {name: text} if text.strip() else {}


def _first(posted: Posted, name: str) -> str:
    return next(iter(posted.get(name, ())), "")


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 4 else 1
