"""Scenes of the review page: every type and every state. For tests and for screenshots."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from askfirst.service.case import Case
from askfirst.service.case_state import CaseState, Outcome, Previous, Step, case_state_of
from askfirst.service.pages import Reader, render_case
from askfirst.service.pages.choices import Reading
from askfirst.service.pages.decision import decision_of
from askfirst.service.pages.row import View
from askfirst.service.pages.sight import Second, Sight
from askfirst.service.risk_patterns import shipped_patterns
from kit import page_cases as cases
from kit.page_cases import NOW, TOKEN
from kit.standing_cases import (
    EDITED,
    ERASE,
    REFUND_ARGS,
    accounts,
    call,
    doubt,
    ended,
    flights,
    refund,
    rollout,
    shell,
)


@dataclass(frozen=True)
class Scene:
    """A page: its case, the case's state, and the other arguments of the page."""

    case: Case
    standing: CaseState | None = None
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    sight: dict[str, Any] = field(default_factory=dict[str, Any])
    open: str | None = None
    """The selector of an element to click before the screenshot."""

    def html(self, reader: Reader | None = None, *, token: str = TOKEN, base_path: str = "") -> str:
        """The page."""
        reader = reader or Reader()
        view = self.sight.get("view", View())
        decision = decision_of(
            self.case,
            patterns=shipped_patterns(),
            key_name="billing",
            style=reader.style,
            view=view,
            begun_at=NOW - 540,
        )
        seen: dict[str, Any] = {
            "decision": decision,
            "standing": self.standing or case_state_of(self.case, NOW),
            "organisation": "Shop GmbH",
            "reader": "Ada Ngo",
            "nonce": "n" * 22,
            "hold_seconds": 5,
            "path": f"{base_path}/review/{self.case.case_id}",
            "confirm_value": "c" * 64,
            **self.sight,
        }
        sight = Sight(**seen)
        given: dict[str, Any] = {"sight": sight, "now": NOW, **self.given}
        return render_case(self.case, token=token, base_path=base_path, reader=reader, **given)


def _after(state: Any, case: Case, outcome: Outcome | None = None, **facts: Any) -> Scene:
    action = str((case.result or {}).get("action") or "approve")
    given: dict[str, Any] = {"action": action, "by": "Ada Ngo", "at": NOW, "is_yours": True, **facts}
    return Scene(case, CaseState(state, 1, outcome=outcome, **given))


BEFORE = (
    Step("person", "My kettle arrived broken, order A-1042."),
    Step("agent", "order_id: A-1042", "find_order"),
    Step("tool", "49.00 EUR, delivered on 12 November", "find_order"),
)
CHANGED: dict[str, Any] = {"version": "2.4.1", "limit_07": 7000, "flag_12": False, "flag_13": True}
"""Some of 60 arguments, with other values than the tool has as defaults."""
LONG = "\n".join(f"line {number} of a long log" for number in range(1, 3000))


PEOPLE = [
    {
        "id": f"u{place}",
        "title": f"Account {place:03}",
        "plan": "Team" if place % 3 else "Free",
        "seats": place,
    }
    for place in range(1, 201)
]
"""The items of a long list."""
QUESTIONS = [
    {"key": f"q{place}", "label": f"Question {place}", "type": "text", "hint": "As it is in the contract."}
    for place in range(1, 151)
]
"""The fields of a form that no page has room for at once."""


def large_scenes() -> dict[str, Scene]:
    """Scenes of cases that a page shows in parts."""
    reading = Reading(3, "", frozenset(range(60)))
    chosen = [f"u{place}" for place in (2, 40, 63, 64)]
    many = cases.service_case("selection", {"items": PEOPLE}, prompt="Which accounts are to be closed?")
    all_of = cases.service_case(
        "confirmation", {"items_to_confirm": PEOPLE}, prompt="Are these the accounts to close?"
    )
    options = [{"value": f"c{place}", "label": f"City {place}"} for place in range(400)]
    city = [{"key": "city", "label": "City", "type": "select", "options": options, "required": True}]
    form = {"form": {"fields": QUESTIONS + city}}
    parts = cases.service_case("input", form, prompt="Please fill in the contract.")
    return {
        "selection-many": Scene(many, given={"values": {"selected": chosen}, "reading": reading}),
        "selection-first": Scene(many),
        "selection-search": Scene(many, given={"reading": Reading(1, "account 19")}),
        "confirmation-many": Scene(all_of, given={"reading": reading}),
        "form-parts": Scene(parts, given={"step": 2}),
        "form-options": Scene(parts, given={"step": 5}),
    }


