"""Whether an answer fits what was asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from askfirst.errors import HitlInvalidAnswer
from askfirst.messages import call_digest
from askfirst.requests import (
    ApproveAnswer,
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    EscalateAnswer,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Option,
    Question,
    StoredRequest,
    fit_answer,
    plain_answer,
    same_question,
)


def envelope(payload: HitlPayload, **fields: Any) -> HitlRequest:
    return HitlRequest(question_id="q", payload=payload, created_at=1000.0, **fields)


def approve(args: dict[str, Any] | None = None, **fields: Any) -> HitlRequest:
    args = {"a": 1} if args is None else args
    digest = fields.pop("digest", call_digest("tool", args))
    return envelope(ApproveRequest(tool_name="tool", tool_call_id="q", args=args, digest=digest, **fields))


def ask(*questions: Question) -> HitlRequest:
    return envelope(AskRequest(questions=list(questions)))


CONFIRM = envelope(ConfirmRequest(prompt="?"))
ESCALATE = envelope(EscalateRequest(prompt="?", choices=["retry", "skip"]))


def faults(request: HitlRequest, answer: Any, check: Any = None) -> tuple[str, ...]:
    with pytest.raises(HitlInvalidAnswer) as refused:
        fit_answer(request, answer, check)
    assert refused.value.question_id == "q"
    assert all(fault in str(refused.value) for fault in refused.value.faults)
    assert isinstance(refused.value, ValueError)
    return refused.value.faults


# Confirm.


@pytest.mark.parametrize("answer", [True, False])
def test_confirm_takes_a_bool(answer: bool) -> None:
    assert fit_answer(CONFIRM, answer) is answer


@pytest.mark.parametrize("answer", ["true", "yes", 1, 0, None, {}, {"confirmed": True}, [True]])
def test_confirm_takes_nothing_else(answer: Any) -> None:
    assert faults(CONFIRM, answer) == ("it takes true or false",)


# Approve.


@pytest.mark.parametrize(
    "fields",
    [
        {"decision": "approve"},
        {"decision": "approve", "reason": "fine"},
        {"decision": "deny"},
        {"decision": "deny", "reason": "no"},
        {"decision": "edit", "edited_args": {"a": 2}},
        {"decision": "edit", "edited_args": {}, "reason": "none"},
    ],
)
def test_approve_takes_its_model_or_the_same_as_json(fields: dict[str, Any]) -> None:
    model = ApproveAnswer(**fields)
    assert fit_answer(approve(), model) == model
    assert fit_answer(approve(), fields) == model
    assert type(fit_answer(approve(), fields)) is ApproveAnswer


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"decision": "maybe"}, "decision"),
        ({}, "decision"),
        ("approve", "answer"),
        (True, "answer"),
        (None, "answer"),
        ({"decision": "edit"}, "an edit needs edited_args"),
        ({"decision": "approve", "edited_args": {"a": 2}}, "edited_args go with an edit"),
        ({"decision": "deny", "edited_args": {"a": 2}}, "edited_args go with an edit"),
        ({"decision": "edit", "edited_args": [1]}, "edited_args"),
        ({"decision": "edit", "edited_args": {"a": object()}}, "edited_args"),
        ({"decision": "approve", "reason": 5}, "reason"),
        (EscalateAnswer(action="retry"), "decision"),
    ],
)
def test_approve_names_what_is_wrong(answer: Any, fault: str) -> None:
    (named,) = faults(approve(), answer)[:1]
    assert fault in named


def test_every_fault_is_named() -> None:
    named = faults(approve(), {"decision": "maybe", "reason": 5})
    assert len(named) == 2


def test_edited_arguments_are_checked_where_the_tool_is_known() -> None:
    edit = {"decision": "edit", "edited_args": {"a": "x"}}
    assert faults(approve(), edit, lambda args: [f"a: not {args['a']}", "b: missing"]) == (
        "a: not x",
        "b: missing",
    )
    assert fit_answer(approve(), edit, lambda args: []) == ApproveAnswer(**edit)
    unchecked = fit_answer(approve(), {"decision": "approve"}, lambda args: ["never looked at"])
    assert unchecked == ApproveAnswer(decision="approve")


@pytest.mark.parametrize(
    ("request_", "answer"),
    [(approve(), {"decision": "approve"}), (ESCALATE, {"action": "skip"})],
)
def test_who_answered_is_not_for_the_answer_to_say(request_: HitlRequest, answer: dict[str, Any]) -> None:
    fitted: Any = fit_answer(request_, {**answer, "answered_by": "the queen", "via": "the palace"})
    assert (fitted.answered_by, fitted.via) == (None, None)
    lie = type(fitted)(**answer, answered_by="the queen", via="the palace")
    fitted = fit_answer(request_, lie)
    assert (fitted.answered_by, fitted.via) == (None, None)


def test_a_model_of_the_same_shape_is_read_by_its_fields() -> None:
    class Mine(BaseModel):
        decision: str
        reason: str

    assert fit_answer(approve(), Mine(decision="deny", reason="no")) == ApproveAnswer(
        decision="deny", reason="no"
    )


# Escalate.


@pytest.mark.parametrize(
    ("answer", "fitted"),
    [
        ("retry", EscalateAnswer(action="retry")),
        ({"action": "skip"}, EscalateAnswer(action="skip")),
        (EscalateAnswer(action="retry", reason="r"), EscalateAnswer(action="retry", reason="r")),
        (
            {"action": "retry", "modified_params": {"a": 2}},
            EscalateAnswer(action="retry", modified_params={"a": 2}),
        ),
    ],
)
def test_escalate_takes_a_choice(answer: Any, fitted: EscalateAnswer) -> None:
    assert fit_answer(ESCALATE, answer) == fitted


@pytest.mark.parametrize("answer", ["abort", {"action": "abort"}, {"action": 1}, {}, None, True])
def test_escalate_takes_only_what_was_offered(answer: Any) -> None:
    (named,) = faults(ESCALATE, answer)
    assert "action" in named or "answer" in named
    assert "retry, skip" in faults(ESCALATE, "abort")[0]


# Ask.

RED = Option(label="Red", value="red")
BLUE = Option(label="Blue", value="blue")
OTHER = Option(label="Other", value="other", allow_input=True)
TEXT = Question(key="text", prompt="?")
ONE = Question(key="one", prompt="?", options=[RED, BLUE])
INPUT = Question(key="input", prompt="?", options=[RED, OTHER])
MANY = Question(key="many", prompt="?", options=[RED, BLUE], multi_select=True)
MANY_INPUT = Question(key="many_input", prompt="?", options=[RED, OTHER], multi_select=True)
MAYBE = Question(key="maybe", prompt="?", required=False)
MAYBE_ONE = Question(key="maybe_one", prompt="?", options=[RED], required=False)
MAYBE_MANY = Question(key="maybe_many", prompt="?", options=[RED], multi_select=True, required=False)
NO_OPTIONS = Question(key="no_options", prompt="?", options=[])


@pytest.mark.parametrize(
    ("question", "value"),
    [
        (TEXT, "anything at all"),
        (ONE, "blue"),
        (INPUT, "red"),
        (INPUT, "other"),
        (INPUT, "something else"),
        (MANY, ["red"]),
        (MANY, ["blue", "red"]),
        (MANY_INPUT, ["red", "mauve"]),
        (MAYBE, ""),
        (MAYBE, "x"),
        (MAYBE_ONE, "red"),
        (MAYBE_ONE, ""),
        (MAYBE_MANY, []),
        (MAYBE_MANY, ["red"]),
        (NO_OPTIONS, "free"),
    ],
)
def test_ask_takes_what_fits_each_question(question: Question, value: Any) -> None:
    assert fit_answer(ask(question), {question.key: value}) == {question.key: value}


@pytest.mark.parametrize(
    ("question", "value", "fault"),
    [
        (TEXT, "", "required"),
        (TEXT, ["x"], "one value"),
        (TEXT, 5, "text"),
        (TEXT, None, "text"),
        (ONE, "green", "the answer is not one of red, blue"),
        (ONE, "Red", "is not one of"),
        (ONE, ["red"], "one value"),
        (INPUT, "", "required"),
        (MANY, "red", "a list"),
        (MANY, [], "required"),
        (MANY, ["red", "red"], "twice"),
        (MANY, ["red", "green"], "choice 2 is not one of"),
        (MANY, [1], "many"),
        (MANY_INPUT, "mauve", "a list"),
        (MAYBE_ONE, "green", "is not one of"),
        (MAYBE_MANY, ["green"], "is not one of"),
    ],
)
def test_ask_names_what_does_not_fit(question: Question, value: Any, fault: str) -> None:
    named = faults(ask(question), {question.key: value})
    assert any(fault in each for each in named)
    assert all(each.startswith(question.key) for each in named)


def test_ask_wants_every_required_key_and_no_other() -> None:
    request = ask(TEXT, ONE, MAYBE)
    assert fit_answer(request, {"text": "x", "one": "red"}) == {"text": "x", "one": "red"}
    assert faults(request, {"one": "green", "colour": "x"}) == (
        "colour: no such question",
        "text: an answer is required",
        "one: the answer is not one of red, blue",
    )
    assert len(faults(request, {})) == 2


@pytest.mark.parametrize("answer", ["x", None, True, ["x"], [("text", "x")]])
def test_ask_takes_an_object(answer: Any) -> None:
    assert faults(ask(TEXT), answer)


def test_no_question_needs_no_answer() -> None:
    assert fit_answer(ask(MAYBE), {}) == {}


# Round trips.

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(max_size=10)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, json_values, max_size=4)
reasons = st.none() | texts
keys = st.lists(texts.filter(bool), min_size=1, max_size=4, unique=True)


@st.composite
def answered(draw: st.DrawFn) -> tuple[HitlRequest, Any]:
    """A request and an answer that fits it."""
    kind = draw(st.sampled_from(["confirm", "approve", "ask", "escalate"]))
    if kind == "confirm":
        return CONFIRM, draw(st.booleans())
    if kind == "approve":
        decision = draw(st.sampled_from(["approve", "deny", "edit"]))
        edited = draw(objects) if decision == "edit" else None
        return approve(), ApproveAnswer(decision=decision, edited_args=edited, reason=draw(reasons))
    if kind == "escalate":
        choices = draw(keys)
        request = envelope(EscalateRequest(prompt="?", choices=choices))
        action = draw(st.sampled_from(choices))
        params = None if action in ("skip", "abort") else draw(st.none() | objects)
        return request, EscalateAnswer(action=action, modified_params=params, reason=draw(reasons))
    questions: list[Question] = []
    answers: dict[str, Any] = {}
    for key in draw(keys):
        values = draw(keys)
        multi, required = draw(st.booleans()), draw(st.booleans())
        options = [Option(label=value, value=value) for value in values] if draw(st.booleans()) else None
        questions.append(
            Question(key=key, prompt="?", options=options, multi_select=multi, required=required)
        )
        if required or draw(st.booleans()):
            answers[key] = values if multi else values[0]
    return ask(*questions), answers


@unhurried
@given(answered())
def test_an_answer_is_read_again_from_its_json(pair: tuple[HitlRequest, Any]) -> None:
    request, answer = pair
    fitted = fit_answer(request, answer)
    assert fitted == answer
    plain = plain_answer(fitted)
    assert not isinstance(plain, BaseModel)
    assert fit_answer(request, plain) == fitted
    again = HitlRequest.model_validate_json(request.model_dump_json())
    assert again == request
    assert fit_answer(again, plain) == fitted


@unhurried
@given(answered(), json_values)
def test_whatever_comes_either_fits_or_is_refused(pair: tuple[HitlRequest, Any], answer: Any) -> None:
    request, _ = pair
    try:
        fitted = fit_answer(request, answer)
    except HitlInvalidAnswer:
        assert faults(request, answer)
    else:
        assert fit_answer(request, plain_answer(fitted)) == fitted


# Which answer answers which question.


def _same(known: HitlRequest, asked: HitlRequest) -> bool:
    return same_question(known, asked.payload)


def test_the_same_question_is_the_same_call_to_the_letter() -> None:
    assert _same(approve(), approve())
    assert _same(approve(details={"why": "x"}), approve()), "what is told besides does not matter"
    assert not _same(approve(), approve({"a": 2}))
    assert not _same(approve(), approve({"a": 1, "b": None}))
    assert not _same(approve({"a": 2}, digest=call_digest("tool", {"a": 1})), approve()), (
        "a digest that is not that of what was shown binds nothing"
    )
    assert not _same(approve(digest=None), approve(digest=None))
    assert _same(CONFIRM, CONFIRM)
    assert not _same(CONFIRM, envelope(ConfirmRequest(prompt="!")))
    assert not _same(CONFIRM, ask(TEXT))


def test_a_deadline_is_a_time_out_after_the_asking() -> None:
    assert CONFIRM.expires_at is None
    assert envelope(ConfirmRequest(prompt="?"), timeout_seconds=5).expires_at == 1005.0


def test_a_stored_request_has_its_place_in_the_list_of_the_pending() -> None:
    stored = StoredRequest(CONFIRM, "a:b", None, "pending")
    assert stored.question_id == "q"
    assert stored.cursor == "1000000:3:a:bq"
