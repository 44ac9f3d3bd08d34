"""The tool with which the model asks the person."""

from __future__ import annotations

from typing import Any

import pytest
from kit.channel_rigs import STORED, Rig, asked
from kit.transcripts import assert_sound, results
from pydantic import ValidationError

from askfirst import Agent, tool
from askfirst.errors import WrongAgent
from askfirst.hitl import AskUserParams, HitlCancelled, HitlTimedOut, InMemoryChannel, Question, ask_user_tool
from askfirst.hitl.testing import NoopChannel, ScriptedChannel
from askfirst.messages import ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

QUESTIONS = [
    {
        "key": "framework",
        "prompt": "Which?",
        "options": [
            {"label": "React", "value": "react"},
            {"label": "O", "value": "other", "allow_input": True},
        ],
    },
    {"key": "name", "prompt": "What name?"},
]
CALL = ToolCall("q1", "ask_user", {"questions": QUESTIONS})
ANSWERS = {"framework": "react", "name": "Ada"}


async def result_of(channel: Any, call: ToolCall = CALL) -> ToolResultMessage:
    agent = Agent(model=ScriptedModel([call, "done"]), tools=[ask_user_tool(channel)], channel=channel)
    result = await agent.prompt("go")
    assert result.status == "completed"
    return results(result.messages)["q1"]


def test_what_the_model_is_told_of_it() -> None:
    made = ask_user_tool(InMemoryChannel())
    assert made.name == "ask_user"
    assert made.parameters is AskUserParams
    assert made.effect == "none", "asking again is harmless"
    assert made.execution_mode == "sequential", "a channel asks one thing at a time"
    assert made.description
    assert made.schema.parameters["required"] == ["questions"]


def test_there_is_something_to_ask() -> None:
    with pytest.raises(ValidationError):
        AskUserParams(questions=[])


async def test_the_answers_reach_the_model() -> None:
    channel = ScriptedChannel([ANSWERS])
    done = await result_of(channel)
    assert not done.is_error
    assert '"framework": "react"' in done.text
    assert done.details == {"hitl": {"outcome": "answered", "answers": ANSWERS}}
    (request,) = channel.history
    assert request.payload.kind == "ask"
    assert request.payload.questions == [Question.model_validate(each) for each in QUESTIONS]


async def test_a_time_out_reaches_the_model() -> None:
    done = await result_of(ScriptedChannel([HitlTimedOut(30.0)]))
    assert done.is_error
    assert done.details == {
        "hitl": {"outcome": "timed_out", "decision": "timed_out", "reason": "nobody answered within 30 s"}
    }


async def test_a_cancel_reaches_the_model() -> None:
    done = await result_of(ScriptedChannel([HitlCancelled("gone home")]))
    assert done.is_error
    assert "gone home" in done.text
    assert done.details == {"hitl": {"outcome": "cancelled", "decision": "cancelled", "reason": "gone home"}}


async def test_an_empty_list_of_options_means_free_text() -> None:
    call = ToolCall("q1", "ask_user", {"questions": [{"key": "k", "prompt": "?", "options": []}]})
    done = await result_of(ScriptedChannel([{"k": "free"}]), call)
    assert done.details == {"hitl": {"outcome": "answered", "answers": {"k": "free"}}}


@pytest.mark.parametrize("args", [{}, {"questions": []}, {"questions": [{"key": "k"}]}, {"question": "?"}])
async def test_a_question_that_makes_no_sense_asks_nobody(args: dict[str, Any]) -> None:
    channel = ScriptedChannel()
    done = await result_of(channel, ToolCall("q1", "ask_user", args))
    assert done.is_error
    assert channel.history == []


async def test_nobody_at_home() -> None:
    done = await result_of(NoopChannel())
    assert done.details == {"hitl": {"outcome": "answered", "answers": {"framework": "react", "name": ""}}}


# Over real channels: asking is a safe point, and needs no flag.


async def test_it_asks_without_the_flag(rig: Rig) -> None:
    channel = rig.channel(default_timeout=60.0)
    agent = rig.agent(channel, model=ScriptedModel([CALL, "done"]), tools=[ask_user_tool(channel)])
    task = rig.start(agent.prompt("go"))
    request = await asked(channel)
    assert request.timeout_seconds == 60.0
    await agent.respond(question_id=request.question_id, answer=ANSWERS)
    result = await task
    assert results(result.messages)["q1"].details == {"hitl": {"outcome": "answered", "answers": ANSWERS}}
    assert_sound(result.messages)


async def test_a_deadline(rig: Rig) -> None:
    channel = rig.channel(default_timeout=60.0)
    agent = rig.agent(channel, model=ScriptedModel([CALL, "done"]), tools=[ask_user_tool(channel)])
    task = rig.start(agent.prompt("go"))
    await asked(channel)
    await rig.clock.advance(60)
    result = await task
    assert result.status == "completed"
    done = results(result.messages)["q1"].details
    assert done is not None
    assert done["hitl"]["decision"] == "timed_out"  # as seed 002 says
    assert done == {
        "hitl": {"outcome": "timed_out", "decision": "timed_out", "reason": "nobody answered within 60 s"}
    }


async def test_abort_while_it_asks(rig: Rig) -> None:
    channel = rig.channel()
    agent = rig.agent(channel, model=ScriptedModel([CALL, "done"]), tools=[ask_user_tool(channel)])
    task = rig.start(agent.prompt("go"))
    await asked(channel)
    await agent.abort_pending("stop")
    result = await task
    assert (result.status, result.reason) == ("aborted", "stop")
    assert_sound(result.messages)


