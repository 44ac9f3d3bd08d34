"""Text that wants to be more than text, in the places that the page has besides a case's own: scenes of a page."""

from __future__ import annotations

import dataclasses
from typing import Any

from askfirst.display import Display
from askfirst.requests import ApproveRequest, EscalateRequest
from askfirst.service.case import Case
from askfirst.service.case_state import CaseState, GoingOn, Outcome, Previous, Step, Trail
from askfirst.service.pages.choices import Reading
from askfirst.service.pages.decision import decision_of
from askfirst.service.pages.row import View
from askfirst.service.pages.sight import Second
from kit import page_cases as cases
from kit.hostile_text import everywhere
from kit.page_cases import NOW
from kit.page_scenes import Scene
from kit.standing_cases import call, ended

FORMATS = {
    "amount": "money:EUR",
    "at": "datetime",
    "iban": "iban",
    "page": "url",
    "rows": "table",
    "script": "code:sh",
    "size": "bytes",
}


def hostile_scenes(text: str) -> dict[str, Scene]:
    """The text as value of every format, sentence, button, label, reason, step, note, result, difference and link."""
    asked = hostile_call(text)
    edits = {**hostile_args(text), "to": f"{text} more"}
    before = (Step("person", text), Step("agent", text, text), Step("tool", text, text))
    previous = Previous("case_0", {**hostile_args("calm"), "to": "calm"}, "changes", text, text, NOW)
    known: dict[str, Any] = {"action": "edit", "by": text, "at": NOW}
    decided = ended(asked, "edit", {"edits": edits, "feedback": text})
    second = Second("approve", "v" * 64, decision_of(asked), "note", text, True, False, False, ())
    return {
        "call": Scene(asked, sight={"before": before, "previous": previous}),
        "edit": Scene(asked, given={"stage": "edit"}),
        "check": Scene(asked, given={"values": {"edits": edits, "feedback": text}, "step": 2}),
        "second": Scene(asked, sight={"second": second}),
        "code": Scene(
            dataclasses.replace(asked, verify_email=("ann@example.com",)),
            given={"stage": "code", "code_to": 0},
        ),
        "held": Scene(asked, CaseState("held", 1, held_until=NOW + 5, **(known | {"action": "approve"}))),
        "done": Scene(decided, CaseState("done", 1, outcome=Outcome("done", NOW, text), **known)),
        "service": Scene(hostile_service(text)),
        "doubt": Scene(hostile_doubt(text)),
        "doubt again": Scene(hostile_doubt(text), given={"values": {"reason": text, "pressed": "retry"}}),
        "known": Scene(decided, _answered(text), sight={"trail": Trail(text, text, undone_at=(NOW,))}),
        "stuck": Scene(decided, _answered(text, goes_on=GoingOn("failed", 1, text, None, NOW))),
        "late": Scene(decided, _answered(text), given={"notice": "late", "unsent": {"feedback": text}}),
        "raw": Scene(asked, sight={"view": View(row=0, of="raw")}),
        "part": Scene(asked, sight={"view": View(row=0)}),
        "out": Scene(hostile_service(text), sight={"view": View(out="link-0")}),
        "search": Scene(_many_items(text), given={"reading": Reading(1, text[:200])}),
        "organisation": Scene(asked, sight={"organisation": text[:60], "quick_reasons": (text[:60],)}),
        **{f"everywhere, {place}": Scene(case) for place, case in everywhere(text).items()},
    }


def hostile_doubt(text: str) -> Case:
    """A call in doubt, in the words of an author that take the text in."""
    asked = hostile_call(text).payload
    assert isinstance(asked, ApproveRequest)
    details = {
        "agent_path": [text],
        "principal": text,
        "tool_name": "send",
        "tool_call_id": "call_1",
        "args": asked.args,
        "attempt": 1,
        "more": text,
    }
    words = {**(asked.display or {}), "idempotency_key": text[:100]}
    choices = ["retry", "skip", "abort", text[:200]]
    return cases.agent_case(EscalateRequest(prompt=text, choices=choices, details=details, display=words))


def _answered(text: str, **facts: Any) -> CaseState:
    return CaseState("answered", 1, action="approve", by=text, at=NOW, **facts)


def _many_items(text: str) -> Case:
    items = [
        {"id": f"{place} {text}", "title": text, "description": text, "fact": text} for place in range(40)
    ]
    return cases.service_case("selection", {"items": items}, prompt=text)


def hostile_args(text: str) -> dict[str, Any]:
    """The text as every kind of argument."""
    values: dict[str, Any] = {"to": text, "many": [text, "b"], "deep": {"a": {"b": text}}}
    return values | dict.fromkeys(FORMATS, text) | {"rows": [{"a": text, "b": 1}]}


def hostile_call(text: str) -> Case:
    """An agent's call whose author's words take the text in."""
    display = Display(
        title=text[:60],
        sentence="Send {to} to {deep}",
        approve="Send {to}",
        labels={"to": text[:60], "many": text[:60]},
        formats=FORMATS,
        consequences=[f"custom:{' '.join(text.split())[:50]}"],
        undo=text[:400],
    )
    details = {
        "agent_path": [text, text],
        "principal": text,
        "reason": text,
        "matched_rule_id": text,
        "reasons": [{"reason": text, "matched_rule_id": "b"}],
        "note": text,
    }
    return call("send", hostile_args(text), display, "agent", details=details)


def hostile_service(text: str) -> Case:
    """A service's case that brings labels, buttons and links of its own."""
    shown: dict[str, Any] = {
        "labels": {"fact": text[:60]},
        "approve": text[:24],
        "reject": text[:24],
        "links": [{"title": text[:60] or "link", "url": "https://evil.example/x"}],
        "consequences": [f"custom:{' '.join(text.split())[:50]}"],
    }
    context = {"fact": text, "more": [text]}
    return cases.service_case("approval", context, prompt=text, message=text, shown=shown)
