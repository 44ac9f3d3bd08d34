"""What is given to channels and middleware: refused in a sentence, shown to nobody who should not see it, and at
home on one event loop after another."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from kit.channel_rigs import Keeper, Rig
from pydantic import SecretStr

from askfirst import Agent, tool
from askfirst.errors import HitlError, HitlInvalidRequest, HitlStaleAnswer
from askfirst.hitl import (
    ApprovalPolicyMiddleware,
    CheckpointedChannel,
    ConfirmToolCallMiddleware,
    InMemoryChannel,
)
from askfirst.hitl.testing import ScriptedChannel
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.requests import ApproveAnswer, EscalateAnswer

pytestmark = pytest.mark.anyio


@tool
async def pay(to: str) -> str:
    """Pay somebody."""
    return "paid"


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("ask", (None,)),
        ("ask", ("hello",)),
        ("approve", ("pay", "c1", None)),
        ("approve", ("pay", "c1", {"p": SecretStr("x")})),
    ],
)
async def test_what_makes_no_question_is_refused(verb: str, arguments: tuple[Any, ...]) -> None:
    channel = InMemoryChannel()
    with pytest.raises(HitlInvalidRequest):
        await getattr(channel, verb)(*arguments)
    assert channel.pending is None


@pytest.mark.parametrize("choices", [None, 5, [1, 2], ["a", None]])
async def test_choices_are_texts(choices: Any) -> None:
    with pytest.raises(HitlInvalidRequest, match="choices are a list of texts"):
        await InMemoryChannel().escalate("What now?", choices=choices)


@pytest.mark.parametrize(
    ("choices", "fault"),
    [
        ([f"way {place}" for place in range(21)], "at most 20 choices"),
        (["a", "b" * 301], "at most 300 characters"),
    ],
)
async def test_choices_that_no_page_shows_are_refused(choices: list[str], fault: str) -> None:
    with pytest.raises(HitlInvalidRequest, match=fault):
        await InMemoryChannel().escalate("What now?", choices=choices)


@pytest.mark.parametrize("require", ["payment", 5, [1], b"pay"])
def test_what_names_no_tools_is_refused_when_the_middleware_is_made(require: Any) -> None:
    with pytest.raises(HitlError, match="require_confirm"):
        ConfirmToolCallMiddleware(InMemoryChannel(), require_confirm=require)


async def test_names_that_can_be_read_once_hold_for_every_call() -> None:
    channel = ScriptedChannel([{"decision": "approve"}] * 2)
    once: Any = (name for name in ["pay"])
    calls = [ToolCall("c1", "pay", {"to": "ann"}), ToolCall("c2", "pay", {"to": "bob"})]
    agent = Agent(
        model=ScriptedModel([*calls, "done"]),
        tools=[pay],
        channel=channel,
        middleware=[ConfirmToolCallMiddleware(channel, require_confirm=once)],
    )
    await agent.prompt("go")
    assert [request.question_id for request in channel.history] == ["c1", "c2"]


@pytest.mark.parametrize("signal", ["stop", True, threading.Event(), asyncio.Event])
async def test_a_signal_is_an_event_that_can_be_awaited(rig: Rig, signal: Any) -> None:
    channel = rig.channel()
    with pytest.raises(HitlInvalidRequest, match=r"signal is an asyncio\.Event, not"):
        await channel.confirm("Go on?", signal=signal)
    assert await channel.open_request() is None, "nobody was asked"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout_seconds": -1}, "a time-out is"),
        ({"timeout_seconds": "30"}, "a time-out is"),
        ({"details_fn": {"balance": 3}}, "details_fn is a function of the call"),
    ],
)
def test_middleware_that_would_block_every_call_is_refused_when_it_is_made(options: Any, said: str) -> None:
    with pytest.raises(HitlError, match=said):
        ConfirmToolCallMiddleware(InMemoryChannel(), **options)
    with pytest.raises(HitlError, match="policy is a function of the call"):
        ApprovalPolicyMiddleware(InMemoryChannel(), policy=None)  # pyright: ignore[reportArgumentType]


def test_what_a_person_typed_is_in_no_repr() -> None:
    typed = {"password": "hunter2"}
    for answer in (
        ApproveAnswer(decision="edit", edited_args=typed),
        EscalateAnswer(action="retry", modified_params=typed),
    ):
        assert "hunter2" not in repr(answer)
        assert "hunter2" not in str(answer)


def test_an_agent_takes_turns_on_one_event_loop_after_another() -> None:
    agent = Agent(model=ScriptedModel(["one", "two", "three", "four"]))

    async def two() -> list[str]:
        return [result.text for result in await asyncio.gather(agent.prompt("a"), agent.prompt("b"))]

    assert [asyncio.run(two()), asyncio.run(two())] == [["one", "two"], ["three", "four"]]


def test_a_channel_takes_answers_on_one_event_loop_after_another() -> None:
    channel = CheckpointedChannel(checkpointer=Keeper(), thread_id="t")

    async def asked_and_answered_twice() -> bool:
        subscription = channel.subscribe()
        asking = asyncio.ensure_future(channel.confirm("Go on?"))
        request = await anext(subscription)
        answers = [channel.answer(request.question_id, True) for _ in range(2)]
        first, second = await asyncio.gather(*answers, return_exceptions=True)
        assert first is None
        assert isinstance(second, HitlStaleAnswer)
        return await asking

    assert [asyncio.run(asked_and_answered_twice()) for _ in range(2)] == [True, True]
