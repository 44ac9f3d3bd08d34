"""The protocol's objects in Python: faults, absent fields, secrets, earlier versions."""

from __future__ import annotations

import ast
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kit.published_protocol import (
    EVIDENCE,
    FULL,
    POLL,
    own_validator,
)
from pydantic import ValidationError

import askfirst.protocol
from askfirst.errors import AskfirstError, InvalidProtocolObject, ProtocolError
from askfirst.protocol import (
    Callback,
    Context,
    Discovery,
    EventData,
    FieldValidation,
    HitlObject,
    HumanInputRequired,
    PollResponse,
    ReviewEvent,
    SubmitRequest,
    actions_of,
    read_202,
    read_discovery,
)
from askfirst.protocol.wire import Wire

MODELS = [
    value for value in vars(askfirst.protocol).values() if isinstance(value, type) and issubclass(value, Wire)
]


# Reading.


def test_every_fault_is_listed_with_its_path_and_without_values() -> None:
    body = {
        "status": "human_input_required",
        "hitl": {
            **FULL,
            "review_url": "http://secret.example/?token=hunter2",
            "type": "hunter2",
            "reminder_at": ["2026-02-22T12:00:00Z", "hunter2"],
            "context": {"form": {"fields": [{"key": "9hunter2", "type": "text"}]}},
            "extra": "hunter2",
        },
    }
    del body["hitl"]["poll_url"]  # type: ignore[attr-defined]
    with pytest.raises(InvalidProtocolObject) as refused:
        HumanInputRequired.read(body)
    assert set(refused.value.faults) == {
        "hitl.review_url",
        "hitl.poll_url",
        "hitl.type",
        "hitl.reminder_at",
        "hitl.reminder_at[1]",
        "hitl.context.form.fields[0].key",
        "hitl.context.form.fields[0].label",
        "hitl.extra",
    }
    assert "hitl.poll_url is required" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("data", [b"{", "", b"\xff", '{"status": NaN}', "[]", "null", "3", b"[" * 5000])
def test_what_is_no_object_is_refused(data: bytes | str) -> None:
    with pytest.raises(InvalidProtocolObject):
        HumanInputRequired.read(data)
    with pytest.raises(InvalidProtocolObject):
        read_202(data)


def test_what_no_parser_reads_again_is_refused() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    for bad in (float("nan"), float("inf"), "\ud800", deep):
        for field in ({"more": bad}, {"more": {"a": [bad]}}):
            for model in (Context, EventData):
                with pytest.raises(InvalidProtocolObject):
                    model.read({"case_id": "c", **field})
        with pytest.raises(InvalidProtocolObject):
            SubmitRequest.read({**EVIDENCE, "data": {"a": bad}})


def test_a_fault_of_the_whole_object_has_no_path() -> None:
    with pytest.raises(InvalidProtocolObject) as refused:
        PollResponse.read({"status": "completed", "case_id": "c"})
    assert refused.value.faults == {"": "a case that is completed needs result and completed_at"}


def test_a_submit_token_and_its_address_come_together() -> None:
    for field, value in (("submit_url", "https://a.example/s"), ("submit_token", "t" * 43)):
        with pytest.raises(InvalidProtocolObject, match="come together or not at all"):
            HitlObject.read({**FULL, field: value})


# In Python.


def test_none_in_python_means_absent() -> None:
    case = PollResponse(status="pending", case_id="c", reason=None)
    assert case.wire() == {"status": "pending", "case_id": "c"}
    with pytest.raises(InvalidProtocolObject, match="reason must be text"):
        PollResponse.read({"status": "pending", "case_id": "c", "reason": None})
    with pytest.raises(InvalidProtocolObject, match="status must be"):
        PollResponse(status=None, case_id="c")  # type: ignore[arg-type]