def scenes() -> dict[str, Scene]:
    """Every scene by name."""
    pay, done = refund(), ended(refund(), "edit", {"edits": EDITED})
    critical = call("erase", {"customer_id": "c-1", "erase_invoices": True}, ERASE, "refund-desk")
    with_code = dataclasses.replace(pay, verify_email=("ann@example.com", "carl@example.com"))
    asked = Second("approve", "v" * 64, decision_of(critical), "feedback", "", True, False, False, ())
    again = Previous(
        "case_0", {**REFUND_ARGS, "reason": "Broken."}, "changes", "Say what is broken.", "Ada", NOW
    )
    return {
        "approval": Scene(pay, sight={"before": BEFORE}),
        "approval-reject": Scene(pay, open="[popovertarget=no]"),
        "approval-menu": Scene(pay, open=".menu"),
        "approval-high": Scene(shell()),
        "approval-high-second": Scene(shell(), open="#go"),
        "approval-critical-second-page": Scene(critical, sight={"second": asked}),
        "approval-plain": Scene(cases.approval()),
        "approval-service": Scene(cases.content_review()),
        "approval-long-text": Scene(cases.approval({"log": LONG})),
        "approval-part": Scene(cases.approval({"log": LONG}), sight={"view": View(row=0, start=100)}),
        "approval-many": Scene(rollout(**CHANGED)),
        "approval-many-open": Scene(rollout(**CHANGED), open=".act summary"),
        "approval-round": Scene(pay, sight={"previous": again}),
        "edit": Scene(pay, given={"stage": "edit"}),
        "edit-check": Scene(pay, given={"values": {"edits": EDITED}, "step": 2}),
        "code": Scene(with_code, given={"stage": "code", "code_to": 0, "notice": "code_sent"}),
        "doubt": Scene(doubt()),
        "escalation": Scene(cases.service_escalation(params={"limit": 10})),
        "selection": Scene(flights()),
        "selection-agent": Scene(cases.agent_selection()),
        "confirmation": Scene(accounts()),
        "confirmation-plain": Scene(cases.agent_confirmation()),
        "form": Scene(cases.every_field()),
        "form-faults": Scene(
            cases.every_field(), given={"values": {}, "faults": {"data.name": "is required"}}
        ),
        "wizard": Scene(cases.wizard()),
        "question": Scene(cases.service_case("input", prompt="What is the code word?")),
        "questions": Scene(cases.agent_questions()),
        "held": _after("held", pay, held_until=NOW + 5, action="approve"),
        "held-elsewhere": _after("held", pay, held_until=NOW + 5, action="approve", is_yours=False),
        "sent": _after("sent", done, Outcome("waiting", NOW)),
        "running": _after("running", done, Outcome("running", NOW)),
        "done": _after("done", done, Outcome("done", NOW, "Paid 40.00 EUR to ada@example.com")),
        "failed": _after("failed", done, Outcome("failed", NOW, "HTTPError: 402 Payment Required")),
        "rejected": _after("rejected", ended(pay, "reject", {"feedback": "Wrong amount"})),
        "changes-asked": _after("changes_asked", ended(pay, "edit", {"feedback": "Say what is broken."})),
        "decided-by-another": _after("rejected", ended(pay, "reject"), is_yours=False, by="Bo Lee"),
        "expired": Scene(refund(status="expired", default_action="reject")),
        "cancelled": Scene(refund(status="cancelled", reason="The customer called it off.")),
        **large_scenes(),
    }
