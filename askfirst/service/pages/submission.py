"""A posted form, read as an answer to the case or as a step towards an answer. It works without script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from askfirst import limits
from askfirst.protocol import Form, FormField, sensitive_keys, visible_fields
from askfirst.service.answers import edit_faults
from askfirst.service.case import Case
from askfirst.service.pages.choices import (
    LONGEST_FIND,
    Choice,
    Order,
    Reading,
    choices_of,
    takes_one,
    unpacked,
)
from askfirst.service.pages.edit_kinds import json_in
from askfirst.service.pages.edits import (
    Editable,
    begun,
    editable_of,
    read_edits,
    sent_edits,
    stepped,
    with_other_parts,
)
from askfirst.service.pages.fields import fields_of_step, read_field, step_after, step_before, walked
from askfirst.service.pages.form_parts import listed_field, options_of, paged
from askfirst.service.pages.language import DEFAULT, Language, languages
from askfirst.service.pages.subject import differ
from askfirst.service.verification import MOST_PROOFS

Intent = Literal["answer", "decline", "preview", "revise", "drop", "next", "back", "draft", "more", "turn"]
Posted = Mapping[str, list[str]]
_UNCHANGED = "Nothing is changed yet."
_TOO_MUCH = "Your changes are too long for this page, so they were not kept."
_IN_BETWEEN = "You have begun to change something, so nothing is decided yet."
_LONGEST_NONCE = 100
_LONG = 400
_OF_CODE = ("nonce", "email_code", "send_code", "with_code")
_OF_SECOND = ("confirmed", "unread", "looked", "feedback", "reason", "note")
"""The fields of the second step. It asks for them itself, so they are not carried to it."""
_WITHOUT_EDITS = ("reject", "skip", "abort")
"""Decisions after which the call does not run, so edits of its arguments are ignored."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What the person wants, and what they filled in.

    - ``answer``: settle the case with ``action`` and ``data``, which has the shape of the protocol's result.
    - ``preview``: show what the edits change; ``revise``: go on editing; ``drop``: forget them. ``pressed`` in the
      data is the decision for the unchanged call that was pressed although fields were changed.
    - ``decline``: the person chooses none of the items, or cannot answer.
    - ``next``, ``back``: go to another step; ``draft``: come back later. All three keep ``data`` as the draft.
    - ``turn``: show the list again, with another part, the result of a search, or all or none of it chosen; or go
      back to the list or form from a further step.
    - ``more``: the answers made further fields visible that the page did not have; show the step again.

    With ``faults`` the same step is shown again, otherwise the step ``goto``. `render_case` takes ``data`` as its
    ``values``.
    """

    intent: Intent
    action: str
    data: dict[str, Any] = field(repr=False)
    step: int = 1
    goto: int = 1
    faults: dict[str, str] = field(default_factory=dict[str, str])
    email_code: str = field(default="", repr=False)
    send_code: int | None = None
    """The index of the e-mail address to send a code to. If it is set, the form asks for nothing else."""
    reading: Reading = field(default=Reading(), repr=False)
    """Where the person is in a long list."""
    proofs: dict[int, str] = field(default_factory=dict[int, str], repr=False)
    """The proofs that were entered, by their place in the verification policy."""
    nonce: str = field(default="", repr=False)
    """The nonce of the form: the same form posted twice is one decision."""
    with_code: bool = False
    """Whether the form comes from the step that asks for a code."""
    confirmed: str = ""
    """The value that the second step posted: see `askfirst.service.friction`."""
    unread: bool = False
    """Whether the person accepts to decide without having read all of the case."""
    looked: bool = False
    """Whether the person says that they have looked at the lines that match a risk pattern."""
    carried: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The fields of this form that the second step has to post again."""
    carried_to_code: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The fields of this form that the step with the e-mail code has to post again."""
    edits_from: int = 0
    """The index of the first argument that the page with the edit fields shows next."""
    drafted: str | None = None
    """The `drafted_mark` of the draft that the page was made of; None from a program, which has seen no page."""
    begun: dict[str, Any] | None = field(default=None, repr=False)
    """The draft of an unfinished edit, to be stored for this browser."""


QUICK = 4
"""How many ready-made reasons to reject the page offers, unless the operator has set others."""


def quick_reasons(language: Language, given: Sequence[str] = ()) -> list[str]:
    """The ready-made reasons to reject: those ``given`` by the operator, or the page's own.

    Last comes the text that is sent when another try is asked for without a reason.
    """
    reasons = list(given) or [language.plain(f"reject.{place}") for place in range(1, QUICK + 1)]
    return [*reasons, language.plain("again.default")]


def read_submission(
    case: Case, form_data: Posted, language: Language | None = None, reasons: Sequence[str] = ()
) -> Submission:
    """Read the fields that the page of a case posted. The answer itself is checked when the case is answered.

    ``language`` is the language of the page. A ready-made reason is sent in that language,
    unless it is one of the operator's own ``reasons``.
    """
    submission = _with_code(case, form_data, quick_reasons(language or languages()[DEFAULT], reasons))
    again = _posted_again(case, form_data)
    return replace(
        submission,
        proofs=_proofs(form_data) if case.verification_policy else {},
        nonce=_first(form_data, "nonce")[:_LONGEST_NONCE],
        confirmed=_first(form_data, "confirmed")[:_LONGEST_NONCE],
        unread=_first(form_data, "unread") == "accepted",
        looked=_first(form_data, "looked") == "accepted",
        carried=tuple((name, text) for name, text in again if name not in _OF_SECOND),
        carried_to_code=again,
        with_code=bool(_first(form_data, "with_code")),
        edits_from=_edits_from(form_data),
        drafted=_first(form_data, "drafted")[:_LONGEST_NONCE] if "drafted" in form_data else None,
    )


def _edits_from(posted: Posted) -> int:
    """The part of very many arguments that a button leads to, or else that the page had."""
    kind, _, asked = _first(posted, "intent").partition(".")
    place = asked if kind == "rows" else _first(posted, "rows").partition("-")[0]
    return int(place) if place.isascii() and place.isdecimal() and len(place) < 6 else 0


def _posted_again(case: Case, posted: Posted) -> tuple[tuple[str, str], ...]:
    """The fields that a further step posts again: the decision and its data, without sensitive values.

    Sensitive values stay on the server, in the draft.
    """
    secret = set[str]() if case.form is None else {f"f.{key}" for key in sensitive_keys(case.form)}
    return tuple(
        _carried(name, text)
        for name, texts in posted.items()
        if name not in _OF_CODE and name not in secret and not name.startswith(("arg.", "proof."))
        for text in texts
    )


def _carried(name: str, text: str) -> tuple[str, str]:
    """A field for a further step. For a long text, which the draft keeps, the field ``keeps`` has its key."""
    key = name if name == "response" else name.removeprefix("f.")
    return ("keeps", key) if (key != name or key == "response") and is_long(text) else (name, text)


def is_long(text: str) -> bool:
    """Whether a text is so long that the draft keeps it, instead of a further step posting it again."""
    return len(text) > _LONG


def _with_code(case: Case, form_data: Posted, quick: Sequence[str]) -> Submission:
    if not case.verify_email:
        return _read(case, form_data, quick)
    wished = _first(form_data, "send_code")
    submission = _read(case, form_data, quick)
    email_code = _first(form_data, "email_code").strip()[: limits.CODE_CHARACTERS]
    send_code = int(wished) if wished.isascii() and wished.isdigit() and len(wished) < 4 else None
    return replace(submission, email_code=email_code, send_code=send_code)


def _proofs(posted: Posted) -> dict[int, str]:
    entered = {place: _first(posted, f"proof.{place}").strip() for place in range(MOST_PROOFS)}
    return {place: text for place, text in entered.items() if 0 < len(text) <= limits.PROOF_CHARACTERS}


def _read(case: Case, form_data: Posted, quick: Sequence[str]) -> Submission:
    if case.type in ("selection", "input") and _first(form_data, "decline"):
        action = "select" if case.type == "selection" else "submit"
        note = _texts(form_data, "decline_reason", "note") or _texts(form_data, "note")
        return Submission("decline", action, {"declined": True, **note})
    if case.type == "approval":
        return _approval(case, form_data, quick)
    if case.type == "selection":
        return _selection(case, form_data)
    if case.type == "confirmation":
        return _confirmation(case, form_data)
    if case.type == "escalation":
        return _escalation(case, form_data)
    return _input(case, form_data)


def _approval(case: Case, posted: Posted, quick: Sequence[str]) -> Submission:
    """A decision. Rejecting and asking for another try take a reason, approving takes a note."""
    again = _first(posted, "action") == "again"
    action = "edit" if again else _action(case, posted)
    # The page has two fields. Otherwise a reason to reject that was typed first would be sent with an approval.
    noted = action == "approve" and "note" in posted
    data = _texts(posted, "note", "feedback") if noted else _texts(posted, "feedback")
    if again or action == "reject":
        data = _with_quick(data, posted, quick)
    if again:
        return Submission("answer", "edit", data or {"feedback": quick[-1]})
    editable = editable_of(case)
    edited = None if editable is None else _edited(case, editable, posted, data)
    if edited is not None:
        return edited
    faults = _chosen(action)
    if action == "edit" and editable is None and (text := _first(posted, "edits").strip()):
        faults |= _read_json(data, "edits", text)  # a program that has a code sent for its edits
    if action == "edit" and not data:
        faults = {"feedback": "Say what should be different."}
    return Submission("answer", action, data, faults=faults)


def _with_quick(data: dict[str, Any], posted: Posted, quick: Sequence[str]) -> dict[str, Any]:
    """The typed reason, with the chosen ready-made reason before it."""
    chosen = _first(posted, "quick")
    if not (chosen.isdecimal() and len(chosen) < 3 and int(chosen) < len(quick) - 1):
        return data
    words = [quick[int(chosen)], *([data["feedback"]] if data else [])]
    return {"feedback": "\n".join(words)}


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
        faults |= _read_json(data, "modified_params", params)
    return Submission("answer", action, data, faults=faults)


def _read_json(data: dict[str, Any], name: str, text: str) -> dict[str, str]:
    """Add a value that was posted as JSON; returns the fault if it is none, and adds the text as it is."""
    data[name] = text
    try:
        data[name] = json_in(text)
    except ValueError:
        return {name: "is not JSON"}
    return {}


def _edited(case: Case, editable: Editable, posted: Posted, data: dict[str, Any]) -> Submission | None:
    """The submission of edited arguments; None if the form has no edits, or a decision that ignores them.

    An edit first leads to a page that shows what it changes. That page posts the arguments as one JSON object.
    If a person changed fields but pressed the button for the original call, the same page asks which of the two
    they mean.
    """
    action, intent = _action(case, posted), _first(posted, "intent")
    if action == editable.action and intent in ("answer", "revise", "original"):
        return _previewed(case, editable, posted, data)
    if intent == "drop":
        return Submission("drop", editable.action, data, begun=begun(case, editable, {}))
    typed = with_other_parts(case, {name: texts[0] for name, texts in posted.items() if texts})
    values, faults = read_edits(editable, typed)
    edited = _stepped(case, editable, typed, data, intent)
    if edited is not None:
        return edited
    changed = bool(faults) or differ(editable.values, values)
    wanted = intent == "preview" or action == editable.action == "edit"
    if not wanted and (not changed or action in _WITHOUT_EDITS):
        return None
    kept = {**data, editable.key: values}
    draft = begun(case, editable, typed)
    if not wanted and not action:
        return Submission("answer", "", kept, faults=faults | _chosen(action))
    if not changed:
        return Submission("preview", editable.action, kept, faults={editable.key: _UNCHANGED}, begun=draft)
    if not faults and sent_edits(editable, values) is None:
        return Submission("preview", editable.action, data, faults={editable.key: _TOO_MUCH}, begun=draft)
    faults = faults or edit_faults(case, values)
    if not wanted:
        kept["pressed"] = action
        faults = faults and {editable.key: _IN_BETWEEN, **faults}
    return Submission("preview", editable.action, kept, 1, 2, faults, begun=draft)


def _stepped(
    case: Case, editable: Editable, typed: Mapping[str, str], data: dict[str, Any], intent: str
) -> Submission | None:
    """An edit that is saved for later, or a button beside one of its fields; None if neither was pressed."""
    if intent == "draft":
        return Submission("draft", editable.action, data, begun=begun(case, editable, typed))
    if intent.partition(".")[0] not in ("json", "fields", "add", "remove", "putback", "rows"):
        return None
    values, faults = read_edits(editable, typed)
    if intent.startswith("rows."):
        draft = begun(case, editable, typed)
        return Submission("revise", editable.action, {**data, editable.key: values}, begun=draft)
    own = f"arg.{intent.partition('.')[2].partition('.')[0]}"
    if intent.startswith("putback."):
        typed = {name: text for name, text in typed.items() if name != own and not name.startswith(f"{own}.")}
    after = stepped(editable, values, intent)
    kept = {**data, editable.key: values if after is None else after}
    shown = faults if after is None else {}
    return Submission("revise", editable.action, kept, faults=shown, begun=begun(case, editable, typed))


def _previewed(case: Case, editable: Editable, posted: Posted, data: dict[str, Any]) -> Submission:
    """The button that was pressed on the page that shows the changes."""
    intent = _first(posted, "intent")
    if intent == "original":
        action = _action(case, posted, "pressed")
        return Submission("answer", action, data, faults=_chosen(action))
    name = "changed" if _first(posted, "changed") else editable.key
    try:
        values: Any = json_in(_first(posted, name))
    except ValueError:
        values = None
    if not isinstance(values, dict):
        fault = {editable.key: "The changes did not arrive. Please make them again."}
        return Submission("preview", editable.action, data, faults=fault)
    sent = cast("dict[str, Any]", values)
    missing = editable.values if name == "changed" else editable.secret_names
    data[editable.key] = {**{it: editable.values[it] for it in missing if it not in sent}, **sent}
    if intent == "revise":
        return Submission("revise", editable.action, data, 2, 1)
    return Submission("answer", editable.action, data, 2, 2)


def _selection(case: Case, posted: Posted) -> Submission:
    note = _texts(posted, "note") if case.request is None else {}  # an agent's question takes no note
    picked = _picked(case, posted, "selected")
    return _turned(case, posted, "select", {"selected": picked, **note}, "selected")


def _confirmation(case: Case, posted: Posted) -> Submission:
    every = bool(_first(posted, "every"))
    action = "confirm" if every else _action(case, posted)
    data: dict[str, Any] = _texts(posted, "note") if case.request is None else {}
    faults = _chosen(action)
    picked = _picked(case, posted, "confirmed_items") if choices_of(case) and action != "cancel" else []
    if every and not _first(posted, "part"):  # "part": back from a further step, to what was chosen before
        picked = [choice.id for choice in choices_of(case)]
    if picked:
        data["confirmed_items"] = picked
    elif action == "confirm" and choices_of(case):
        data["confirmed_items"] = []
        faults["confirmed_items"] = "Choose what you confirm, or confirm none."
    turned = _turned(case, posted, action, data, "confirmed_items")
    return turned if turned.intent == "turn" else replace(turned, faults=faults)


def _turned(case: Case, posted: Posted, action: str, data: dict[str, Any], name: str) -> Submission:
    """The answer with what was chosen, or the list again: another part of it, or all or none of it chosen."""
    choices = choices_of(case)
    reading = _reading(posted, len(choices))
    if reading is None:
        return Submission("answer", action, data, reading=_read_so_far(posted, len(choices)))
    if (pick := _first(posted, "pick")) in ("all", "none"):
        data = {**data, name: [it.id for it in choices] if pick == "all" and not takes_one(case) else []}
    return Submission("turn", action, data, reading=reading)


def _reading(posted: Posted, count: int) -> Reading | None:
    """The part of a list that a person wants to see; None if they pressed another button."""
    reading = _read_so_far(posted, count)
    if _first(posted, "search"):
        return replace(reading, part=1)
    if part := _first(posted, "part"):
        return replace(reading, part=_number(part))
    if "by" in posted:
        return replace(reading, part=1, order=_order(_first(posted, "by")))
    return reading if _first(posted, "pick") in ("all", "none") else None


def _read_so_far(posted: Posted, count: int) -> Reading:
    find = _first(posted, "find")[:LONGEST_FIND]
    seen = unpacked(_first(posted, "seen"), count)
    return Reading(_number(_first(posted, "at")), find, seen, _order(_first(posted, "order")))


def _order(text: str) -> Order:
    return "down" if text == "down" else "up" if text == "up" else ""


def _picked(case: Case, posted: Posted, name: str) -> list[str]:
    """The ids of the chosen items. Without items, ids are typed line by line."""
    choices = choices_of(case)
    if not choices:
        lines = [line.strip() for text in posted.get(name, ()) for line in text.splitlines()]
        return [line for line in lines if line]
    return _places(choices, posted, name, one=case.type == "selection" and takes_one(case))


def _places(choices: Sequence[Choice], posted: Posted, name: str, *, one: bool) -> list[str]:
    """The ids of the items chosen on this part of the list and on others, from the posted positions.

    If only one may be chosen, a choice on this part replaces that of another part.
    """
    here, kept = set(posted.get(name, ())), unpacked(_first(posted, "kept"), len(choices))
    chosen = [it.id for place, it in enumerate(choices) if str(place) in here]
    if one and chosen:
        return chosen
    return [it.id for place, it in enumerate(choices) if str(place) in here or place in kept]


def _input(case: Case, posted: Posted) -> Submission:
    intent = _first(posted, "intent") or "answer"
    if case.form is None:
        said = _texts(posted, "response") or _kept_response(case, posted)
        return Submission("turn" if _first(posted, "part") else "answer", "submit", said)
    form = paged(case.form)
    step = _number(_first(posted, "step"))
    data = _filled_in(case, form, step, posted)
    field = listed_field(form, step)
    if field is not None and (reading := _reading(posted, len(field.options or ()))) is not None:
        return Submission("turn", "submit", data, step, step, reading=reading)
    if _first(posted, "part"):
        return Submission("turn", "submit", data, step, step)
    visible = visible_fields(form, data)
    data = {each.key: data[each.key] for each in visible if each.key in data}
    had = set(posted.get("shown", ()))
    here = {each.key for each in fields_of_step(form, step)}
    asked = intent.removeprefix("goto.")
    if intent != asked and asked.isdecimal() and len(asked) < 4 and int(asked) in walked(form, data):
        return Submission("back", "submit", data, step, min(int(asked), step))
    if intent == "back":
        return Submission("back", "submit", data, step, step_before(form, data, step))
    if intent == "draft":
        return Submission("draft", "submit", data, step, step)
    if any(each.key in here and each.key not in had for each in visible):
        return Submission("more", "submit", data, step, step)
    if intent == "next":
        return Submission("next", "submit", data, step, step_after(form, data, step))
    reading = Reading() if field is None else _read_so_far(posted, len(field.options or ()))
    return Submission("answer", "submit", data, step, step, reading=reading)


def _filled_in(case: Case, form: Form, step: int, posted: Posted) -> dict[str, Any]:
    """The draft with the fields of a step as they were posted."""
    data: dict[str, Any] = dict(case.draft or {})
    keeps = set(posted.get("keeps", ())) if _is_own_draft(case) else set[str]()
    field = listed_field(form, step)
    for each in fields_of_step(form, step):
        texts = posted.get(f"f.{each.key}", ())
        value = read_field(each, texts) if field is None else _options(case, field, posted)
        if value is not None:
            data[each.key] = value
        elif not each.sensitive and each.key not in keeps:  # a long value stays in the draft
            data.pop(each.key, None)
    return data


def _kept_response(case: Case, posted: Posted) -> dict[str, Any]:
    """The draft's answer, if it was too long to be sent back to the page; empty if the draft is another browser's."""
    draft = case.draft or {}
    if "response" not in posted.get("keeps", ()) or "response" not in draft or not _is_own_draft(case):
        return {}
    return {"response": draft["response"]}


def _is_own_draft(case: Case) -> bool:
    return case.drafted_by == case.viewer


def _options(case: Case, field: FormField, posted: Posted) -> Any:
    """The options chosen in a list, on this part of it and on others; None if none is chosen."""
    choices, one = options_of(case, field), field.type == "select"
    if (pick := _first(posted, "pick")) in ("all", "none"):
        picked = [it.id for it in choices] if pick == "all" and not one else []
    else:
        picked = _places(choices, posted, "selected", one=one)
    return (picked[0] if one else picked) if picked else None


def _action(case: Case, posted: Posted, name: str = "action") -> str:
    """The action of the pressed button; empty if the case does not offer that action."""
    action = _first(posted, name)
    return action if action in case.actions else ""


def _chosen(action: str) -> dict[str, str]:
    return {} if action else {"action": "Press one of the buttons."}


def _texts(posted: Posted, name: str, key: str | None = None) -> dict[str, Any]:
    texts = [text.replace("\r\n", "\n") for text in posted.get(name, ()) if text.strip()]
    return {key or name: texts[0]} if texts else {}


def _first(posted: Posted, name: str) -> str:
    return next(iter(posted.get(name, ())), "")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 1
