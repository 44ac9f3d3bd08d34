"""The messages about a case: what is asked, the buttons below it, and how the case ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from askfirst.delivery.base import Button, Ended, Notice, NoticeKind, Sent
from askfirst.delivery.contents import Contents
from askfirst.display import Risk, higher, shortened, value_text
from askfirst.formats import ENGLISH, Style, formatted, style_for
from askfirst.protocol import shown_digest
from askfirst.service.answers import given_reason
from askfirst.service.button_fields import answer_button, edit_button
from askfirst.service.case import Case
from askfirst.service.pages.decision import other_details, readable, reasons_of, risk_of, words_for
from askfirst.service.risk_patterns import RiskPatterns, shipped_patterns
from askfirst.visible_text import visible

_LONGEST_VALUE = 4_000
_MOST_CHARACTERS = 20_000
_ON_PAGE = "(the whole is on the page)"
_NOT_FACTS = ("form", "items", "multiple", "required")
_MOST_IMPORTANT = 3
_HIDDEN = "hidden"
"""Shown in place of a secret (format ``secret``). Asterisks would tell its length."""
_BUTTONS: Mapping[str, tuple[Button, ...]] = {
    "approval": (Button("approve", "Approve"), Button("reject", "Reject")),
    "confirmation": (Button("confirm", "Confirm"), Button("cancel", "Cancel")),
    "escalation": (Button("retry", "Try again"), Button("skip", "Skip"), Button("abort", "Abort")),
}
"""The decisions that one press can make, by case type. Other types are answered on the page or in a form."""
_DECISIONS = {
    "approve": "Approved",
    "reject": "Rejected",
    "edit": "Another try was asked for",
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
_IN_DOUBT = "Running it again may do it twice. Find out first whether it happened."
_NO_ANSWER = "If nobody answers by then, the agent is told that nobody did."


def message_digest(case: Case) -> str:
    """The digest of what a message about a case shows. A pressed button is bound to it (`Press.shown`)."""
    asked = None if case.payload is None else case.payload.shown_digest
    return case.digest or asked or shown_digest(type=case.type, prompt=case.prompt, context=case.context)


def contents_of(
    case: Case,
    service: str,
    *,
    patterns: RiskPatterns | None = None,
    key_name: str | None = None,
    language: str | None = None,
) -> Contents:
    """What a message says about a case; ``service`` is the name of this service.

    The labels, formats, risk and consequences are the trusted words of the case (`askfirst.display.Display.shown`).
    ``patterns`` raise the risk as they do on the page, by default those that are shipped. ``key_name`` is the name of
    the API key that opened the case. ``language`` chooses among words in several languages.
    """
    payload = case.payload
    display = words_for(case, language)
    style = ENGLISH if language is None else style_for(language)
    details: Mapping[str, Any] = getattr(payload, "details", None) or {}
    facts, is_whole = _facts(case, display, style)
    sentence, is_quoted = _sentence(case, display)
    return Contents(
        sentence=sentence if len(sentence) <= _LONGEST_VALUE else f"{sentence[:_LONGEST_VALUE]}… {_ON_PAGE}",
        is_quoted=is_quoted,
        case_type=case.type,
        shown=message_digest(case),
        asker=_asker(case, key_name, service),
        on_behalf=_text(details.get("principal")),
        facts=facts,
        important=_important(case, display, style),
        consequences=(
            *((_IN_DOUBT,) if _is_in_doubt(case) else ()),
            *map(_consequence, _texts(display.get("consequences"))),
            *_undo(display),
        ),
        reason=_reason(case, language),
        risk=_risk(case, shipped_patterns() if patterns is None else patterns),
        expires_at=None if case.never_expires else case.expires_at,
        silence=_silence(case),
        is_whole=is_whole and len(sentence) <= _LONGEST_VALUE,
    )


def buttons_of(case: Case, contents: Contents, language: str | None = None) -> tuple[Button, ...]:
    """The buttons of a message. There are none if the case needs a code or a proof: the page asks for these.

    An approving button is left out if the message does not show everything, or if the risk is critical: people then
    approve on the page. If the risk is high, the button asks once more (`Button.confirm`). A delivery leaves
    approving buttons out, too, if it had to cut the message (`Notice.whole`).
    """
    if case.verify_email is not None or case.verification_policy is not None:
        return ()
    allowed = case.actions if case.inline_actions is None else case.inline_actions
    again = None if contents.may_be_pressed else contents.sentence
    label = _label(case, language)
    buttons = [
        replace(
            each,
            label=label if label and each.action == "approve" else each.label,
            confirm=again if each.approves else None,
        )
        for each in _BUTTONS.get(case.type, ())
    ]
    buttons += [
        each
        for each in (edit_button(case, _named(words_for(case, language), "labels")), answer_button(case))
        if each is not None
    ]
    return tuple(
        each
        for each in buttons
        if each.action in case.actions
        and each.action in allowed
        and (not each.approves or (contents.is_whole and contents.risk != "critical"))
    )


def notice_of(
    case: Case,
    kind: NoticeKind,
    *,
    service: str,
    link: str | None,
    with_buttons: bool,
    with_facts: bool = True,
    follows: Sent | None = None,
    patterns: RiskPatterns | None = None,
    key_name: str | None = None,
    language: str | None = None,
) -> Notice:
    """The message about an open case.

    It has every fact if the message can approve, or if there is no page (no ``link``). Otherwise it has the most
    important facts. Without ``with_facts`` it has none: the operator wants no facts in that place.
    """
    contents = contents_of(case, service, patterns=patterns, key_name=key_name, language=language)
    if not with_facts:
        contents = contents.brief(with_facts=False)
    buttons = buttons_of(case, contents, language) if with_buttons else ()
    if link is not None and not contents.is_brief and not any(each.approves for each in buttons):
        contents = contents.brief()
    return Notice(
        kind,
        case.case_id,
        contents.text,
        review_url=link,
        buttons=buttons,
        expires_at=contents.expires_at,
        facts={"type": case.type, "prompt": contents.sentence, "service": service},
        whole=contents.is_whole,
        contents=contents,
        follows=follows,
    )


def ended_of(case: Case, ran: str | None = None) -> Ended:
    """How a case ended; ``ran`` says how the approved call ended, if that is known."""
    if case.status == "expired":
        told = (
            _silence(case)
            .removeprefix("If nobody decides by then, ")
            .removeprefix("If nobody answers by then, ")
        )
        return Ended(case.case_id, "expired", f"Nobody decided in time: {told}")
    if case.status == "cancelled" and case.declined_by is not None:
        by, said = decided_by(case), given_reason(case)
        text = "Declined" if by is None else f"Declined by {by}"
        return Ended(case.case_id, "cancelled", f"{text}: {said}" if said else f"{text}.")
    if case.status == "cancelled":
        why = f": {case.reason}" if case.reason else "."
        return Ended(case.case_id, "cancelled", f"Nothing is left to decide, it was withdrawn{why}")
    action = _text((case.result or {}).get("action")) or ""
    by = decided_by(case)
    result: dict[str, Any] = dict(case.result or {})
    edited = action == "edit" and "edits" in (result.get("data") or {})
    done = "Approved with changes" if edited else _DECISIONS.get(action, "Decided")
    more = "" if case.next_case_id is None else " Another round follows."
    text = f"{done} by {by}.{more}" if by else f"{done}.{more}"
    return Ended(case.case_id, "completed", text, action, by, ran)


def decided_by(case: Case) -> str | None:
    """Who decided, in a line: the verified person, or a claimed name with "(unverified)"; None if unknown."""
    for said, mark in ((case.responded_by or case.declined_by, ""), (case.claimed_by, " (unverified)")):
        who = _text((said or {}).get("name")) or _text((said or {}).get("email"))
        if who or (said and (who := _text(said.get("account")))):
            return f"{who}{mark}"
    return None


def _reason(case: Case, language: str | None) -> str | None:
    """Why a person is asked, if the author of the rule wrote a sentence about it; otherwise None."""
    return next((text for text, _ in reasons_of(case, language) if text is not None), None)


def _asker(case: Case, name: str | None, service: str) -> str:
    path = [] if case.request is None else case.request.agents
    if path:
        return " / ".join(path)
    return name or ("an agent" if case.key_id is None else f"a caller of {service}")


def _silence(case: Case) -> str:
    if case.never_expires:
        return "It stays open until somebody decides."
    if case.request is not None:
        return _AGENT_SILENCE.get(case.type, _NO_ANSWER)
    return _SILENCE.get(case.default_action, _NO_ANSWER)


def _consequence(name: str) -> str:
    """A consequence in words. ``custom:`` is followed by its own text."""
    kind, _, more = name.partition(":")
    if kind == "people" and more:
        return f"It reaches {more} people."
    return more if kind == "custom" and more else _CONSEQUENCES.get(name, name)


def _sentence(case: Case, display: Mapping[str, Any]) -> tuple[str, bool]:
    """The decision in a line, and whether it is in the asker's own words."""
    payload = case.payload
    call = None if payload is None else payload.shown_call
    if call is None:
        said = case.prompt if payload is None else next(iter(payload.sentences), case.prompt)
        return said, True
    what = _text(display.get("sentence")) or _text(display.get("title")) or readable(call[0])
    return f"{what}: it may or may not have happened" if _is_in_doubt(case) else what, False


