"""The seed documents 000, 001 and 002, sentence by sentence, with ``askfirst`` as the import root."""

from __future__ import annotations

import asyncio
import inspect
import typing
from pathlib import Path
from typing import Any

import pytest
from kit.channel_rigs import Keeper, asked
from kit.paths import ROOT
from kit.transcripts import results

import askfirst.hitl
import askfirst.hitl.exceptions
import askfirst.hitl.types
from askfirst import Agent, BeforeToolCallResult, tool
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import HitlControlException, HitlError
from askfirst.events import (
    AgentAbortedEvent,
    AgentEvent,
    AgentSuspendedEvent,
    HitlAnswerEvent,
    HitlRequestEvent,
)
from askfirst.hitl import (
    ApproveAnswer,
    CheckpointedChannel,
    ConfirmToolCallMiddleware,
    HitlChannel,
    HitlTimedOut,
    InMemoryChannel,
    ask_user_tool,
)
from askfirst.hitl.testing import FakeClock, NoopChannel, ScriptedChannel
from askfirst.hitl.types import Option, Question
from askfirst.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    return {name: each for name, each in inspect.signature(function).parameters.items() if name != "self"}


def by_keyword(function: Any) -> list[str]:
    return [
        name for name, each in parameters(function).items() if each.kind is inspect.Parameter.KEYWORD_ONLY
    ]


@tool
async def bash(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


def agent_with(channel: HitlChannel, *turns: Any, **options: Any) -> Agent:
    turns = turns or (ToolCall("tc", "bash", {"command": "ls"}), "done")
    options.setdefault("middleware", [ConfirmToolCallMiddleware(channel)])
    return Agent(model=ScriptedModel(turns), tools=[bash], channel=channel, **options)


# 000, "Agent API".


def test_the_constructor_takes_a_channel() -> None:
    channel = parameters(Agent.__init__)["channel"]
    assert channel.default is None
    assert Agent(model=ScriptedModel([])).channel is None
    bound = InMemoryChannel()
    assert Agent(model=ScriptedModel([]), channel=bound).channel is bound


async def test_the_run_lock_serialises_prompt_resume_and_respond() -> None:
    agent = agent_with(InMemoryChannel())
    lock = agent._run_lock
    assert isinstance(lock, asyncio.Lock)
    async with lock:
        tasks = [asyncio.create_task(agent.prompt("go")), asyncio.create_task(agent.resume())]
        done, _ = await asyncio.wait(tasks, timeout=0)
        assert not done
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def test_properties_and_methods_of_the_agent() -> None:
    assert isinstance(inspect.getattr_static(Agent, "channel"), property)
    assert isinstance(inspect.getattr_static(Agent, "in_flight_hitl_request"), property)
    for name in ("load_pending_hitl_request", "detach", "respond", "abort_pending"):
        assert inspect.iscoroutinefunction(getattr(Agent, name)), name
    assert parameters(Agent.load_pending_hitl_request) == {}
    assert parameters(Agent.detach) == {}
    assert {"question_id", "answer"} <= set(by_keyword(Agent.respond))
    assert set(parameters(Agent.respond)) == set(by_keyword(Agent.respond))
    assert list(parameters(Agent.abort_pending)) == ["reason"]
    with pytest.raises(HitlError):
        _ = Agent(model=ScriptedModel([])).in_flight_hitl_request


async def test_detach_then_respond() -> None:
    channel = InMemoryChannel()
    agent = agent_with(channel)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    task = asyncio.create_task(agent.prompt("go"))
    request = await asked(channel)
    assert agent.in_flight_hitl_request == request
    assert await agent.load_pending_hitl_request() == request
    assert await agent.detach() is None
    assert (await task).status == "suspended"
    last = agent.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert [call.id for call in last.tool_calls] == ["tc"], "the message keeps its unresolved call"
    assert agent.in_flight_hitl_request is None
    assert await agent.load_pending_hitl_request() == request
    before = agent.messages
    await agent.respond(question_id="tc", answer=ApproveAnswer(decision="approve"))
    assert agent.messages[: len(before)] == before, "the prompt-cache prefix invariant"
    assert [type(each) for each in agent.messages[len(before) :]] == [ToolResultMessage, AssistantMessage]
    seen = [event.type for event in events]
    assert seen.index("hitl_request") < seen.index("agent_suspended") < seen.index("hitl_answer")


async def test_abort_pending_closes_the_conversation() -> None:
    channel = InMemoryChannel()
    agent = agent_with(channel)
    task = asyncio.create_task(agent.prompt("go"))
    await asked(channel)
    assert await agent.abort_pending(reason="user left") is None
    await task
    *_, denied, last = agent.messages
    assert isinstance(denied, ToolResultMessage)
    assert (denied.tool_call_id, denied.is_error) == ("tc", True)
    assert isinstance(last, AssistantMessage)
    assert last.stop_reason == "aborted"


# 000, "Events".


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (HitlRequestEvent, {"request"}),
        (HitlAnswerEvent, {"question_id", "answer", "cancelled", "timed_out"}),
        (AgentSuspendedEvent, {"pending_request"}),
        (AgentAbortedEvent, {"reason"}),
    ],
)
def test_four_events(event: Any, fields: set[str]) -> None:
    common = {"type", "thread_id", "run_id", "seq", "at", "agent_path"}
    assert set(event.model_fields) == common | fields
    union = typing.get_args(typing.get_args(AgentEvent)[0])
    assert event in union


