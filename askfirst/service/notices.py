"""What people are told of a case: what is asked, which buttons may stand below it, how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from askfirst.delivery.asked import Asked
from askfirst.delivery.base import Button, Ended, Notice, NoticeKind, Sent
from askfirst.display import RISKS, formatted
from askfirst.protocol import shown_digest
from askfirst.service.button_fields import answer_button, edit_button
from askfirst.service.case import Case

_LONGEST_VALUE = 4_000
_MOST_CHARACTERS = 20_000
_ON_PAGE = "(the whole is on the page)"
_NOT_FACTS = ("form", "items", "multiple", "required")
_OURS = ("reason", "matched_rule_id", "agent_path", "principal", "to")
"""Details that the gate adds; they are told in words of their own."""
_BUTTONS: Mapping[str, tuple[Button, ...]] = {
    "approval": (Button("approve", "Approve"), Button("reject", "Reject")),
    "confirmation": (Button("confirm", "Confirm"), Button("cancel", "Cancel")),
    "escalation": (Button("retry", "Try again"), Button("skip", "Skip"), Button("abort", "Abort")),
}
"""The decisions that need nothing but a press; whatever else is asked is answered on the page or in a form."""
_DONE = {
    "approve": "Approved",
    "reject": "Rejected",
    "edit": "Sent back with changes",
    "confirm": "Confirmed",
    "cancel": "Not confirmed",
    "select": "Chosen",
    "submit": "Answered",
    "retry": "To be tried again",
    "skip": "Skipped",
    "abort": "Aborted",
}
_SILENCE = {
    "skip": "If nobody decides by then, it is skipped.",
    "reject": "If nobody decides by then, it counts as rejected.",
    "approve": "If nobody decides by then, it counts as approved.",
    "abort": "If nobody decides by then, the whole task is aborted.",
}
_AGENT_SILENCE = {
    "approval": "If nobody decides by then, it is denied.",
    "confirmation": "If nobody decides by then, the agent is told that nobody did.",
}
_CONSEQUENCES = {
    "money": "Money moves.",
    "irreversible": "It cannot be undone.",
    "production": "It changes what runs in production.",
    "external": "People outside see it.",
    "data": "It changes or gives away data.",
    "access": "It changes who has access.",
}
_NO_ANSWER = "If nobody answers by then, the agent is told that nobody did."


def shown_of(case: Case) -> str:
    """The digest of what a message about a case shows; an answer that was pressed is bound to it."""
    asked = None if case.payload is None else case.payload.shown_digest
    return case.digest or asked or shown_digest(type=case.type, prompt=case.prompt, context=case.context)


def asked_of(case: Case, service: str) -> Asked:
    """What a message says about a case; ``service`` names who runs the service.

    The one place that reads what a request says for display (`askfirst.display.Display.shown`).
    """
    payload = case.payload
    display = _words(case)
    details: Mapping[str, Any] = getattr(payload, "details", None) or {}
    facts, is_whole = _facts(case, display, details)
    sentence = _sentence(case, display)
    risk = display.get("risk", "normal")
    return Asked(
        sentence=sentence if len(sentence) <= _LONGEST_VALUE else f"{sentence[:_LONGEST_VALUE]}… {_ON_PAGE}",
        case_type=case.type,
        shown=shown_of(case),
        asker=_asker(case, details, service),
        on_behalf=_text(details.get("principal")),
        facts=facts,
        consequences=tuple(map(_consequence, _texts(display.get("consequences")))) + _undo(display),
        reason=None if payload is None else payload.why.reason,
        risk=risk if risk in RISKS else "critical",
        expires_at=None if case.never_expires else case.expires_at,
        silence=_silence(case),
        is_whole=is_whole and len(sentence) <= _LONGEST_VALUE,
    )


def buttons_of(case: Case, asked: Asked) -> tuple[Button, ...]:
    """The decisions that may be pressed in a message; one that approves is left out where the page is needed.

    A delivery leaves those that approve out, too, if it had to cut something (`Notice.whole`). Where the risk is
    high, a person is asked once more (`Button.confirm`); where it is critical, only on the page.
    """
    if case.verify_email is not None or case.verification_policy is not None:
        return ()
    allowed = case.actions if case.inline_actions is None else case.inline_actions
    again = None if asked.may_be_pressed else asked.sentence
    label = _label(case)
    buttons = [
        replace(
            each,
            label=label if label and each.action == "approve" else each.label,
            confirm=again if each.approves else None,
        )
        for each in _BUTTONS.get(case.type, ())
    ]
    buttons += [each for each in (edit_button(case, _labels(case)), answer_button(case)) if each is not None]
    return tuple(
        each
        for each in buttons
        if each.action in case.actions
        and each.action in allowed
        and (not each.approves or (asked.is_whole and asked.risk != "critical"))
    )


def notice_of(
    case: Case,
    kind: NoticeKind,
    *,
    service: str,
    link: str | None,
    with_buttons: bool,
    follows: Sent | None = None,
) -> Notice:
    """The message about a case that is open."""
    asked = asked_of(case, service)
    return Notice(
        kind,
        case.case_id,
        asked.text,
        review_url=link,
        buttons=buttons_of(case, asked) if with_buttons else (),
        expires_at=asked.expires_at,
        facts={"type": case.type, "prompt": asked.sentence, "service": service},
        whole=asked.is_whole,
        asked=asked,
        follows=follows,
    )


def ended_of(case: Case, ran: str | None = None) -> Ended:
    """How a case ended; ``ran`` says what came of the call that was approved, where that is known."""
    if case.status == "expired":
        told = (
            _silence(case)
            .removeprefix("If nobody decides by then, ")
            .removeprefix("If nobody answers by then, ")
        )
        return Ended(case.case_id, "expired", f"Nobody decided in time: {told}")
    if case.status == "cancelled":
        why = f": {case.reason}" if case.reason else "."
        return Ended(case.case_id, "cancelled", f"Nothing is left to decide, it was withdrawn{why}")
    action = _text((case.result or {}).get("action")) or ""
    by = decided_by(case)
    done = _DONE.get(action, "Decided")
    more = "" if case.next_case_id is None else " Another round follows."
    text = f"{done} by {by}.{more}" if by else f"{done}.{more}"
    return Ended(case.case_id, "completed", text, action, by, ran)


def decided_by(case: Case) -> str | None:
    """Who decided, in a line: the verified person, or who they claim to be, said so."""
    for said, mark in ((case.responded_by, ""), (case.claimed_by, " (unverified)")):
        who = _text((said or {}).get("name")) or _text((said or {}).get("email"))
        if who or (said and (who := _text(said.get("account")))):
            return f"{who}{mark}"
    return None


def _asker(case: Case, details: Mapping[str, Any], service: str) -> str:
    path = _texts(details.get("agent_path"))
    if path:
        return " / ".join(path)
    return "an agent" if case.key_id is None else f"a caller of {service}"


def _silence(case: Case) -> str:
    if case.never_expires:
        return "It stays open until somebody decides."
    if case.request is not None:
        return _AGENT_SILENCE.get(case.type, _NO_ANSWER)
    return _SILENCE.get(case.default_action, _NO_ANSWER)


def _words(case: Case) -> Mapping[str, Any]:
    """The trusted words of a case: its tool author's, or, where a service opened it, those that its key was given."""
    return (case.shown or {}) if case.payload is None else case.payload.words