def _risk(case: Case, patterns: RiskPatterns) -> Risk:
    """The risk of the case; of a call in doubt at least high, because running it again may do it twice."""
    risk = risk_of(case, patterns)
    return (higher(risk, "high") or risk) if _is_in_doubt(case) else risk


def _is_in_doubt(case: Case) -> bool:
    """Whether the case is about a call that was begun, and nobody knows whether it took effect."""
    payload = case.payload
    return payload is not None and payload.kind == "escalate" and payload.call is not None


def _important(case: Case, display: Mapping[str, Any], style: Style) -> tuple[tuple[str, str], ...]:
    """The facts that the tool's author marked as important, or else the first ones; each short and in one line."""
    call = None if case.payload is None else case.payload.shown_call
    values = _said(case) if call is None else call[1]
    labels, formats = _named(display, "labels"), _named(display, "formats")
    named = [name for name in _texts(display.get("important")) if name in values] or list(values)
    return tuple(
        (
            labels.get(name, readable(name)),
            _line(
                _HIDDEN
                if formats.get(name) == "secret"
                else value_text(values[name], formats.get(name, ""), style)
            ),
        )
        for name in named[:_MOST_IMPORTANT]
    )


def _line(text: str) -> str:
    return shortened(visible(" ".join(text.split())))