# 000, "Error reference".


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("HitlCancelled", BaseException),
        ("HitlTimedOut", BaseException),
        ("HitlDetached", BaseException),
        ("HitlAborted", BaseException),
        ("HitlConcurrencyError", Exception),
        ("HitlStaleAnswer", Exception),
        ("HitlNoPendingRequest", Exception),
        ("HitlDurabilityNotGuaranteed", Exception),
    ],
)
def test_the_errors_and_their_bases(name: str, base: type[BaseException]) -> None:
    error = getattr(askfirst.hitl, name)
    assert error is getattr(askfirst.hitl.exceptions, name)
    assert issubclass(error, base)
    assert issubclass(error, Exception) is (base is Exception)
    assert issubclass(error, HitlControlException) is (base is BaseException)
    assert issubclass(error, HitlError) is (base is Exception)


def test_signals_carry_their_facts() -> None:
    assert askfirst.hitl.HitlCancelled("why").reason == "why"
    assert askfirst.hitl.HitlTimedOut(3.0).seconds == 3.0


async def test_no_broad_handler_swallows_a_signal() -> None:
    @tool
    async def swallow(command: str) -> str:
        try:
            await channel.confirm("?")
        except Exception:
            return "swallowed"
        return "answered"

    channel = InMemoryChannel()
    agent = Agent(
        model=ScriptedModel([ToolCall("c1", "swallow", {"command": "x"})]), tools=[swallow], channel=channel
    )
    task = asyncio.create_task(agent.prompt("go"))
    await asked(channel)
    await agent.detach()
    assert (await task).status == "suspended"


# 000 and 001, "Testing helpers".


async def test_the_scripted_channel_of_the_seeds() -> None:
    ch = ScriptedChannel(
        answers=[
            ApproveAnswer(decision="approve"),
            {"color": "red"},  # ask answer
            lambda req: ApproveAnswer(decision="deny", reason="test"),  # callable
        ]
    )
    assert (await ch.approve("bash", "tc", {})).decision == "approve"
    assert await ch.ask([Question(key="color", prompt="?")]) == {"color": "red"}
    assert (await ch.approve("bash", "tc2", {})).reason == "test"
    assert len(ch.history) == 3  # all HitlRequests ever seen
    ch = ScriptedChannel(answers=[ApproveAnswer(decision="approve"), {"color": "red"}])
    await ch.approve("bash", "tc", {})
    await ch.ask([Question(key="color", prompt="?")])
    assert len(ch.history) == 2


