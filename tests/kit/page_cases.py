"""Cases of every type and state, for the tests of the pages."""

from __future__ import annotations

from typing import Any

from askfirst.messages import call_digest
from askfirst.protocol import State
from askfirst.requests import (
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Option,
    Question,
)
from askfirst.service.adoption import case_context, case_prompt
from askfirst.service.case import Case

ASKED = 1_771_754_400.0  # 22 February 2026, 10:00 UTC
NOW = ASKED + 60
DAY = 86_400
TOKEN = "rev_" + "t" * 43

EMAIL_ARGS: dict[str, Any] = {
    "to": "finance@acme.example",
    "subject": "Invoice 2026-114",
    "body": "Dear colleagues,\n\nplease find the invoice attached.\nIt is due on 1 March.\n\nKind regards\nAda",
    "amount": 1250.5,
    "urgent": False,
    "attachments": [{"name": "invoice.pdf", "pages": 2}],
    "cc": None,
}


def service_case(
    kind: str, context: dict[str, Any] | None = None, *, status: State = "opened", **facts: Any
) -> Case:
    """A case that a service opened over HTTP."""
    ended = None if status in ("pending", "opened", "in_progress") else NOW
    given: dict[str, Any] = {"prompt": "Please decide.", "ended_at": ended, **facts}
    return Case(
        case_id="case_1",
        type=kind,
        status=status,
        version=1,
        created_at=ASKED,
        expires_at=ASKED + DAY,
        key_id="key_1",
        context=context or {},
        **given,
    )


def agent_case(payload: HitlPayload, *, status: State = "opened", **facts: Any) -> Case:
    """A case of an agent's request."""
    question_id = payload.tool_call_id if isinstance(payload, ApproveRequest) else "question_1"
    request = HitlRequest(question_id=question_id, payload=payload, created_at=ASKED, timeout_seconds=DAY)
    return Case(
        case_id="case_1",
        type=request.payload.case_type,
        status=status,
        version=1,
        prompt=case_prompt(request),
        created_at=ASKED,
        expires_at=ASKED + DAY,
        context=case_context(request),
        request=request,
        thread_id="thread_1",
        ended_at=None if status in ("pending", "opened", "in_progress") else NOW,
        **facts,
    )


def approval(args: dict[str, Any] | None = None, *, tool_name: str = "send_email", **facts: Any) -> Case:
    """An agent that wants to run a tool."""
    given = EMAIL_ARGS if args is None else args
    details = facts.pop("details", {"reason": "More than 1,000 needs a second look."})
    payload = ApproveRequest(
        tool_name=tool_name,
        tool_call_id="call_1",
        args=given,
        details=details,
        digest=call_digest(tool_name, given),
    )
    return agent_case(payload, **facts)


def content_review() -> Case:
    """A service that wants a text approved."""
    return service_case(
        "approval",
        {"application": "acme-web", "version": "2.4.0", "test_results": {"unit": 847, "all_passing": True}},
        prompt="Approve production deployment of acme-web v2.4.0",
        message="Production deployment requires approval.",
        default_action="reject",
    )


JOBS = [
    {"id": "job_1", "title": "Senior Frontend Engineer", "company": "TechFlow GmbH", "match": 0.94},
    {"id": "job_2", "title": "Staff Frontend Developer", "company": "Klarna", "match": 0.91},
    {"id": "job_3", "title": "Frontend Tech Lead", "company": "N26", "match": 0.85},
]


def selection(**context: Any) -> Case:
    """A service that wants something chosen."""
    return service_case(
        "selection", {"items": JOBS, "city": "Berlin", **context}, prompt="Select which jobs to apply for"
    )


def agent_selection(*, multi: bool = False, required: bool = True) -> Case:
    """An agent's question with options."""
    options = [
        Option(label="Blue", value="blue", description="Like the sea"),
        Option(label="Green", value="green"),
    ]
    question = Question(
        key="colour",
        prompt="Which colour should the roof be?",
        options=options,
        multi_select=multi,
        required=required,
    )
    return agent_case(AskRequest(questions=[question]))


def agent_questions() -> Case:
    """An agent's questions, one of them with an option that brings a text."""
    return agent_case(
        AskRequest(
            questions=[
                Question(key="name", prompt="What should the project be called?"),
                Question(
                    key="licence",
                    prompt="Under which licence?",
                    options=[
                        Option(label="MIT", value="mit", description="Short and permissive"),
                        Option(label="Another", value="other", allow_input=True),
                    ],
                ),
            ]
        )
    )


def field(key: str, kind: str, label: str | None = None, **facts: Any) -> dict[str, Any]:
    """One field of a form."""
    return {"key": key, "type": kind, "label": label or key.capitalize(), **facts}


COLOURS = [{"value": "red", "label": "Red"}, {"value": "green", "label": "Green"}]


