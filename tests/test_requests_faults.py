"""What is said of an answer that does not fit: each fault for itself, and no word of the answer."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, Field

from askfirst import Agent, tool
from askfirst.agent.arguments import args_faults, parse_args
from askfirst.errors import HitlInvalidAnswer
from askfirst.hitl import ConfirmToolCallMiddleware, InMemoryChannel
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.requests import (
    AskRequest,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Option,
    Question,
    fit_answer,
)


def faults(payload: HitlPayload, answer: Any) -> tuple[str, ...]:
    request = HitlRequest(question_id="q", payload=payload, created_at=0.0)
    with pytest.raises(HitlInvalidAnswer) as refused:
        fit_answer(request, answer)
    return refused.value.faults


# Edited arguments.


@tool
def book(city: str, nights: int, budget: float = 0.0) -> str:
    """Book a room."""
    return f"{nights} nights in {city}"


BAD = {"nights": "hunter2", "town": "Rome"}
SAID = [
    "city: Field required",
    "nights: Input should be a valid integer, unable to parse string as an integer",
    "town: Extra inputs are not permitted",
]


def test_each_bad_argument_is_a_fault_of_its_own() -> None:
    assert args_faults(book, BAD) == SAID
    assert args_faults(book, {"city": "Rome", "nights": 2}) == []


def test_the_model_is_told_in_one_sentence_as_before() -> None:
    assert parse_args(book, BAD) == "; ".join(SAID) + "."


@pytest.mark.anyio
async def test_whoever_answers_gets_them_one_by_one() -> None:
    channel = InMemoryChannel()
    model = ScriptedModel([ToolCall("c1", "book", {"city": "Rome", "nights": 2}), "done"])
    middleware = [ConfirmToolCallMiddleware(channel)]
    agent = Agent(model=model, tools=[book], channel=channel, middleware=middleware)
    running = asyncio.create_task(agent.prompt("go"))
    async for _ in channel.subscribe():
        break
    with pytest.raises(HitlInvalidAnswer) as refused:
        await channel.answer("c1", {"decision": "edit", "edited_args": BAD})
    assert refused.value.faults == tuple(SAID)
    await channel.answer("c1", {"decision": "edit", "edited_args": {"city": "Oslo", "nights": 1}})
    assert "1 nights in Oslo" in (await running).messages[2].text


class Card(BaseModel):
    kind: Literal["card"]


class Cash(BaseModel):
    kind: Literal["cash"]


@tool
def pay(by: Annotated[Card | Cash, Field(discriminator="kind")], order: UUID) -> str:
    """Pay."""
    return "paid"


def test_pydantics_words_are_used_without_the_value_in_them() -> None:
    assert args_faults(pay, {"by": {"kind": "hunter2"}, "order": "hunter2"}) == [
        "by: 'kind' is one of 'card', 'cash'",
        "order: Input should be a valid UUID",
    ]


def broken(n: int) -> int:
    raise RuntimeError(f"no {n}")


@tool
def check(n: Annotated[int, AfterValidator(broken)]) -> str:
    """Check."""
    return ""


def test_a_check_that_fails_at_its_work_is_a_fault() -> None:
    assert args_faults(check, {"n": 5}) == ["They could not be checked (RuntimeError)"]
    assert parse_args(check, {"n": 5}) == "They could not be checked (RuntimeError)."


def test_an_escalation_names_the_action_and_the_arguments() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}}}
    asked = EscalateRequest(prompt="?", choices=["retry", "skip"], args_schema=schema)
    assert faults(asked, {"action": "hunter2", "modified_params": {"n": "hunter2", "m": "hunter2"}}) == (
        "action is one of retry, skip",
        "n: must be a whole number",
        "m: must be a whole number",
    )


@pytest.mark.parametrize("action", ["skip", "abort"])
def test_changed_arguments_go_with_a_retry(action: str) -> None:
    asked = EscalateRequest(prompt="?", choices=["retry", "skip", "abort"])
    assert faults(asked, {"action": action, "modified_params": {"n": 5}}) == (
        f"modified_params go with a retry, not with {action}",
    )


# Questions.

COLOURS = [Option(label="Red", value="red"), Option(label="Blue", value="blue")]
TEXT = Question(key="text", prompt="?")
ONE = Question(key="one", prompt="?", options=COLOURS)
MANY = Question(key="many", prompt="?", options=COLOURS, multi_select=True)
MAYBE = Question(key="maybe", prompt="?", options=COLOURS, required=False)


def asked(*questions: Question) -> AskRequest:
    return AskRequest(questions=list(questions))


@pytest.mark.parametrize("wrong", [5, None, True, {"x": 1}, ["x"]])
def test_a_value_of_a_wrong_type_is_one_fault_and_hides_no_other(wrong: Any) -> None:
    answer = {"text": wrong, "one": "green", "many": ["red", "mauve"], "size": "x"}
    assert faults(asked(TEXT, ONE, MANY, Question(key="why", prompt="?")), answer) == (
        "size: no such question",
        "text: one value is expected, as text",
        "one: the answer is not one of red, blue",
        "many: choice 2 is not one of red, blue",
        "why: an answer is required",
    )


@pytest.mark.parametrize("wrong", ["red", 5, None, [1], ["red", 1], [["red"]], {"red": True}])
def test_a_list_of_texts_is_asked_for_by_name(wrong: Any) -> None:
    assert faults(asked(MANY, TEXT), {"many": wrong, "text": 5}) == (
        "many: a list of texts is expected",
        "text: one value is expected, as text",
    )


def test_every_wrong_choice_is_named_by_its_number() -> None:
    assert faults(asked(MANY), {"many": ["mauve", "red", "green", "mauve"]}) == (
        "many: a choice is given twice",
        "many: choice 1 is not one of red, blue",
        "many: choice 3 is not one of red, blue",
        "many: choice 4 is not one of red, blue",
    )


def test_what_may_be_left_empty_is_not_offered_as_a_choice() -> None:
    assert faults(asked(MAYBE), {"maybe": "green"}) == ("maybe: the answer is not one of red, blue",)


@pytest.mark.parametrize("wrong", ["hunter2", ["hunter2"], None, 5, [("text", "x")]])
def test_what_is_no_object_is_one_fault(wrong: Any) -> None:
    assert faults(asked(TEXT, ONE), wrong) == (
        "answer: an object with a value for each question is expected",
    )


@pytest.mark.parametrize(
    "typed", ["hunter2", ["hunter2"], ["hunter2", "hunter2"], {"hunter2": "hunter2"}, 71077345]
)
@pytest.mark.parametrize("question", [ONE, MANY, MAYBE], ids=lambda question: question.key)
def test_no_fault_repeats_what_was_typed(question: Question, typed: Any) -> None:
    said = faults(asked(question), {question.key: typed})
    assert said
    assert not re.search("hunter2|71077345", "".join(said))
    assert all(each.startswith(f"{question.key}: ") for each in said)
