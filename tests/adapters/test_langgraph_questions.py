"""What interrupts ask in our words, and the values that answers resume them with. LangGraph itself is not needed."""

from __future__ import annotations

from typing import Any

from askfirst.adapters.langgraph_questions import Call, requests_in
from askfirst.adapters.schema_form import Form
from askfirst.gate.outcomes import Approved, Refused

ARGS = {"cents": 5}
EDITED = Approved({"cents": 3}, "ada", is_edited=True)


def test_langchains_batch() -> None:
    value = {
        "action_requests": [
            {"name": "charge", "args": ARGS},
            {"name": "ask", "args": {}, "description": "Who?"},
        ],
        "review_configs": [
            {"action_name": "charge", "allowed_decisions": ["approve", "edit", "reject"]},
            {"action_name": "ask", "allowed_decisions": ["respond"]},
        ],
    }
    asked = requests_in(value)
    call, form = asked.parts
    assert call == Call("charge", ARGS)
    assert isinstance(form, Form)
    assert form.payload.sentences == ["Who?"]
    assert asked.resume([EDITED, "Ada"]) == {
        "decisions": [
            {"type": "edit", "edited_action": {"name": "charge", "args": {"cents": 3}}},
            {"type": "respond", "message": "Ada"},
        ]
    }
    assert asked.resume([Refused("no"), Refused("late")])["decisions"] == [
        {"type": "reject", "message": "no"},
        {"type": "reject", "message": "late"},
    ]


def test_langchains_single_call_and_what_may_be_edited() -> None:
    defs: dict[str, Any] = {
        "Approve": {"properties": {"type": {"const": "approve"}}},
        "Edit": {"properties": {"type": {"const": "edit"}}},
        "EditedAction": {"properties": {"args": {"$ref": "#/$defs/charge"}}},
        "charge": {"type": "object", "properties": {"cents": {"type": "integer"}}},
    }
    value = {"type": "tool_approval", "tool_call_id": "c1", "name": "charge", "args": ARGS, "description": ""}
    asked = requests_in(value, {"$defs": defs})
    [call] = asked.parts
    assert isinstance(call, Call)
    assert call.schema == {**defs["charge"], "$defs": defs}
    assert asked.resume([Approved(ARGS)]) == {"type": "approve"}
    [fixed] = requests_in(value, {"properties": {"type": {"const": "approve"}}}).parts
    assert isinstance(fixed, Call)
    assert fixed.schema == {"const": ARGS}  # so that an edit is refused when it is made


def test_agent_inbox() -> None:
    def resumed(said: Any, **allowed: bool) -> Any:
        value = {"action_request": {"action": "charge", "args": ARGS}, "config": allowed}
        assert requests_in(value).resume([said]) == requests_in([value]).resume([said])
        return requests_in([value]).resume([said])[0]

    assert resumed(Approved(ARGS), allow_accept=True) == {"type": "accept", "args": None}
    edit = {"type": "edit", "args": {"action": "charge", "args": {"cents": 3}}}
    assert resumed(EDITED, allow_accept=True, allow_edit=True) == edit
    assert resumed(Approved({"cents": 3}), allow_edit=True) == edit
    assert resumed(Refused("no"), allow_accept=True, allow_ignore=True) == {"type": "ignore", "args": None}
    assert resumed(Refused("no"), allow_accept=True, allow_respond=True) == {"type": "response", "args": "no"}
    assert resumed("later", allow_respond=True) == {"type": "response", "args": "later"}


def test_anything_else_is_a_question() -> None:
    asked = requests_in({"question": "Which?", "of": ["a"]})
    assert not asked.can_deny
    [form] = asked.parts
    assert isinstance(form, Form)
    assert form.payload.sentences == ['{"question":"Which?","of":["a"]}']
    assert asked.resume([form.read({"answer": "a"})]) == "a"
    assert requests_in("Which?").parts[0].payload.sentences == ["Which?"]  # type: ignore[union-attr]
    assert isinstance(requests_in([]).parts[0], Form)