def every_field(**facts: Any) -> Case:
    """A form of one page with a field of each type."""
    fields = [
        field("name", "text", "Full name", required=True, placeholder="Ada Lovelace"),
        field("about", "textarea", "About you", hint="A sentence or two."),
        field("age", "number", "Age", validation={"min": 18, "max": 120}),
        field("start", "date", "Start date"),
        field("mail", "email", "E-mail"),
        field("site", "url", "Website"),
        field("remote", "boolean", "Do you work remotely?", required=True),
        field("colour", "select", "Favourite colour", options=COLOURS),
        field("colours", "multiselect", "All colours", options=COLOURS),
        field("level", "range", "Level", validation={"min": 1, "max": 5}),
        field("secret", "text", "Bank PIN", sensitive=True),
        field("own", "x-own", "Something else"),
    ]
    return service_case("input", {"form": {"fields": fields}}, prompt="Tell us about yourself", **facts)


def wizard(**facts: Any) -> Case:
    """A form in steps, with a condition inside a step, one across steps, and a summary."""
    steps: list[dict[str, Any]] = [
        {
            "title": "The trip",
            "description": "Where you go, and how.",
            "fields": [
                field("city", "text", "City", required=True),
                field(
                    "by",
                    "select",
                    "How do you travel?",
                    required=True,
                    options=[{"value": "train", "label": "By train"}, {"value": "car", "label": "By car"}],
                ),
                field(
                    "plate",
                    "text",
                    "Number plate",
                    required=True,
                    conditional={"field": "by", "operator": "eq", "value": "car"},
                ),
            ],
        },
        {
            "title": "The parking",
            "fields": [
                field("days", "number", "Days", conditional={"field": "by", "operator": "eq", "value": "car"})
            ],
        },
        {
            "title": "The payment",
            "fields": [field("card", "text", "Card number", sensitive=True, required=True)],
        },
        {"title": "Check and send", "fields": []},
    ]
    form = {"steps": steps, "session_id": "session_1"}
    return service_case("input", {"form": form}, prompt="Plan your trip", **facts)


ITEMS = [
    {"id": "email_1", "label": "Klarna", "to": "recruiting@klarna.example"},
    {"id": "email_2", "label": "Zalando", "to": "careers@zalando.example"},
]


def confirmation(**facts: Any) -> Case:
    """A service that wants emails confirmed."""
    return service_case(
        "confirmation",
        {"irreversible": True, "items_to_confirm": ITEMS},
        prompt="Confirm sending 2 job application emails",
        **facts,
    )


def agent_confirmation() -> Case:
    """An agent that asks yes or no."""
    return agent_case(ConfirmRequest(prompt="May the agent give this answer?", details={"answer": "42"}))


def escalation() -> Case:
    """An agent's call in doubt."""
    details: dict[str, Any] = {
        "tool_name": "charge_card",
        "tool_call_id": "call_1",
        "args": {"amount": 40, "card": "visa-1"},
        "attempt": 1,
    }
    return agent_case(
        EscalateRequest(
            prompt="Nobody knows whether it ended.", choices=["retry", "skip", "abort"], details=details
        )
    )


def service_escalation(**context: Any) -> Case:
    """A service that cannot go on."""
    return service_case("escalation", {"error": "Connection refused", **context}, prompt="The import failed")


OPEN_CASES: dict[str, Case] = {
    "approval": approval(),
    "content_review": content_review(),
    "selection": selection(),
    "agent_selection": agent_selection(),
    "free_selection": service_case("selection", {"city": "Berlin"}, prompt="Which jobs?"),
    "every_field": every_field(),
    "agent_questions": agent_questions(),
    "no_form": service_case("input", prompt="What is the code word?"),
    "custom": service_case("x-poll", prompt="How was it?"),
    "wizard": wizard(),
    "confirmation": confirmation(),
    "agent_confirmation": agent_confirmation(),
    "escalation": escalation(),
    "service_escalation": service_escalation(),
    "service_escalation_params": service_escalation(params={"limit": 10}),
}

CLOSED_CASES: dict[str, Case] = {
    "approved": approval(status="completed", result={"action": "approve", "data": {}}),
    "rejected": approval(
        status="completed",
        result={"action": "reject", "data": {"feedback": "Too expensive."}},
        responded_by={"name": "Ada", "email": "ada@acme.example"},
    ),
    "edited": approval(
        status="completed",
        result={"action": "edit", "data": {"edits": {**EMAIL_ARGS, "to": "books@acme.example"}}},
    ),
    "filled_in": every_field(
        status="completed",
        result={"action": "submit", "data": {"name": "Ada", "remote": True, "secret": "4711"}},
    ),
    "expired": approval(status="expired", default_action="reject"),
    "cancelled": approval(status="cancelled", reason="The customer called it off."),
}