async def test_the_noop_channel_of_the_seeds() -> None:
    ch = NoopChannel()
    assert (await ch.approve("bash", "tc", {})).decision == "approve"
    assert (await ch.confirm("?")) is True
    assert await ch.ask([Question(key="k", prompt="p")]) == {"k": ""}


# 000, "Architecture notes".


async def test_resume_does_not_replay() -> None:
    """The model is not asked again for what it said; its open calls dictate what runs next."""
    channel = InMemoryChannel()
    agent = agent_with(channel)
    task = asyncio.create_task(agent.prompt("go"))
    await asked(channel)
    await agent.detach()
    await task
    await agent.respond(question_id="tc", answer=ApproveAnswer(decision="approve"))
    model = agent.spec.resolved_model
    assert isinstance(model, ScriptedModel)
    assert [len(request) for request in model.requests] == [1, 3]
    assert model.requests[1][:1] == model.requests[0] == [UserMessage("go")]


# 002.


def test_channel_types() -> None:
    assert parameters(InMemoryChannel)["default_timeout"].default is None
    assert InMemoryChannel(180.0) is not None
    assert InMemoryChannel(default_timeout=180.0) is not None
    made = parameters(CheckpointedChannel)
    assert {"checkpointer", "thread_id"} <= set(made)
    assert made["default_timeout"].default is None
    assert made["allow_inside_custom_tool"].default is False
    for wrong in (None, object()):
        with pytest.raises(HitlError):
            CheckpointedChannel(checkpointer=wrong, thread_id="t")
    assert CheckpointedChannel(checkpointer=Keeper(), thread_id="t") is not None


