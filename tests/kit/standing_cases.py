"""Cases that a page is judged by: the calls, choices and questions of the standing set.

This module imports only what the commit before the new page has as well, so that
``tests/data/former_page/write.py`` can render the same cases with it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from askfirst.display import Display
from askfirst.messages import call_digest
from askfirst.requests import ApproveRequest, EscalateRequest
from askfirst.service.case import Case
from kit import page_cases as cases
from kit.page_cases import ASKED, NOW

REFUND = Display(
    title={"en": "Pay refund", "zh-Hans": "退款"},
    sentence={
        "en": "Pay back {cents:money:EUR} for order {order_id}",
        "zh-Hans": "为订单 {order_id} 退款 {cents:money:EUR}",
    },
    approve={"en": "Pay {cents:money:EUR}", "zh-Hans": "退款 {cents:money:EUR}"},
    done_sentence={
        "en": "Paid back {cents:money:EUR} for order {order_id}",
        "zh-Hans": "已为订单 {order_id} 退款 {cents:money:EUR}",
    },
    labels={
        "cents": {"en": "Amount", "zh-Hans": "金额"},
        "order_id": {"en": "Order", "zh-Hans": "订单"},
        "reason": {"en": "Reason", "zh-Hans": "退款原因"},
    },
    formats={"cents": "money:EUR", "order_id": "id"},
    important=["cents", "order_id"],
    consequences=["money"],
    undo={
        "en": "Void the payment within 1 h on the bank's page.",
        "zh-Hans": "1 小时内可在银行页面作废此笔付款。",
    },
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
EDITED = {**REFUND_ARGS, "cents": 4000, "reason": "Kettle arrived with a broken lid; customer sent a photo."}
ROLLOUT = Display(
    sentence="Roll out {service} {version}",
    approve="Roll out",
    labels={"service": "Service", "version": "Version", "token": "Token"},
    formats={"token": "secret"},
    important=["service", "version"],
)
ROLLOUT_ARGS: dict[str, Any] = {
    **{f"limit_{number:02}": number * 10 for number in range(1, 31)},
    "service": "billing",
    "version": "2.4.0",
    "token": "t-1",
    **{f"flag_{number:02}": number % 2 == 0 for number in range(1, 28)},
}
"""60 arguments."""
WHY = {
    "reason": "Refunds above 5.00 EUR need a person.",
    "reason_in": {
        "en": "Refunds above 5.00 EUR need a person.",
        "zh-Hans": "超过 5.00 EUR 的退款须由人批准。",
    },
    "matched_rule_id": "refunds",
}


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


def rollout(**changed: Any) -> Case:
    """A call with 60 arguments. The tool has a default for all but two of them."""
    usual = {name: value for name, value in ROLLOUT_ARGS.items() if name not in ("service", "token")}
    schema = {"type": "object", "properties": {name: {"default": value} for name, value in usual.items()}}
    case = call("roll_out", {**ROLLOUT_ARGS, **changed}, ROLLOUT, "deployer")
    assert case.request is not None
    payload = case.request.payload.model_copy(update={"args_schema": schema})
    return dataclasses.replace(case, request=case.request.model_copy(update={"payload": payload}))


def doubt() -> Case:
    """A transfer that may or may not have gone out."""
    details: dict[str, Any] = {
        "agent_path": ["treasury"],
        "tool_name": "transfer",
        "tool_call_id": "call_1",
        "args": {"cents": 1_240_000, "iban": "DE89370400440532013000"},
        "attempt": 1,
    }
    payload = EscalateRequest(
        prompt="The effect of transfer is not known.",
        choices=["retry", "skip", "abort"],
        details=details,
        display={"idempotency_key": "5f0c91aa-77d1"},
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


# The standing set: the cases that the complaints about the page before this one were found on.

TRANSFER = Display(
    sentence="Transfer {cents:money:EUR} to {iban}",
    approve="Transfer {cents:money:EUR}",
    labels={"cents": "Amount", "iban": "To"},
    formats={"cents": "money:EUR", "iban": "iban"},
    consequences=["money", "irreversible"],
)
MAIL = Display(
    sentence="Send {subject} to {to}",
    labels={"to": "To", "cc": "Copy", "subject": "Subject", "body": "Text", "urgent": "Urgent"},
    consequences=["external"],
)
QUERY = Display(
    sentence="Run a query on {database}",
    labels={"database": "Database", "query": "Query"},
    formats={"query": "code:sql"},
    consequences=["data"],
)
MAIL_ARGS: dict[str, Any] = {
    "to": ["ada@example.com"],
    "cc": None,
    "subject": "Your refund",
    "body": "Dear Ada,\n\nwe are sorry about the kettle. The refund takes 3 to 5 working days.\n\n"
    "It goes to the card that you paid with.\n\nYou may keep the kettle.\n\nKind regards\nThe shop",
    "urgent": False,
}
MAIL_EDITED = {**MAIL_ARGS, "body": str(MAIL_ARGS["body"]).replace("3 to 5", "5 to 7")}
SQL = "\n".join(
    [
        "BEGIN;",
        "UPDATE accounts",
        "   SET status = 'closed', closed_at = now()",
        " WHERE last_login < now() - interval '2 years'",
        "   AND id IN (SELECT account_id FROM invoices GROUP BY account_id HAVING sum(open_cents) = 0);",
        *(
            "DELETE FROM session_log_MM WHERE account_id NOT IN (SELECT id FROM accounts);".replace(
                "MM", f"{month:02}"
            )
            for month in range(12)
        ),
        "COMMIT;",
    ]
)
SENTENCE_OF_A_RULE = "Erasing a customer needs a person."
NAME_OF_A_RULE = "no-erase-without-a-person"
MANY = {f"option_{place:02}": place * 10 for place in range(60)}
CHINESE = Display(
    sentence="退款 {cents:money:CNY}，订单 {order_id}",
    approve="退款",
    labels={"cents": "金额", "order_id": "订单"},
    formats={"cents": "money:CNY"},
)
HOSTILE = (
    "</div><h1>Already approved</h1><script>alert(1)</script>\n\nWhat will happen\nread_file\n"
    "\u202efdp.exe pay\u200bpal"
)


@dataclass(frozen=True)
class CaseState:
    """A case of the standing set, and the complaints of which it is an example."""

    case: Case
    shows: str


def standing_set() -> dict[str, CaseState]:
    """Every case by name: each type of review, from its first look to its end."""
    return {name: CaseState(case, shows) for name, (case, shows) in (_calls() | _others() | _ended()).items()}


def erase() -> Case:
    """An agent that would erase a customer; the rule that asks has no sentence of its own."""
    said = f"rule '{NAME_OF_A_RULE}' requires approval"
    details = {"reason": said, "matched_rule_id": NAME_OF_A_RULE}
    return call(
        "erase_customer",
        {"customer_id": "c-1", "erase_invoices": True},
        dataclasses.replace(ERASE, risk="high"),
        "refund-desk",
        details=details,
    )


def mail() -> Case:
    """An e-mail that an agent would send."""
    return call("send_email", MAIL_ARGS, MAIL, "support")


def query() -> Case:
    """SQL that an agent would run."""
    return call("run_sql", {"database": "billing", "query": SQL}, QUERY, "analyst")


def silent(seconds: float, default: str = "approve") -> Case:
    """A service's case that silence decides."""
    case = cases.service_case(
        "approval", {"channel": "blog"}, prompt="Publish the post?", default_action=default
    )
    return dataclasses.replace(case, expires_at=NOW + seconds)