def _consequence(name: str) -> str:
    """A consequence in words; ``custom:`` brings its own."""
    kind, _, more = name.partition(":")
    if kind == "people" and more:
        return f"It reaches {more} people."
    return more if kind == "custom" and more else _CONSEQUENCES.get(name, name)


def _sentence(case: Case, display: Mapping[str, Any]) -> str:
    asked = () if case.payload is None else case.payload.sentences
    return _text(display.get("sentence")) or next(iter(asked), case.prompt)


def _facts(
    case: Case, display: Mapping[str, Any], details: Mapping[str, Any]
) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Every argument, or every fact that a caller gave; and whether that is all, with nothing cut."""
    payload = case.payload
    call = None if payload is None else payload.shown_call
    if call is not None:
        tool, values = call
        named = [("Tool", tool)] if display.get("sentence") is None else []
        labels = cast("Mapping[str, Any]", display.get("labels") or {})
        formats = cast("Mapping[str, Any]", display.get("formats") or {})
        rows = named + [
            (_text(labels.get(name)) or name, _value(value, _text(formats.get(name)) or ""))
            for name, value in values.items()
        ]
    else:
        said = {name: value for name, value in case.context.items() if name not in _NOT_FACTS}
        said |= {name: value for name, value in details.items() if name not in _OURS}
        asked = [] if payload is not None or display.get("sentence") is None else [("Question", case.prompt)]
        message = [] if not case.message or case.message == case.prompt else [("Message", case.message)]
        rows = asked + message + [(name, _value(value, "")) for name, value in said.items()]
    return _bounded(rows, case)


def _bounded(rows: list[tuple[str, str]], case: Case) -> tuple[tuple[tuple[str, str], ...], bool]:
    kept: list[tuple[str, str]] = []
    room = _MOST_CHARACTERS
    is_whole = answer_button(case) is not None or (case.form is None and "items" not in case.context)
    for label, value in rows:
        if len(value) > _LONGEST_VALUE:
            value, is_whole = f"{value[:_LONGEST_VALUE]}… {_ON_PAGE}", False
        room -= len(label) + len(value)
        if room < 0:
            return (*kept, ("More", "on the page")), False
        kept.append((label, value))
    return tuple(kept), is_whole


def _value(value: Any, form: str) -> str:
    """A value whole: in its format, and as it is where the format says less."""
    plain = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not form:
        return plain
    pretty = formatted(value, form)
    return plain if pretty is None or pretty == plain else f"{pretty} ({plain})"


def _undo(display: Mapping[str, Any]) -> tuple[str, ...]:
    undo = _text(display.get("undo"))
    return () if undo is None else (f"To undo it: {undo}",)


def _labels(case: Case) -> Mapping[str, str]:
    """The tool author's words for the arguments."""
    labels = cast("Mapping[str, Any]", _words(case).get("labels") or {})
    return {name: label for name, label in labels.items() if isinstance(label, str)}


def _label(case: Case) -> str | None:
    """The tool author's word for the button that approves."""
    return _text(_words(case).get("approve"))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: Any) -> list[str]:
    return (
        [each for each in cast("list[Any]", value) if isinstance(each, str)]
        if isinstance(value, list)
        else []
    )
