"""Scenes of the review page: every type and every state, each as one looks at it. For tests and for screenshots."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from askfirst.display import Display
from askfirst.messages import call_digest
from askfirst.requests import ApproveRequest, EscalateRequest
from askfirst.service.case import Case
from askfirst.service.pages import Reader, render_case
from askfirst.service.pages.decision import decision_of
from askfirst.service.pages.rows import View
from askfirst.service.pages.sight import Second, Sight
from askfirst.service.risk_patterns import shipped_patterns
from askfirst.service.standing import Outcome, Previous, Standing, Step, standing_of
from kit import page_cases as cases
from kit.page_cases import ASKED, NOW, TOKEN

REFUND = Display(
    title="Pay refund",
    sentence="Pay back {cents:money:EUR} for order {order_id}",
    approve="Pay {cents:money:EUR}",
    labels={"cents": "Amount", "order_id": "Order", "reason": "Reason"},
    formats={"cents": "money:EUR", "order_id": "id"},
    important=["cents", "order_id"],
    consequences=["money"],
    undo="Void the payment within 1 h on the bank's page.",
)
SHELL = Display(
    sentence="Run a script on {host}",
    approve="Run on production",
    labels={"host": "Host", "timeout_seconds": "Stops after", "command": "Script"},
    formats={"timeout_seconds": "duration:s", "command": "code:sh"},
    consequences=["production", "irreversible"],
)
ERASE = Display(
    sentence="Erase customer {customer_id} with all invoices",
    approve="Erase for good",
    labels={"customer_id": "Customer", "erase_invoices": "Invoices too"},
    consequences=["irreversible", "data"],
    risk="critical",
)
SCRIPT = "\n".join(
    [
        "set -euo pipefail",
        "export AWS_PROFILE=prod",
        "cd /srv/billing",
        "git fetch --tags origin",
        "git checkout v2.4.0",
        "python -m venv .venv-new",
        ". .venv-new/bin/activate",
        "pip install --require-hashes -r requirements.txt",
        "python manage.py check --deploy",
        "python manage.py collectstatic --noinput",
        'pg_dump "$DATABASE_URL" --format=custom --file=/backup/billing-$(date +%F).dump',
        "systemctl stop billing-worker",
        "for table in invoice_audit session_log webhook_log; do",
        '  psql "$DATABASE_URL" -c "DELETE FROM $table"',
        "done",
        "rm -rf /srv/billing/cache",
        "iptables -F",
        "docker image prune -af",
        *(f"./migrate --step {step}" for step in range(1, 22)),
        "systemctl start billing-worker",
    ]
)
REFUND_ARGS: dict[str, Any] = {
    "cents": 4900,
    "order_id": "A-1042",
    "reason": "Kettle arrived with a cracked lid; customer sent a photo.",
}
WHY = {"reason": "Refunds above 5.00 EUR need a person.", "matched_rule_id": "refunds"}


def call(tool: str, args: dict[str, Any], display: Display, agent: str, **facts: Any) -> Case:
    """An agent's call, in its author's words."""
    details = {"agent_path": [agent], **facts.pop("details", {})}
    payload = ApproveRequest(
        tool_name=tool,
        tool_call_id="call_1",
        args=args,
        details=details,
        digest=call_digest(tool, args),
        display=display.shown(args),
    )
    return dataclasses.replace(cases.agent_case(payload, **facts), thread_id="ticket-7")


def refund(**facts: Any) -> Case:
    """A refund of 49.00 EUR."""
    details = {"principal": "bo@example.com", **WHY, "note": "The customer was upset."}
    return call("pay_refund", REFUND_ARGS, REFUND, "refund-desk", details=details, **facts)


def shell(script: str = SCRIPT) -> Case:
    """A script on production, for which 24 minutes are left."""
    args = {"host": "web-1.prod.example.com", "timeout_seconds": 1800, "command": script}
    case = call("run_shell", args, SHELL, "deployer", default_action="reject")
    return dataclasses.replace(case, expires_at=NOW + 24 * 60)


def doubt() -> Case:
    """A transfer that may or may not have gone out."""
    details: dict[str, Any] = {
        "agent_path": ["treasury"],
        "tool_name": "transfer",
        "tool_call_id": "call_1",
        "args": {"cents": 1_240_000, "iban": "DE89370400440532013000"},
        "attempt": 1,
        "idempotency_key": "5f0c91aa-77d1",
    }
    payload = EscalateRequest(
        prompt="The effect of transfer is not known.", choices=["retry", "skip", "abort"], details=details
    )
    return cases.agent_case(payload)


def accounts(count: int = 12) -> Case:
    """Accounts to delete, some or all."""
    items = [
        {"id": f"a{place}", "title": f"user{place}@example.com", "last_login": "3 Jan", "invoices": place % 4}
        for place in range(count)
    ]
    context = {"items_to_confirm": items}
    case = cases.service_case("confirmation", context, prompt="Delete these 12 inactive accounts?")
    return dataclasses.replace(case, message="None has logged in since January.")


def flights() -> Case:
    """A flight to choose."""
    items = [
        {"id": "tp", "title": "TAP TP1331", "price": "182.40 EUR", "refundable": False, "stops": 0},
        {"id": "lh", "title": "Lufthansa LH901", "price": "240.10 EUR", "refundable": True, "stops": 0},
        {"id": "ib", "title": "Iberia IB3167", "price": "151.00 EUR", "refundable": False, "stops": 1},
    ]
    return cases.service_case(
        "selection", {"items": items, "multiple": False}, prompt="Which flight to Lisbon?"
    )


@dataclass(frozen=True)
class Scene:
    """A page: its case, how it stands, and what else the page is given."""

    case: Case
    standing: Standing | None = None
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    sight: dict[str, Any] = field(default_factory=dict[str, Any])
    open: str | None = None
    """What to press before one looks."""

    def html(self, reader: Reader | None = None, *, token: str = TOKEN, base_path: str = "") -> str:
        """The page."""
        reader = reader or Reader()
        view = self.sight.get("view", View())
        decision = decision_of(
            self.case, patterns=shipped_patterns(), key_name="billing", style=reader.style, view=view
        )
        sight = Sight(
            decision=decision,
            standing=self.standing or standing_of(self.case, NOW),
            organisation="Shop GmbH",
            reader="Ada Ngo",
            nonce="n" * 22,
            hold_seconds=5,
            path=f"{base_path}/review/{self.case.case_id}",
            confirm_value="c" * 64,
            **self.sight,
        )
        given = {"sight": sight, "now": NOW, **self.given}
        return render_case(self.case, token=token, base_path=base_path, reader=reader, **given)


def ended(case: Case, action: str, data: dict[str, Any] | None = None) -> Case:
    """The case after a decision of Ada's."""
    return dataclasses.replace(
        case,
        status="completed",
        opened_at=ASKED + 20,
        ended_at=NOW,
        result={"action": action, "data": data or {}},
        responded_by={"name": "Ada Ngo"},
    )