def again() -> Case:
    """The second round of a refund, after another try was asked for."""
    return dataclasses.replace(refund(), previous_case_id="review_01a1e788dc2cfe86f4434db52567c598")


def _calls() -> dict[str, tuple[Case, str]]:
    """What agents would run."""
    with_code = dataclasses.replace(refund(), verify_email=("ann@example.com",))
    transfer = call("transfer", {"cents": 1_240_000, "iban": "DE89370400440532013000"}, TRANSFER, "treasury")
    path = {"agent_path": ["front-desk", "refund-desk"]}
    return {
        "refund": (refund(), "A2 A3 B1 B2 B3 B4 B5 D1 D2 D3 D4 D5 D7 D8"),
        "transfer": (transfer, "A2 B2"),
        "shell": (shell(), "A1 B2 D6"),
        "shell-300": (shell("\n".join(f"echo {number}" for number in range(300))), "A1"),
        "sql": (query(), "A1 B10"),
        "mail": (mail(), "B3 B10 D6"),
        "erase": (erase(), "A3 B8 D6"),
        "sixty-arguments": (cases.approval(MANY, tool_name="configure"), "D2"),
        "megabyte": (cases.approval({"text": "x" * 1_000_000}), "A1"),
        "no-arguments": (cases.approval({}, tool_name="restart"), "B2"),
        "hidden-characters": (cases.approval({"to": "pay\u200bpal"}), "B3"),
        "hostile": (cases.approval({"text": HOSTILE}), "B2"),
        "subagent": (call("pay_refund", REFUND_ARGS, REFUND, "", details=path), "B1"),
        "chinese-call": (call("pay_refund", {"cents": 128_000, "order_id": "A-1042"}, CHINESE, "退款"), "D1"),
        "code": (with_code, "B9"),
        "second-round": (again(), "B7"),
    }