def _said(case: Case) -> dict[str, Any]:
    """The asker's facts of a case without a call."""
    said = {name: value for name, value in case.context.items() if name not in _NOT_FACTS}
    return said if case.payload is None else said | other_details(case.payload)


def _named(display: Mapping[str, Any], name: str) -> dict[str, str]:
    """The author's labels, or formats, by argument."""
    given = cast("Mapping[str, Any]", display.get(name) or {})
    return {key: said for key, said in given.items() if isinstance(said, str) and said}


def _facts(case: Case, display: Mapping[str, Any], style: Style) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Every argument of the call, or every fact that the caller gave; and whether nothing was cut."""
    payload = case.payload
    call = None if payload is None else payload.shown_call
    if call is not None:
        tool, values = call
        named = [("Tool", tool)] if display.get("sentence") is None else []
    else:
        values = _said(case)
        named = [] if not case.message or case.message == case.prompt else [("Message", case.message)]
    labels, formats = _named(display, "labels"), _named(display, "formats")
    rows = [
        (labels.get(name, name), fact_text(value, formats.get(name, ""), style))
        for name, value in values.items()
    ]
    return _bounded([*named, *rows], case)


def _bounded(rows: Sequence[tuple[str, str]], case: Case) -> tuple[tuple[tuple[str, str], ...], bool]:
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


def fact_text(value: Any, form: str, style: Style = ENGLISH) -> str:
    """A value in its format, followed by the raw value if that differs. A secret is not shown."""
    if form == "secret":
        return _HIDDEN
    plain = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not form:
        return plain
    pretty = formatted(value, form, style)
    return plain if pretty is None or pretty == plain else f"{pretty} ({plain})"


def _undo(display: Mapping[str, Any]) -> tuple[str, ...]:
    undo = _text(display.get("undo"))
    return () if undo is None else (f"To undo it: {undo}",)


def _label(case: Case, language: str | None) -> str | None:
    """The tool author's label of the approving button. A service's own may say the opposite, and is not used."""
    return None if case.payload is None else _text(words_for(case, language).get("approve"))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: Any) -> list[str]:
    return (
        [each for each in cast("list[Any]", value) if isinstance(each, str)]
        if isinstance(value, list)
        else []
    )