def _after(state: Any, case: Case, outcome: Outcome | None = None, **facts: Any) -> Scene:
    action = str((case.result or {}).get("action") or "approve")
    given: dict[str, Any] = {"action": action, "by": "Ada Ngo", "at": NOW, "is_yours": True, **facts}
    return Scene(case, Standing(state, 1, outcome=outcome, **given))


EDITED = {**REFUND_ARGS, "cents": 4000, "reason": "Kettle arrived with a broken lid; customer sent a photo."}
BEFORE = (
    Step("person", "My kettle arrived broken, order A-1042."),
    Step("agent", "order_id: A-1042", "find_order"),
    Step("tool", "49.00 EUR, delivered on 12 November", "find_order"),
)
LONG = "\n".join(f"line {number} of a long log" for number in range(1, 3000))


def scenes() -> dict[str, Scene]:
    """Every scene by name."""
    pay, done = refund(), ended(refund(), "edit", {"edits": EDITED})
    critical = call("erase", {"customer_id": "c-1", "erase_invoices": True}, ERASE, "refund-desk")
    with_code = dataclasses.replace(pay, verify_email=("ann@example.com", "carl@example.com"))
    asked = Second("approve", "v" * 64, decision_of(critical), "feedback", "", True, False, False, ())
    again = Previous(
        "case_0", {**REFUND_ARGS, "reason": "Broken."}, "edit", "Say what is broken.", "Ada", NOW
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
    }