def _others() -> dict[str, tuple[Case, str]]:
    """What services and agents ask besides."""
    arabic = cases.service_case("approval", {"الاسم": "أحمد علي", "city": "Berlin"}, prompt="هل توافق؟")
    chinese = cases.service_case("approval", {"金额": "1,280.00 元"}, prompt="是否退款？")
    colours = cases.agent_selection()
    assert colours.request is not None
    waiting = colours.request.model_copy(update={"timeout_seconds": None})
    endless = dataclasses.replace(colours, request=waiting)
    return {
        "deployment": (cases.content_review(), "B1 B2"),
        "silence-approves": (silent(720), "A5"),
        "four-hours": (silent(4 * 3600 - 60, "skip"), "B5"),
        "three-days": (silent(72 * 3600, "skip"), "B5"),
        "no-limit": (endless, "B5"),
        "arabic": (arabic, "D1"),
        "chinese": (chinese, "D1"),
        "confirmation": (accounts(), "A6"),
        "confirmation-plain": (cases.agent_confirmation(), "A6"),
        "flights": (flights(), "B1 B3 B9"),
        "jobs": (cases.selection(), "B9"),
        "colours": (cases.agent_selection(), "B9"),
        "free-choice": (cases.service_case("selection", {"city": "Berlin"}, prompt="Which jobs?"), "B9"),
        "form": (cases.every_field(), "B9"),
        "wizard": (cases.wizard(), "B9"),
        "question": (cases.service_case("input", prompt="What is the code word?"), "B2"),
        "questions": (cases.agent_questions(), "B2"),
        "doubt": (doubt(), "A4"),
        "escalation": (cases.service_escalation(params={"limit": 10}), "A4"),
    }


def _ended() -> dict[str, tuple[Case, str]]:
    """How cases end."""
    asked = ended(refund(), "edit", {"feedback": "Say what is broken."})
    expired = dataclasses.replace(silent(720), status="expired", ended_at=NOW)
    return {
        "approved": (ended(refund(), "approve"), "A2 B4 B6"),
        "edited": (ended(refund(), "edit", {"edits": EDITED}), "B6"),
        "rejected": (ended(refund(), "reject", {"feedback": "Wrong amount"}), "B6"),
        "changes-asked": (
            dataclasses.replace(asked, next_case_id="review_01a1e788dc2cfe86f4434db52567c599"),
            "B7",
        ),
        "expired": (expired, "A5"),
        "withdrawn": (refund(status="cancelled", reason="The customer called it off."), "B6"),
    }