async def test_who_resumes_waits_for_the_same_question(rig: Rig) -> None:
    channel = rig.channel()
    first = rig.agent(channel, model=ScriptedModel([CALL, "done"]), tools=[ask_user_tool(channel)])
    task = rig.start(first.prompt("go"))
    request = await asked(channel)
    await first.detach()
    await task
    channel = channel if rig.kind == "in_memory" else rig.channel()
    later = rig.later(first, channel, model=ScriptedModel(["done"]), tools=[ask_user_tool(channel)])
    task = rig.start(later.resume())
    assert await asked(channel) == request
    await channel.answer(request.question_id, ANSWERS)
    result = await task
    assert results(result.messages)["q1"].details == {"hitl": {"outcome": "answered", "answers": ANSWERS}}
    if rig.kind in STORED:
        assert (await rig.checkpointer.request("t", request.question_id)).status == "answered"


async def test_a_question_of_a_tool_that_is_gone_is_kept(rig: Rig) -> None:
    channel = rig.channel()
    first = rig.agent(channel, model=ScriptedModel([CALL, "done"]), tools=[ask_user_tool(channel)])
    task = rig.start(first.prompt("go"))
    await asked(channel)
    await first.detach()
    await task
    channel = channel if rig.kind == "in_memory" else rig.channel()
    later = rig.later(first, channel, model=ScriptedModel(["hello"]))
    with pytest.raises(WrongAgent, match="'ask_user', a tool that the agent 'agent' does not have"):
        await later.resume()
    assert await later.load_pending_hitl_request() is not None
    assert (await later.prompt("hi", on_pending="supersede")).text == "hello"


async def test_what_ran_before_it_does_not_run_again(rig: Rig) -> None:
    """A message with a tool and a question; the run is detached at the question and goes on elsewhere."""
    ran: list[int] = []

    @tool
    async def count() -> int:
        ran.append(1)
        return len(ran)

    channel = rig.channel()
    turn = [ToolCall("c1", "count", {}), CALL, ToolCall("c2", "count", {})]
    first = rig.agent(channel, model=ScriptedModel([turn, "done"]), tools=[ask_user_tool(channel), count])
    task = rig.start(first.prompt("go"))
    await asked(channel)
    assert ran == [1]
    await first.detach()
    await task
    channel = channel if rig.kind == "in_memory" else rig.channel()
    later = rig.later(first, channel, model=ScriptedModel(["done"]), tools=[ask_user_tool(channel), count])
    result = await later.respond(answer=ANSWERS)
    assert result is not None
    assert result.status == "completed"
    assert ran == [1, 1]
    assert list(results(result.messages)) == ["c1", "q1", "c2"]
    assert_sound(result.messages)


# A tool of one's own that asks.


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_custom_tool_needs_the_flag(rig: Rig, allowed: bool) -> None:
    channel = rig.channel(allow_inside_custom_tool=allowed)

    @tool
    async def custom() -> str:
        return f"said {await channel.confirm('Sure?')}"

    agent = rig.agent(channel, model=ScriptedModel([ToolCall("c1", "custom", {}), "done"]), tools=[custom])
    task = rig.start(agent.prompt("go"))
    if allowed or rig.kind == "in_memory":
        request = await asked(channel)
        await channel.answer(request.question_id, True)
        result = await task
        assert results(result.messages)["c1"].text == "said True"
    else:
        result = await task
        done = results(result.messages)["c1"]
        assert done.is_error
        assert "HitlDurabilityNotGuaranteed" in done.text
        assert await agent.load_pending_hitl_request() is None


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_custom_tool_that_was_detached_begins_anew(rig: Rig, effect: Any) -> None:
    """Its body was begun, so one that may not be repeated asks whether to; the answer given is not lost."""
    began: list[int] = []

    def agent_with(channel: Any, *turns: Any, before: Agent | None = None) -> Agent:
        @tool(effect=effect)
        async def custom() -> str:
            began.append(1)
            return f"said {await channel.confirm('Sure?')}"

        options: dict[str, Any] = {"model": ScriptedModel(turns), "tools": [custom]}
        return rig.agent(channel, **options) if before is None else rig.later(before, channel, **options)

    channel = rig.channel(allow_inside_custom_tool=True)
    first = agent_with(channel, ToolCall("c1", "custom", {}), "done")
    task = rig.start(first.prompt("go"))
    request = await asked(channel)
    await first.detach()
    await task
    if rig.kind in STORED:
        channel = rig.channel(allow_inside_custom_tool=True)
        agent = agent_with(channel, "done", before=first)
    else:
        agent = first
    requests = channel.subscribe()
    task = rig.start(agent.respond(question_id=request.question_id, answer=True))
    if effect == "once":
        doubt = await anext(requests)
        assert doubt.payload.kind == "escalate"
        assert began == [1]
        await channel.answer(doubt.question_id, "retry")
    result = await task
    assert result.status == "completed"
    assert results(result.messages)["c1"].text == "said True"
    assert began == [1, 1]


async def test_questions_that_cannot_be_told_apart_are_the_models_mistake(rig: Rig) -> None:
    channel = rig.channel()
    questions = [{"key": "k", "prompt": "one"}, {"key": "k", "prompt": "two"}]
    model = ScriptedModel([ToolCall("c1", "ask_user", {"questions": questions}), "I see."])
    agent = rig.agent(channel, model=model, tools=[ask_user_tool(channel)])
    result = await agent.prompt("go")
    assert (result.text, await channel.open_request()) == ("I see.", None)
    refused = results(result.messages)["c1"]
    assert refused.is_error
    assert "'k' is there twice" in refused.text
