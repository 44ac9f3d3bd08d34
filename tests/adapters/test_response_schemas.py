"""What a front end may send back: a schema for every kind of request, and what answers it."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from askfirst.adapters.response_schemas import answer_in, response_schema
from askfirst.errors import HitlInvalidAnswer
from askfirst.requests import (
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Option,
    Question,
    fit_answer,
    plain_answer,
)

ARGS = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}
FIXED = ApproveRequest(tool_name="pay", tool_call_id="c", args={"cents": 5})
EDITABLE = ApproveRequest(tool_name="pay", tool_call_id="c", args={"cents": 5}, args_schema=ARGS)
CONFIRM = ConfirmRequest(prompt="Go on?")
DOUBT = EscalateRequest(prompt="It may have run. What now?", choices=["retry", "skip"])
SIZES = [Option(label="Small", value="s"), Option(label="Large", value="l")]
ASK = AskRequest(
    questions=[
        Question(key="size", prompt="Which?", options=SIZES),
        Question(key="extras", prompt="And?", options=SIZES, multi_select=True, required=False),
        Question(key="note", prompt="Anything else?", required=False),
    ]
)


def asked(payload: HitlPayload) -> HitlRequest:
    return HitlRequest(question_id="q", payload=payload, created_at=0)


@pytest.mark.parametrize(
    ("asks", "payload", "answer"),
    [
        (FIXED, {"approved": True}, {"decision": "approve"}),
        (FIXED, {"approved": False, "reason": "too dear"}, {"decision": "deny", "reason": "too dear"}),
        (
            EDITABLE,
            {"approved": True, "editedArgs": {"cents": 3}},
            {"decision": "edit", "edited_args": {"cents": 3}},
        ),
        (CONFIRM, True, True),
        (CONFIRM, {"approved": False}, False),
        (ASK, {"size": "s", "extras": ["l"]}, {"size": "s", "extras": ["l"]}),
        (DOUBT, {"action": "skip"}, {"action": "skip"}),
    ],
)
def test_a_payload_that_fits_its_schema_is_an_answer(asks: HitlPayload, payload: Any, answer: Any) -> None:
    request = asked(asks)
    schema = response_schema(request)
    Draft202012Validator.check_schema(schema)
    if not (asks is CONFIRM and isinstance(payload, dict)):
        assert Draft202012Validator(schema).is_valid(payload)
    assert plain_answer(fit_answer(request, answer_in(request, payload))) == answer


@pytest.mark.parametrize(
    ("asks", "payload"),
    [
        (FIXED, None),
        (FIXED, True),
        (FIXED, "approve"),
        (FIXED, {}),
        (FIXED, {"approved": "true"}),
        (FIXED, {"approved": 1}),
        (FIXED, {"decision": "approve"}),
        (FIXED, {"approved": True, "editedArgs": {"cents": 1}}),
        (EDITABLE, {"approved": False, "editedArgs": {"cents": 1}}),
        (EDITABLE, {"approved": True, "editedArgs": {"cents": "one"}}),
        (EDITABLE, {"approved": True, "editedArgs": [1]}),
        (EDITABLE, {"approved": True, "reason": 7}),
        (CONFIRM, "yes"),
        (CONFIRM, 1),
        (ASK, {"size": "xl"}),
        (ASK, {"extras": ["l"]}),
        (ASK, ["s"]),
        (DOUBT, {"action": "approve"}),
        (DOUBT, {}),
    ],
)
def test_any_other_payload_is_none(asks: HitlPayload, payload: Any) -> None:
    request = asked(asks)
    with pytest.raises(HitlInvalidAnswer):
        fit_answer(request, answer_in(request, payload))


def test_a_payload_cannot_say_who_answers() -> None:
    said = {"approved": True, "answered_by": "the boss", "by": "the boss", "via": "page"}
    assert answer_in(asked(FIXED), said) == {"decision": "approve"}


def test_only_what_can_be_edited_offers_it() -> None:
    assert "editedArgs" not in response_schema(asked(FIXED))["properties"]
    assert response_schema(asked(EDITABLE))["properties"]["editedArgs"] == ARGS


def test_no_default_can_take_the_place_of_an_argument() -> None:
    """A front end that fills forms with defaults would send the default where the call has another value."""
    amount = {"type": "integer", "default": 1}
    schema = {"type": "object", "properties": {"cents": amount, "any": True}}
    payload = EDITABLE.model_copy(update={"args_schema": schema})
    edits = response_schema(asked(payload))["properties"]["editedArgs"]
    assert edits["properties"] == {"cents": {"type": "integer"}, "any": True}