async def test_the_checkpointed_channel_of_the_seeds(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(str(tmp_path / "to.db")) as cp:
        channel = CheckpointedChannel(
            checkpointer=cp,
            thread_id="conversation-42",
            default_timeout=None,
            allow_inside_custom_tool=False,
        )
        task = asyncio.create_task(channel.confirm("ok?"))
        request = await asked(channel)
        assert await cp.load_pending_request("conversation-42") == request, "persisted on every verb"
        await channel.answer(request.question_id, True)
        assert await task is True
        assert await cp.load_pending_request("conversation-42") is None, "cleared by the answer"
        agent = agent_with(channel)
        running = asyncio.create_task(agent.prompt("go"))
        request = await asked(channel)
        await agent.detach()
        await running
        assert await cp.load_pending_request("conversation-42") == request, "kept by a detach"
    async with SQLiteCheckpointer(str(tmp_path / "to.db")) as cp:
        channel = CheckpointedChannel(checkpointer=cp, thread_id="conversation-42")
        agent = agent_with(channel, "done")
        await agent.respond(question_id="tc", answer=ApproveAnswer(decision="approve"))
        assert agent.messages[-1].text == "done"


async def test_save_pending_request_takes_and_clears(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "t.db") as cp:
        keeper = Keeper()
        channel = CheckpointedChannel(checkpointer=keeper, thread_id="t")
        task = asyncio.create_task(channel.confirm("ok?"))
        request = await asked(channel)
        task.cancel()
        await asyncio.wait([task])
        await cp.save_pending_request("t", request)
        assert await cp.load_pending_request("t") == request
        await cp.save_pending_request("t", None)
        assert await cp.load_pending_request("t") is None


@pytest.mark.parametrize("kind", [InMemoryChannel, CheckpointedChannel, HitlChannel])
def test_the_verbs_and_their_parameters(kind: Any) -> None:
    assert list(parameters(kind.confirm)) == ["prompt", "details", "timeout", "signal"]
    assert by_keyword(kind.confirm) == ["details", "timeout", "signal"]
    assert list(parameters(kind.approve)) == [
        *("tool_name", "tool_call_id", "args"),
        *("details", "timeout", "signal"),
    ]
    assert by_keyword(kind.approve) == ["details", "timeout", "signal"]
    assert list(parameters(kind.ask)) == ["questions", "timeout", "signal"]
    assert by_keyword(kind.ask) == ["timeout", "signal"]
    assert list(parameters(kind.escalate)) == ["prompt", "choices", "details", "timeout", "signal"]
    assert parameters(kind.escalate)["choices"].default == ("retry", "skip", "abort")
    for verb in ("confirm", "approve", "ask", "escalate", "answer", "cancel"):
        assert inspect.iscoroutinefunction(getattr(kind, verb)), verb
    assert list(parameters(kind.answer))[:2] == ["question_id", "answer"]
    assert list(parameters(kind.cancel))[:2] == ["question_id", "reason"]


async def test_confirm_as_in_the_seeds() -> None:
    channel = ScriptedChannel([True])
    deployed = False
    if await channel.confirm("Deploy to production?", details={"env": "prod"}):
        deployed = True
    assert deployed


async def test_ask_as_in_the_seeds() -> None:
    channel = ScriptedChannel([{"framework": "react", "features": ["auth", "payments"]}])
    answers = await channel.ask(
        [
            Question(
                key="framework",
                prompt="Which framework?",
                options=[
                    Option(label="React", value="react"),
                    Option(label="Vue", value="vue"),
                    Option(label="Other", value="other", allow_input=True),
                ],
            ),
            Question(
                key="features",
                prompt="Enable:",
                multi_select=True,
                options=[
                    Option(label="Auth", value="auth"),
                    Option(label="Payments", value="payments"),
                ],
            ),
        ]
    )
    assert answers == {"framework": "react", "features": ["auth", "payments"]}


@pytest.mark.parametrize(
    ("answer", "is_error", "decision"),
    [
        (ApproveAnswer(decision="approve"), False, "human_approve"),
        (ApproveAnswer(decision="deny"), True, "human_deny"),
        (ApproveAnswer(decision="edit", edited_args={"command": "pwd"}), False, "human_edit"),
    ],
)
async def test_the_three_decisions(answer: ApproveAnswer, is_error: bool, decision: str) -> None:
    channel = ScriptedChannel([answer])
    result = await agent_with(channel).prompt("go")
    done = results(result.messages)["tc"]
    assert done.is_error is is_error
    assert done.details is not None
    assert done.details["hitl"]["decision"] == decision
    assert ("ran pwd" in done.text) is (decision == "human_edit")
    assert channel.history[0].question_id == "tc", "the question is the call"


async def test_a_time_out_as_in_the_seeds() -> None:
    clock = FakeClock()
    channel = InMemoryChannel(default_timeout=30.0, clock=clock)
    task = asyncio.create_task(channel.confirm("ok?", timeout=10.0))
    assert (await asked(channel)).timeout_seconds == 10.0
    await clock.advance(10)
    with pytest.raises(HitlTimedOut):
        await task
    agent = agent_with(channel)
    running = asyncio.create_task(agent.prompt("go"))
    assert (await asked(channel)).timeout_seconds == 30.0
    await clock.advance(30)
    result = await running
    done = results(result.messages)["tc"]
    assert done.is_error
    assert done.details is not None
    assert done.details["hitl"]["decision"] == "timed_out"
    assert result.text == "done", "the model sees a clean denial and goes on"


def test_the_other_names() -> None:
    assert "hitl_trace" in {each.name for each in BeforeToolCallResult.__dataclass_fields__.values()}
    assert ask_user_tool(InMemoryChannel()).name == "ask_user"
    for name in ("Question", "Option", "HitlRequest", "ApproveAnswer", "HitlChannel"):
        assert getattr(askfirst.hitl.types, name) is getattr(askfirst.hitl, name)
    assert set(askfirst.hitl.__all__) >= {
        *("InMemoryChannel", "CheckpointedChannel", "HitlChannel", "ask_user_tool"),
        *("ConfirmToolCallMiddleware", "ApprovalPolicyMiddleware", "Approve", "Deny", "AskUser"),
        *("HitlRequest", "ApproveAnswer", "Question", "Option", "EscalateAnswer"),
    }


def test_the_tracing_extra() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert "tracing = [" in text