def test_an_object_made_in_python_is_checked_and_frozen() -> None:
    with pytest.raises(InvalidProtocolObject, match="created_at must have a time zone"):
        PollResponse(status="pending", case_id="c", created_at=datetime(2026, 1, 1))
    case = PollResponse(status="pending", case_id="c", created_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert case.wire()["created_at"] == "2026-01-01T00:00:00Z"
    with pytest.raises(ValidationError):
        case.status = "opened"  # type: ignore[misc]


def test_a_hitl_object_says_null_for_no_callback() -> None:
    bare = {key: value for key, value in FULL.items() if key != "callback_url"}
    assert HitlObject.read(bare).wire()["callback_url"] is None


def test_own_fields_are_kept_where_services_may_add_them() -> None:
    hitl = HitlObject.read(FULL)
    assert hitl.context is not None
    assert hitl.context.wire()["anything"] == [1, None, {"a": True}]
    assert hitl.form is not None
    assert [field.key for field in hitl.form.all_fields] == ["iban"]
    data = EventData.read({"case_id": "c", "x-own": {"a": 1}})
    assert data.wire() == {"case_id": "c", "x-own": {"a": 1}}


def test_bounds_have_their_names_on_the_wire() -> None:
    assert FieldValidation(minLength=2).wire() == {"minLength": 2}
    assert FieldValidation.read({"maxLength": 3.0}).max_length == 3


def test_tokens_proofs_and_answers_are_in_no_repr() -> None:
    hitl = {**FULL, "submit_url": "https://a.example/s", "submit_token": "agt_" + "s" * 43}
    poll = {**POLL, "result": {"action": "submit", "data": {"pin": "hunter2"}}}
    shown = repr([HitlObject.read(hitl), PollResponse.read(poll), SubmitRequest.read(EVIDENCE)])
    for secret in ("token=", "s" * 43, "hunter2", "secret", "agent.example"):
        assert secret not in shown


def test_events_and_callbacks_are_read() -> None:
    event = ReviewEvent.read(
        {
            "event": "review.completed",
            "id": "evt_2",
            "data": {"case_id": "c", "status": "completed", "result": {"action": "select"}},
        }
    )
    assert event.data.result is not None
    assert event.data.result.action == "select"
    with pytest.raises(InvalidProtocolObject, match="event must be"):
        ReviewEvent.read({"event": "review.done", "id": "1", "data": {"case_id": "c"}})
    callback = {
        "event": "review.cancelled",
        "case_id": "c",
        "timestamp": "2026-02-22T10:00:00Z",
        "reason": "no",
    }
    assert Callback.read(callback).wire() == callback
    with pytest.raises(InvalidProtocolObject, match="event must be"):
        Callback.read({**callback, "event": "review.opened"})


def test_an_unknown_type_has_the_actions_of_input() -> None:
    assert actions_of("approval") == ("approve", "edit", "reject")
    assert actions_of("x-own") == actions_of("input") == ("submit",)


# Earlier versions.


@pytest.mark.parametrize("version", ["0.5", "0.6", "0.7", "0.8"])
def test_earlier_versions_are_read_as_this_one(version: str) -> None:
    body = {"status": "human_input_required", "hitl": {**FULL, "spec_version": version}}
    assert read_202(body) == read_202(json.dumps(body)) == read_202(json.dumps(body).encode())
    assert read_202(body).hitl == HitlObject.read(FULL)
    assert body["hitl"]["spec_version"] == version  # type: ignore[index]
    found = read_discovery({"hitl_protocol": {"spec_version": version, "service": {"name": "A"}}})
    assert found == Discovery.read({"hitl_protocol": {"spec_version": "0.8", "service": {"name": "A"}}})


@pytest.mark.parametrize("version", ["0.4", "0.9", "1.0", 0.8, None, ["0.7"]])
def test_other_versions_are_refused(version: object) -> None:
    body = {"status": "human_input_required", "hitl": {**FULL, "spec_version": version}}
    with pytest.raises(InvalidProtocolObject) as refused:
        read_202(body)
    assert list(refused.value.faults) == ["hitl.spec_version"]


def test_a_field_that_this_version_does_not_know_is_refused_in_earlier_ones_too() -> None:
    with pytest.raises(InvalidProtocolObject, match=r"hitl\.urgent is no field"):
        read_202({"status": "human_input_required", "hitl": {**FULL, "spec_version": "0.5", "urgent": True}})


# The package.


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_every_model_describes_itself(model: type[Wire], mode: Any) -> None:
    schema = model.model_json_schema(mode=mode)
    own_validator(model).check_schema(schema)
    assert schema["type"] == "object"
    assert model.__doc__


def test_the_protocol_imports_only_errors_limits_and_digests() -> None:
    folder = Path(askfirst.protocol.__file__).parent
    imported = {
        node.module
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("askfirst")
    }
    assert {name for name in imported if not name.startswith("askfirst.protocol")} <= {
        "askfirst",
        "askfirst.digests",
        "askfirst.errors",
        "askfirst.limits",
    }


def test_exports_are_complete_and_sorted() -> None:
    assert sorted(askfirst.protocol.__all__) == askfirst.protocol.__all__
    assert all(hasattr(askfirst.protocol, name) for name in askfirst.protocol.__all__)


def test_errors_are_in_the_tree() -> None:
    assert issubclass(InvalidProtocolObject, ProtocolError)
    assert issubclass(InvalidProtocolObject, ValueError)
    assert issubclass(ProtocolError, AskfirstError)
