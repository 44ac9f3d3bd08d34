"""The agent's side: asking, detaching, responding, aborting, over every kind of channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kit.channel_rigs import STORED, Rig, asked, open_rig
from kit.transcripts import assert_sound, open_calls, results

from askfirst import (
    Agent,
    AgentEvent,
    ApprovalResponse,
    Middleware,
    ModelCallContext,
    Tool,
    ToolContext,
    tool,
)
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import (
    HitlError,
    HitlInvalidAnswer,
    HitlNoPendingRequest,
    HitlRequestPending,
    HitlStaleAnswer,
    InvalidAgent,
    InvalidCheckpoint,
    StoreError,
)
from askfirst.events import (
    AgentAbortedEvent,
    AgentSuspendedEvent,
    ApprovalEvent,
    HitlAnswerEvent,
    HitlRequestEvent,
    RunEndedEvent,
    RunStartedEvent,
)
from askfirst.hitl import (
    ApproveAnswer,
    CheckpointedChannel,
    ConfirmToolCallMiddleware,
    HitlChannel,
    InMemoryChannel,
    ask_user_tool,
)
from askfirst.hitl.testing import ScriptedChannel
from askfirst.messages import AssistantMessage, Message, ToolCall, UserMessage, call_digest
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}
CALL = ToolCall("c1", "send", {"to": "ada"})
SHOWN = {"to": "ada", "text": "hi"}
HITL = (HitlRequestEvent, HitlAnswerEvent, AgentSuspendedEvent, AgentAbortedEvent)


class Sender:
    """A tool that needs approval and remembers what it sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

        @tool(requires_approval=True)
        async def send(to: str, text: str = "hi") -> str:
            self.sent.append((to, text))
            return f"sent to {to}"

        self.tool: Tool = send


def model(*turns: Any) -> ScriptedModel:
    return ScriptedModel(turns or [CALL, "done"])


@pytest.fixture
def sender() -> Sender:
    return Sender()


def listen(agent: Agent, *kinds: type[Any]) -> list[AgentEvent]:
    heard: list[AgentEvent] = []
    agent.subscribe(lambda event: heard.append(event) if isinstance(event, kinds or HITL) else None)
    return heard


def channel_of(agent: Agent) -> HitlChannel:
    assert agent.channel is not None
    return agent.channel


async def wait_for_person(rig: Rig, agent: Agent, text: str = "go") -> asyncio.Task[Any]:
    """Prompt the agent until it asks."""
    task = rig.start(agent.prompt(text))
    await asked(channel_of(agent))
    return task


async def detached(rig: Rig, agent: Agent, text: str = "go") -> Sequence[Message]:
    """Prompt the agent until it asks, and detach it."""
    task = await wait_for_person(rig, agent, text)
    await agent.detach()
    result = await task
    assert result.status == "suspended"
    return result.messages


# What an agent with a channel tells.


async def test_an_approved_call_from_start_to_end(rig: Rig, sender: Sender) -> None:
    agent = rig.agent(model=model(), tools=[sender.tool])
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    task = await wait_for_person(rig, agent)
    pending = agent.in_flight_hitl_request
    assert pending is not None
    assert pending.question_id == "c1"
    assert pending.thread_id == "t"
    assert pending.payload.args == SHOWN
    assert await agent.load_pending_hitl_request() == pending
    assert sender.sent == []
    assert await agent.respond(question_id="c1", answer=ApproveAnswer(decision="approve")) is None
    result = await task
    assert (result.status, result.text) == ("completed", "done")
    assert sender.sent == [("ada", "hi")]
    assert agent.in_flight_hitl_request is None
    assert await agent.load_pending_hitl_request() is None
    asking, answering = [event for event in events if isinstance(event, HITL)]
    assert asking.model_dump(exclude={"seq", "at"}) == {
        "type": "hitl_request",
        "thread_id": "t",
        "run_id": result.run_id,
        "agent_path": ("agent",),
        "request": pending.model_dump(),
    }
    assert answering.model_dump(exclude={"seq", "at"}) == {
        "type": "hitl_answer",
        "thread_id": "t",
        "run_id": result.run_id,
        "agent_path": ("agent",),
        "question_id": "c1",
        "answer": {"decision": "approve"},
        "cancelled": False,
        "timed_out": False,
    }
    kinds = [event.type for event in events if event.type != "message_delta"]
    assert kinds == [
        *("run_started", "message_started", "message_ended"),
        *("turn_started", "message_started", "message_ended"),
        *("hitl_request", "approval", "hitl_answer", "approval"),
        *("tool_started", "tool_ended", "message_started", "message_ended"),
        *("turn_ended", "turn_started", "message_started", "message_ended", "turn_ended", "run_ended"),
    ]
    assert [event.seq for event in events] == list(range(len(events)))


async def test_the_request_is_stored_before_it_is_told(stored_rig: Rig, sender: Sender) -> None:
    agent = stored_rig.agent(model=model(), tools=[sender.tool])
    seen: list[Any] = []
    looked = asyncio.Event()

    async def look(event: AgentEvent) -> None:
        if isinstance(event, HitlRequestEvent):
            seen.append(await stored_rig.checkpointer.load_pending_request("t") == event.request)
            thread = await stored_rig.checkpointer.load("t")
            seen.append((len(thread.messages), thread.lease_owner))
            looked.set()
        if isinstance(event, HitlAnswerEvent):
            seen.append((await stored_rig.checkpointer.request("t", "c1")).status)

    agent.subscribe(look)
    task = await wait_for_person(stored_rig, agent)
    await looked.wait()
    await agent.respond(answer=APPROVE)
    await task
    assert seen == [True, (2, None), "answered"], "while it waits, the thread is leased to nobody"


async def test_without_a_channel(sender: Sender) -> None:
    agent = Agent(model=model(), tools=[sender.tool])
    assert agent.channel is None
    with pytest.raises(HitlError, match="no channel"):
        _ = agent.in_flight_hitl_request
    with pytest.raises(HitlError):
        await agent.detach()
    assert await agent.load_pending_hitl_request() is None
    for refused in (agent.respond(answer=True), agent.respond(question_id="q", answer=True)):
        with pytest.raises(HitlNoPendingRequest):
            await refused
    with pytest.raises(HitlNoPendingRequest):
        await agent.abort_pending()


async def test_with_nobody_asked(rig: Rig) -> None:
    agent = rig.agent(model=model("hello"))
    heard = listen(agent)
    for _ in range(2):
        assert agent.in_flight_hitl_request is None
        assert await agent.load_pending_hitl_request() is None
        for refused in (
            agent.detach(),
            agent.respond(question_id="c1", answer=APPROVE),
            agent.respond(answer=APPROVE),
            agent.abort_pending(reason="why"),
        ):
            with pytest.raises(HitlNoPendingRequest):
                await refused
        if not agent.messages:
            await agent.prompt("hi")
    assert heard == []


async def test_a_run_lock_lets_one_run_at_a_time(rig: Rig, sender: Sender) -> None:
    agent = rig.agent(model=model(), tools=[sender.tool])
    lock = agent._run_lock
    assert isinstance(lock, asyncio.Lock)
    assert not lock.locked()
    task = await wait_for_person(rig, agent)
    assert lock.locked()
    await agent.respond(answer=APPROVE)
    await task
    assert not lock.locked()


def test_an_agent_and_its_channel_have_one_thread_and_one_store() -> None:
    store, other = MemoryCheckpointer(), MemoryCheckpointer()
    channel = CheckpointedChannel(checkpointer=store, thread_id="t")
    assert Agent(model=model(), channel=channel).thread_id == "t"
    with pytest.raises(InvalidAgent, match="thread"):
        Agent(model=model(), channel=channel, thread_id="u")
    with pytest.raises(InvalidAgent, match="checkpointer"):
        Agent(model=model(), channel=channel, checkpointer=other)
    with pytest.raises(InvalidAgent, match="messages"):
        Agent(model=model(), channel=channel, messages=[UserMessage("hi")])


# Detach and respond.


async def test_detach_suspends_the_run_and_keeps_the_request(rig: Rig, sender: Sender) -> None:
    agent = rig.agent(model=model(), tools=[sender.tool])
    heard = listen(agent, *HITL, RunEndedEvent)
    task = await wait_for_person(rig, agent)
    pending = agent.in_flight_hitl_request
    await agent.detach()
    result = await task
    assert result.status == "suspended"
    assert open_calls(result.messages) == ["c1"]
    assert agent.in_flight_hitl_request is None
    assert await agent.load_pending_hitl_request() == pending
    assert [event.type for event in heard] == ["hitl_request", "agent_suspended", "run_ended"]
    assert heard[1].model_dump(exclude={"seq", "at"}) == {
        "type": "agent_suspended",
        "thread_id": "t",
        "run_id": result.run_id,
        "agent_path": ("agent",),
        "pending_request": pending.model_dump() if pending else None,
    }
    assert heard[2].status == "suspended"
    with pytest.raises(HitlNoPendingRequest):
        await agent.detach()
    assert sender.sent == []


@pytest.mark.parametrize("question_id", ["c1", None])
@pytest.mark.parametrize("fresh", [False, True])
async def test_respond_resumes_a_suspended_run(
    rig: Rig, sender: Sender, fresh: bool, question_id: str | None
) -> None:
    first = rig.agent(model=model(CALL, "done"), tools=[sender.tool])
    before = await detached(rig, first)
    agent = rig.later(first, model=model("done"), tools=[sender.tool]) if fresh else first
    heard = listen(agent, *HITL, RunStartedEvent)
    result = await agent.respond(question_id=question_id, answer=APPROVE, by="ada", via="web")
    assert result is not None
    assert (result.status, result.text) == ("completed", "done")
    assert sender.sent == [("ada", "hi")]
    assert_sound(result.messages)
    assert list(result.messages[: len(before)]) == list(before), "between pause and resume only the end grows"
    assert results(result.messages)["c1"].details == {
        "hitl": {
            "decision": "human_approve",
            "digest": call_digest("send", SHOWN),
            "answered_by": "ada",
            "via": "web",
        }
    }
    assert [event.type for event in heard] == ["run_started", "hitl_answer"]
    assert heard[0].resumed
    assert await agent.load_pending_hitl_request() is None
    assert (await agent.prompt("more")).status in ("completed", "failed"), "nothing is left open"
    for refused in (
        agent.respond(question_id="c1", answer=APPROVE),
        agent.respond(answer=APPROVE),
    ):
        with pytest.raises((HitlNoPendingRequest, HitlStaleAnswer)):
            await refused
    assert sender.sent == [("ada", "hi")]


async def test_respond_with_the_wrong_id_or_answer_changes_nothing(rig: Rig, sender: Sender) -> None:
    agent = rig.agent(model=model(), tools=[sender.tool])
    task = await wait_for_person(rig, agent)
    for _ in ("in flight", "detached"):
        with pytest.raises(HitlStaleAnswer):
            await agent.respond(question_id="c2", answer=APPROVE)
        with pytest.raises(HitlInvalidAnswer):
            await agent.respond(question_id="c1", answer=True)
        with pytest.raises(HitlInvalidAnswer, match="to"):
            await agent.respond(
                question_id="c1", answer={"decision": "edit", "edited_args": {"to": ["nobody"]}}
            )
        pending = await agent.load_pending_hitl_request()
        assert pending is not None
        assert pending.question_id == "c1"
        if not task.done():
            await agent.detach()
            await task
    channel = channel_of(agent)
    with pytest.raises(HitlInvalidAnswer, match="to"):
        await channel.answer("c1", {"decision": "edit", "edited_args": {"to": 5}})
    assert open_calls(agent.messages) == ["c1"]
    assert sender.sent == []


async def test_resume_after_an_answer_through_the_channel(rig: Rig, sender: Sender) -> None:
    agent = rig.agent(model=model(), tools=[sender.tool])
    await detached(rig, agent)
    await channel_of(agent).answer("c1", APPROVE)
    assert sender.sent == [], "a channel only takes the answer"
    result = await agent.resume()
    assert result.status == "completed"
    assert sender.sent == [("ada", "hi")]


async def test_resume_without_an_answer_waits_again(rig: Rig, sender: Sender) -> None:
    first = rig.agent(model=model(), tools=[sender.tool])
    await detached(rig, first)
    agent = rig.later(first, model=model("done"), tools=[sender.tool])
    heard = listen(agent)
    pending = await agent.load_pending_hitl_request()
    task = rig.start(agent.resume())
    assert await asked(channel_of(agent)) == pending
    await agent.respond(answer=APPROVE)
    assert (await task).status == "completed"
    assert [event.type for event in heard] == ["hitl_request", "hitl_answer"]
    assert sender.sent == [("ada", "hi")]


async def test_an_answer_in_the_store_is_found_by_resume(stored_rig: Rig, sender: Sender) -> None:
    await detached(stored_rig, stored_rig.agent(model=model(), tools=[sender.tool]))
    await stored_rig.checkpointer.settle("t", "c1", APPROVE, by="ada", via="inbox")
    agent = stored_rig.agent(model=model("done"), tools=[sender.tool])
    result = await agent.resume()
    assert result.status == "completed"
    assert sender.sent == [("ada", "hi")]
    with pytest.raises(HitlStaleAnswer):
        await agent.respond(question_id="c1", answer=APPROVE)


async def test_an_answer_in_the_store_wakes_the_agent(stored_rig: Rig, sender: Sender) -> None:
    agent = stored_rig.agent(model=model(), tools=[sender.tool])
    task = await wait_for_person(stored_rig, agent)
    await stored_rig.checkpointer.settle("t", "c1", {"decision": "deny", "reason": "no"})
    result = await task
    assert result.status == "completed"
    assert sender.sent == []


async def test_of_two_workers_with_the_answer_one_goes_on(stored_rig: Rig, sender: Sender) -> None:
    first = stored_rig.agent(model=model(), tools=[sender.tool])
    task = await wait_for_person(stored_rig, first)
    second = stored_rig.agent(model=model("done"), tools=[sender.tool])
    responded = await second.respond(question_id="c1", answer=APPROVE)
    waited = await task
    assert responded is not None
    assert sorted([waited.status, responded.status]) in (["completed", "suspended"], ["completed"] * 2)
    assert sender.sent == [("ada", "hi")]
    for result in (waited, responded):
        assert open_calls(result.messages) in ([], ["c1"])
    assert_sound(await second.load())


async def test_the_seeds_detach_in_a_tools_form(rig: Rig) -> None:
    """The same with a question of the model's own."""
    channel = rig.channel()
    question = {"key": "colour", "prompt": "Which?", "options": [{"label": "R", "value": "red"}]}
    turn = ToolCall("q1", "ask_user", {"questions": [question]})
    first = rig.agent(channel, model=model(turn, "done"), tools=[ask_user_tool(channel)])
    await detached(rig, first)
    channel = channel if rig.kind == "in_memory" else rig.channel()
    agent = rig.later(first, channel, model=model("done"), tools=[ask_user_tool(channel)])
    pending = await agent.load_pending_hitl_request()
    assert pending is not None
    with pytest.raises(HitlInvalidAnswer):
        await agent.respond(answer={"colour": "green"})
    result = await agent.respond(question_id=pending.question_id, answer={"colour": "red"})
    assert result is not None
    assert result.text == "done"
    assert results(result.messages)["q1"].details == {
        "hitl": {"outcome": "answered", "answers": {"colour": "red"}}
    }


# Task cancellation.


async def test_cancelling_the_prompt_leaves_the_request_answerable(rig: Rig, sender: Sender) -> None:
    agent = rig.agent(model=model(), tools=[sender.tool])
    heard = listen(agent, *HITL, RunEndedEvent)
    task = await wait_for_person(rig, agent)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard[-1].status == "suspended"
    pending = await agent.load_pending_hitl_request()
    assert pending is not None
    assert open_calls(agent.messages) == ["c1"]
    later = rig.later(agent, model=model("done"), tools=[sender.tool])
    result = await later.respond(question_id=pending.question_id, answer=APPROVE)
    assert result is not None
    assert result.status == "completed"
    assert sender.sent == [("ada", "hi")]


# Abort.


def assert_closed(messages: Sequence[Message], reason: str) -> None:
    assert_sound(messages)
    last = messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.error) == ("aborted", reason)
    unrun = results(messages)["c1"]
    assert unrun.is_error
    assert reason in unrun.text


@pytest.mark.parametrize("where", ["in flight", "detached", "fresh"])
async def test_abort_pending_closes_the_conversation(rig: Rig, sender: Sender, where: str) -> None:
    agent = rig.agent(model=model(CALL, "done", "later"), tools=[sender.tool])
    task = await wait_for_person(rig, agent)
    before = agent.messages
    if where != "in flight":
        await agent.detach()
        await task
    if where == "fresh":
        agent = rig.later(agent, model=model("later"), tools=[sender.tool])
    heard = listen(agent)
    await agent.abort_pending(reason="not today")
    if where == "in flight":
        result = await task
        assert (result.status, result.reason) == ("aborted", "not today")
    assert_closed(agent.messages, "not today")
    assert list(agent.messages[: len(before)]) == list(before)
    assert [event.model_dump(include={"type", "reason", "cancelled"}) for event in heard] == [
        {"type": "hitl_answer", "cancelled": True},
        {"type": "agent_aborted", "reason": "not today"},
    ]
    assert await agent.load_pending_hitl_request() is None
    assert sender.sent == []
    for refused in (agent.abort_pending(), agent.respond(answer=APPROVE), agent.detach()):
        with pytest.raises(HitlNoPendingRequest):
            await refused
    with pytest.raises(HitlStaleAnswer):
        await channel_of(agent).answer("c1", APPROVE)
    if rig.kind in STORED:
        stored = await rig.checkpointer.request("t", "c1")
        assert (stored.status, stored.reason) == ("aborted", "not today")
        assert [*(await rig.checkpointer.load("t")).messages] == [*agent.messages]
    assert (await agent.prompt("again")).status in ("completed", "failed"), "it goes on if asked to"


async def test_abort_pending_says_aborted_if_no_reason_is_given(rig: Rig, sender: Sender) -> None:
    agent = rig.agent(model=model(), tools=[sender.tool])
    task = await wait_for_person(rig, agent)
    await agent.abort_pending()
    assert (await task).reason == "aborted"


async def test_abort_pending_after_the_answer_is_too_late(rig: Rig, sender: Sender) -> None:
    agent = rig.agent(model=model(), tools=[sender.tool])
    await detached(rig, agent)
    await channel_of(agent).answer("c1", APPROVE)
    with pytest.raises((HitlStaleAnswer, HitlNoPendingRequest)):
        await agent.abort_pending()
    assert open_calls(agent.messages) == ["c1"]
    assert (await agent.resume()).status == "completed"
    assert sender.sent == [("ada", "hi")]


async def test_abort_pending_in_flight_after_the_answer_is_too_late(stored_rig: Rig, sender: Sender) -> None:
    """The answer is in the store, and the waiting run has not heard of it yet."""
    agent = stored_rig.agent(model=model(), tools=[sender.tool])
    task = await wait_for_person(stored_rig, agent)
    await stored_rig.checkpointer.settle("t", "c1", APPROVE)
    with pytest.raises(HitlStaleAnswer):
        await agent.abort_pending("too late")
    result = await task
    stored = (await stored_rig.checkpointer.load("t")).messages
    assert list(result.messages) == stored, "a result tells what is stored, not what was tried"
    if result.status == "suspended":
        assert open_calls(stored) == ["c1"]
        result = await agent.resume()
    assert result.status == "completed"
    assert sender.sent == [("ada", "hi")]


async def test_abort_pending_while_a_tool_runs_does_not_wait(rig: Rig) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        started.set()
        await release.wait()
        return "slow"

    agent = rig.agent(model=model(ToolCall("s1", "slow", {}), "done"), tools=[slow])
    task = rig.start(agent.prompt("go"))
    await started.wait()
    with pytest.raises(HitlNoPendingRequest):
        await agent.abort_pending()
    release.set()
    assert (await task).status == "completed"


async def test_abort_pending_while_another_worker_is_at_it(stored_rig: Rig) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        started.set()
        await release.wait()
        return "slow"

    busy = stored_rig.agent(model=model(ToolCall("s1", "slow", {}), "done"), tools=[slow])
    task = stored_rig.start(busy.prompt("go"))
    await started.wait()
    with pytest.raises(HitlNoPendingRequest):
        await stored_rig.agent(model=model(), tools=[slow]).abort_pending()
    release.set()
    assert (await task).status == "completed"


async def test_abort_while_a_person_is_asked(rig: Rig, sender: Sender) -> None:
    """`abort` stops the run wherever it is; here it also ends the request."""
    agent = rig.agent(model=model(), tools=[sender.tool])
    task = await wait_for_person(rig, agent)
    agent.abort()
    result = await task
    assert result.status == "aborted"
    assert_sound(result.messages)
    assert await agent.load_pending_hitl_request() is None
    with pytest.raises(HitlStaleAnswer):
        await channel_of(agent).answer("c1", APPROVE)
    assert sender.sent == []


async def test_abort_after_the_answer_leaves_the_answer(stored_rig: Rig, sender: Sender) -> None:
    agent = stored_rig.agent(model=model(), tools=[sender.tool])
    task = await wait_for_person(stored_rig, agent)
    await stored_rig.checkpointer.settle("t", "c1", APPROVE)
    agent.abort()
    result = await task
    assert list(result.messages) == (await stored_rig.checkpointer.load("t")).messages
    assert (await stored_rig.checkpointer.request("t", "c1")).status == "answered"
    assert result.status == "suspended"
    assert (await agent.resume()).status == "completed"


# A prompt while somebody is asked.


@pytest.mark.parametrize("where", ["in flight", "detached", "fresh"])
async def test_a_prompt_while_a_request_is_open_is_refused(rig: Rig, sender: Sender, where: str) -> None:
    agent = rig.agent(model=model(), tools=[sender.tool])
    task = await wait_for_person(rig, agent)
    if where != "in flight":
        await agent.detach()
        await task
    if where == "fresh":
        agent = rig.later(agent, model=model("x"), tools=[sender.tool])
    before = agent.messages
    with pytest.raises(HitlRequestPending) as refused:
        await agent.prompt("and another thing")
    assert (refused.value.thread_id, refused.value.question_id) == ("t", "c1")
    pending = await agent.load_pending_hitl_request()
    assert pending is not None
    assert pending.question_id == "c1"
    if where != "fresh":
        assert agent.messages == before


@pytest.mark.parametrize("where", ["in flight", "detached", "fresh"])
async def test_supersede_withdraws_the_request_and_goes_on(rig: Rig, sender: Sender, where: str) -> None:
    agent = rig.agent(model=model(CALL, "fine"), tools=[sender.tool])
    task = await wait_for_person(rig, agent)
    before = agent.messages
    if where != "in flight":
        await agent.detach()
        await task
    if where == "fresh":
        agent = rig.later(agent, model=model("fine"), tools=[sender.tool])
    result = await agent.prompt("never mind", on_pending="supersede")
    assert (result.status, result.text) == ("completed", "fine")
    if where == "in flight":
        assert (await task).status == "suspended"
    assert_sound(result.messages)
    assert list(result.messages[: len(before)]) == list(before)
    unrun = results(result.messages)["c1"]
    assert unrun.is_error
    assert unrun.details == {"synthetic": True, "hitl": {"decision": "superseded"}}
    assert [type(each) for each in result.messages[-3:-1]] == [type(unrun), UserMessage]
    assert sender.sent == []
    with pytest.raises(HitlStaleAnswer):
        await channel_of(agent).answer("c1", APPROVE)
    if rig.kind in STORED:
        assert (await rig.checkpointer.request("t", "c1")).status == "superseded"


async def test_superseding_elsewhere_lets_the_waiting_run_go(stored_rig: Rig, sender: Sender) -> None:
    first = stored_rig.agent(model=model(), tools=[sender.tool])
    task = await wait_for_person(stored_rig, first)
    second = stored_rig.agent(model=model("fine"), tools=[sender.tool])
    assert (await second.prompt("never mind", on_pending="supersede")).text == "fine"
    result = await task
    assert result.status == "suspended"
    assert sender.sent == []
    assert_sound(await first.load())


async def test_supersede_without_a_request_is_a_prompt(rig: Rig) -> None:
    result = await rig.agent(model=model("hello")).prompt("hi", on_pending="supersede")
    assert (result.status, result.text) == ("completed", "hello")


# Several calls in one message.


def both() -> list[ToolCall]:
    return [ToolCall("c1", "send", {"to": "ada"}), ToolCall("c2", "send", {"to": "bob"})]


async def test_calls_are_asked_one_after_another_before_any_runs(rig: Rig, sender: Sender) -> None:
    agent = rig.agent(model=model(both(), "done"), tools=[sender.tool])
    channel = channel_of(agent)
    subscription = channel.subscribe()
    task = rig.start(agent.prompt("go"))
    first = await anext(subscription)
    assert first.question_id == "c1"
    await channel.answer("c1", APPROVE)
    second = await anext(subscription)
    assert second.question_id == "c2"
    assert sender.sent == [], "no body starts before all are settled"
    await channel.answer("c2", {"decision": "deny", "reason": "not bob"})
    result = await task
    assert sender.sent == [("ada", "hi")]
    done = results(result.messages)
    assert [each.is_error for each in done.values()] == [False, True]
    assert list(done) == ["c1", "c2"]
    assert "not bob" in done["c2"].text
    assert done["c2"].details == {
        "hitl": {
            "decision": "human_deny",
            "reason": "not bob",
            "digest": call_digest("send", {"to": "bob", "text": "hi"}),
        }
    }


async def test_a_partly_answered_message_is_not_asked_twice(rig: Rig, sender: Sender) -> None:
    first = rig.agent(model=model(both(), "done"), tools=[sender.tool])
    channel = channel_of(first)
    subscription = channel.subscribe()
    task = rig.start(first.prompt("go"))
    await anext(subscription)
    await channel.answer("c1", APPROVE, by="ada")
    await anext(subscription)
    await first.detach()
    await task
    agent = rig.later(first, model=model("done"), tools=[sender.tool]) if rig.kind in STORED else first
    heard = listen(agent)
    result = await agent.respond(question_id="c2", answer=APPROVE, by="bob")
    assert result is not None
    assert sender.sent == [("ada", "hi"), ("bob", "hi")]
    assert not [event for event in heard if isinstance(event, HitlRequestEvent)]
    who = [each.details["hitl"]["answered_by"] for each in results(result.messages).values()]
    assert who == ["ada", "bob"]


# Edits.


@pytest.mark.parametrize("where", ["in flight", "fresh"])
async def test_the_model_is_told_what_ran_instead(rig: Rig, sender: Sender, where: str) -> None:
    agent = rig.agent(model=model(), tools=[sender.tool])
    edit = {"decision": "edit", "edited_args": {"to": "bob"}, "reason": "ada is away"}
    task = await wait_for_person(rig, agent)
    if where == "in flight":
        await agent.respond(answer=edit, by="eve")
        result = await task
    else:
        await agent.detach()
        await task
        agent = rig.later(agent, model=model("done"), tools=[sender.tool])
        result = await agent.respond(answer=edit, by="eve")
    assert result is not None
    assert sender.sent == [("bob", "hi")]
    done = results(result.messages)["c1"]
    assert "changed" in done.text
    assert '"to": "bob"' in done.text
    assert done.text.endswith("sent to bob")
    assert done.details == {
        "hitl": {
            "decision": "human_edit",
            "reason": "ada is away",
            "answered_by": "eve",
            "edited_args": {"to": "bob"},
            "digest": call_digest("send", {"to": "bob", "text": "hi"}),
        }
    }
    call = next(each for each in result.messages if isinstance(each, AssistantMessage)).tool_calls[0]
    assert call.args == {"to": "ada"}, "what the model asked for stays as it is"


# The other ways to end.


async def test_a_time_out_denies(rig: Rig, sender: Sender) -> None:
    agent = rig.agent(rig.channel(default_timeout=60.0), model=model(), tools=[sender.tool])
    heard = listen(agent)
    task = await wait_for_person(rig, agent)
    await rig.clock.advance(60)
    result = await task
    assert result.status == "completed"
    assert sender.sent == []
    done = results(result.messages)["c1"]
    assert done.is_error
    assert done.details == {"hitl": {"decision": "timed_out", "seconds": 60.0}}
    answering = heard[-1]
    assert isinstance(answering, HitlAnswerEvent)
    assert (answering.answer, answering.cancelled, answering.timed_out) == (None, False, True)


async def test_a_cancel_denies(rig: Rig, sender: Sender) -> None:
    agent = rig.agent(model=model(), tools=[sender.tool])
    heard = listen(agent)
    task = await wait_for_person(rig, agent)
    await channel_of(agent).cancel("c1", "closing time")
    result = await task
    assert sender.sent == []
    done = results(result.messages)["c1"]
    assert done.is_error
    assert "closing time" in done.text
    assert done.details == {"hitl": {"decision": "cancelled", "reason": "closing time"}}
    answering = heard[-1]
    assert isinstance(answering, HitlAnswerEvent)
    assert (answering.answer, answering.cancelled, answering.timed_out) == (None, True, False)


async def test_a_deadline_passes_while_nobody_waits(stored_rig: Rig, sender: Sender) -> None:
    channel = stored_rig.channel(default_timeout=60.0)
    await detached(stored_rig, stored_rig.agent(channel, model=model(), tools=[sender.tool]))
    await stored_rig.clock.advance(61)
    agent = stored_rig.agent(model=model("done"), tools=[sender.tool])
    with pytest.raises(HitlStaleAnswer):
        await agent.respond(question_id="c1", answer=APPROVE)
    result = await agent.resume()
    assert result.status == "completed"
    assert sender.sent == []
    assert results(result.messages)["c1"].details == {"hitl": {"decision": "timed_out", "seconds": 60.0}}


async def test_a_question_outside_of_any_call(rig: Rig) -> None:
    """A middleware may ask before the model is called; the answer comes like any other."""
    channel = rig.channel()

    class Careful(Middleware):
        async def before_model(self, ctx: ModelCallContext) -> None:
            assert await channel.confirm("May I?")

    agent = rig.agent(channel, model=model("yes"), middleware=[Careful()])
    task = await wait_for_person(rig, agent)
    await agent.respond(answer=True)
    result = await task
    assert (result.status, result.text) == ("completed", "yes")


# Who can be asked.


async def test_without_channel_or_store_a_call_that_needs_approval_pauses(sender: Sender) -> None:
    """It runs nothing; answered, it runs once."""
    agent = Agent(model=model(), tools=[sender.tool])
    heard = listen(agent, *HITL, ApprovalEvent, RunEndedEvent)
    paused = await agent.prompt("go")
    assert paused.status == "paused"
    assert sender.sent == []
    assert open_calls(paused.messages) == ["c1"]
    (pending,) = paused.pending_approvals
    assert (pending.id, pending.kind, pending.agent_path) == ("c1", "approve", ("agent",))
    assert pending.tool_call == ToolCall("c1", "send", SHOWN), "all that would run, defaults too"
    assert pending.digest == call_digest("send", SHOWN)
    assert paused.checkpoint is not None
    assert paused.checkpoint.pending == paused.pending_approvals
    assert not paused.checkpoint.stored
    request = await agent.load_pending_hitl_request()
    assert request is not None
    assert request.question_id == "c1"
    with pytest.raises(HitlRequestPending):
        await agent.prompt("hello?")
    assert [event.type for event in heard] == ["hitl_request", "approval", "run_ended"]
    result = await agent.respond(question_id="c1", answer=APPROVE, by="ada")
    assert result is not None
    assert (result.status, result.text) == ("completed", "done")
    assert sender.sent == [("ada", "hi")]
    assert list(result.messages[: len(paused.messages)]) == list(paused.messages)
    assert_sound(result.messages)
    assert results(result.messages)["c1"].details == {
        "hitl": {
            "decision": "human_approve",
            "digest": call_digest("send", SHOWN),
            "answered_by": "ada",
        }
    }
    resolved = [event for event in heard if isinstance(event, ApprovalEvent)][-1]
    assert (resolved.phase, resolved.decision, resolved.approval.id) == ("resolved", "approve", "c1")
    with pytest.raises(HitlNoPendingRequest):
        await agent.respond(question_id="c1", answer=APPROVE)
    with pytest.raises(InvalidCheckpoint):
        await agent.resume_with([ApprovalResponse(id="c1", decision="approve")])
    assert sender.sent == [("ada", "hi")]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Any]:
    async with open_rig("sqlite", tmp_path) as rig:
        yield rig.checkpointer


async def test_with_a_store_alone_all_requests_are_left_open(store: Any, sender: Sender) -> None:
    def agent(*turns: Any) -> Agent:
        return Agent(model=ScriptedModel(turns), tools=[sender.tool], checkpointer=store, thread_id="t")

    first = agent(both(), "done")
    heard = listen(first)
    result = await first.prompt("go")
    assert result.status == "paused"
    assert [each.id for each in result.pending_approvals] == ["c1", "c2"]
    assert result.checkpoint is not None
    assert result.checkpoint.stored
    assert open_calls(result.messages) == ["c1", "c2"]
    assert [each.question_id for each in await store.pending()] == ["c1", "c2"]
    assert [event.request.question_id for event in heard] == ["c1", "c2"]
    assert (await store.load("t")).lease_owner is None
    second = agent("done")
    waiting = await second.respond(question_id="c2", answer=APPROVE)
    assert waiting is not None
    assert waiting.status == "paused"
    assert [each.id for each in waiting.pending_approvals] == ["c1"]
    assert sender.sent == []
    with pytest.raises(HitlRequestPending):
        await second.prompt("hello?")
    with pytest.raises(HitlStaleAnswer):
        await second.respond(question_id="c2", answer=APPROVE)
    with pytest.raises(HitlStaleAnswer):
        await second.respond(question_id="c3", answer=APPROVE)
    with pytest.raises(HitlInvalidAnswer):
        await second.respond(question_id="c1", answer={"decision": "edit", "edited_args": {}})
    done = await agent("done").respond(answer={"decision": "deny"})
    assert done is not None
    assert done.status == "completed"
    assert sender.sent == [("bob", "hi")]
    assert_sound(done.messages)
    assert await store.pending() == []


async def test_requests_without_channel_can_be_aborted(store: Any, sender: Sender) -> None:
    agent = Agent(model=model(both(), "x"), tools=[sender.tool], checkpointer=store, thread_id="t")
    await agent.prompt("go")
    await agent.abort_pending("enough")
    assert_closed(agent.messages, "enough")
    assert await store.pending() == []
    assert sender.sent == []


async def test_an_in_memory_channel_beside_a_store(store: Any, sender: Sender) -> None:
    """The transcript is stored; what is asked is lost with the process, and answered through the channel."""
    agent = Agent(
        model=model(CALL, "done", CALL, "fine", CALL),
        tools=[sender.tool],
        channel=InMemoryChannel(),
        checkpointer=store,
        thread_id="t",
    )
    for end in ("respond", "supersede", "abort"):
        task = asyncio.create_task(agent.prompt("go"))
        request = await asked(channel_of(agent))
        assert await store.load_pending_request("t") is None
        await agent.detach()
        assert (await task).status == "suspended"
        assert await agent.load_pending_hitl_request() == request
        with pytest.raises(HitlRequestPending):
            await agent.prompt("hello?")
        if end == "respond":
            result = await agent.respond(question_id=request.question_id, answer=APPROVE)
            assert result is not None
            assert result.text == "done"
            assert sender.sent == [("ada", "hi")]
        elif end == "supersede":
            assert (await agent.prompt("no", on_pending="supersede")).text == "fine"
        else:
            await agent.abort_pending("enough")
        assert await agent.load_pending_hitl_request() is None
        assert_sound((await store.load("t")).messages)
    assert sender.sent == [("ada", "hi")]


async def test_ones_own_keeper_beside_a_store(store: Any, tmp_path: Path, sender: Sender) -> None:
    async with open_rig("own", tmp_path) as rig:
        agent = rig.agent(model=model(), tools=[sender.tool], checkpointer=store)
        await detached(rig, agent)
        result = await agent.respond(question_id="c1", answer=APPROVE)
        assert result is not None
        assert result.text == "done"
        assert rig.checkpointer.kept == {}


# When the store fails.


async def test_a_store_that_fails_leaves_no_hole_in_the_transcript(stored_rig: Rig) -> None:
    """Nobody may swallow the failure and go on: the next step would be written without this one."""
    channel = stored_rig.channel()
    ran: list[str] = []

    @tool
    async def after(context: ToolContext) -> str:
        ran.append(context.tool_call_id)
        return "ran"

    questions = {"questions": [{"key": "k", "prompt": "?"}]}
    turns = [[ToolCall("q1", "ask_user", questions), ToolCall("c2", "after", {})], "done"]
    agent = stored_rig.agent(channel, model=model(*turns), tools=[ask_user_tool(channel), after])
    commit = stored_rig.checkpointer.commit

    async def failing(thread_id: str, step: Any, **where: Any) -> int:
        if step.opened:
            raise StoreError("the database is gone")
        return await commit(thread_id, step, **where)

    stored_rig.checkpointer.commit = failing
    with pytest.raises(StoreError, match="gone"):
        await agent.prompt("go")
    stored_rig.checkpointer.commit = commit
    assert ran == []
    stored = (await stored_rig.checkpointer.load("t")).messages
    assert stored == [UserMessage("go")]
    assert await agent.load() == (UserMessage("go"),)


async def test_what_could_not_be_stored_is_not_remembered(stored_rig: Rig) -> None:
    agent = stored_rig.agent(model=model("hello"))
    commit = stored_rig.checkpointer.commit

    async def failing(*args: Any, **where: Any) -> int:
        raise StoreError("the database is gone")

    stored_rig.checkpointer.commit = failing
    with pytest.raises(StoreError):
        await agent.prompt("lost")
    stored_rig.checkpointer.commit = commit
    result = await agent.prompt("kept")
    assert [each.text for each in result.messages] == ["kept", "hello"]


async def test_a_scripted_person_in_a_whole_run(sender: Sender) -> None:
    channel = ScriptedChannel([APPROVE, {"decision": "deny"}])
    agent = Agent(model=model(both(), "done"), tools=[sender.tool], channel=channel)
    heard = listen(agent)
    result = await agent.prompt("go")
    assert result.status == "completed"
    assert sender.sent == [("ada", "hi")]
    assert [event.type for event in heard] == ["hitl_request", "hitl_answer"] * 2


# A fork.


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("has_channel", [True, False], ids=["channel", "no channel"])
async def test_an_answer_given_on_a_fork_counts_there(kind: str, has_channel: bool, tmp_path: Path) -> None:
    sent: list[str] = []

    @tool(requires_approval=True)
    def send(to: str) -> str:
        """Send."""
        sent.append(to)
        return "sent"

    async with open_rig(kind, tmp_path) as rig:
        store = rig.checkpointer
        await Agent(
            model=ScriptedModel([ToolCall("c1", "send", {"to": "ada"})]),
            tools=[send],
            checkpointer=store,
            thread_id="t",
        ).prompt("go")
        await store.fork("t", "fork")

        def agent(*turns: str) -> Agent:
            options: dict[str, Any] = {"checkpointer": store, "thread_id": "fork"}
            if has_channel:
                options = {"channel": CheckpointedChannel(checkpointer=store, thread_id="fork")}
            return Agent(model=ScriptedModel(turns), tools=[send], **options)

        first = agent()
        task = rig.start(first.resume())
        if first.channel is not None:
            await asked(first.channel)
            await first.detach()
        await task
        await store.settle("fork", "c1", APPROVE)
        assert (await agent("done").resume()).text == "done"
        assert sent == ["ada"]
        assert [each.thread_id for each in await store.pending()] == ["t"], "the thread's own waits still"


# A channel of one's own.


class Six:
    """A channel with what the first documents name, and nothing else; it says yes."""

    pending = None

    async def confirm(self, prompt: str, **_: Any) -> bool:
        return True

    async def approve(self, tool_name: str, tool_call_id: str, args: Any, **_: Any) -> ApproveAnswer:
        return ApproveAnswer(decision="approve")

    async def ask(self, questions: Any, **_: Any) -> dict[str, str]:
        return {"who": "Ann"}

    async def answer(self, question_id: str, answer: Any) -> None: ...

    async def cancel(self, question_id: str, reason: str = "cancelled") -> None: ...


async def test_a_channel_that_can_only_ask_serves_middleware_and_tools() -> None:
    channel: Any = Six()
    sent: list[str] = []

    @tool
    def send(to: str) -> str:
        """Send."""
        sent.append(to)
        return "sent"

    ask = ToolCall("c2", "ask_user", {"questions": [{"key": "who", "prompt": "Who?"}]})
    agent = Agent(
        model=ScriptedModel([ToolCall("c1", "send", {"to": "ada"}), ask, "done"]),
        tools=[send, ask_user_tool(channel)],
        middleware=[ConfirmToolCallMiddleware(channel, require_confirm={"send"})],
    )
    result = await agent.prompt("go")
    assert (result.text, sent) == ("done", ["ada"])
    assert results(result.messages)["c2"].details["hitl"]["answers"] == {"who": "Ann"}  # type: ignore[index, call-overload]


def test_six_members_are_enough_for_an_agents_own_channel_and_five_are_not() -> None:
    Agent(model=ScriptedModel([]), channel=Six())
    with pytest.raises(InvalidAgent, match="is not a channel"):
        Agent(model=ScriptedModel([]), channel=object())  # type: ignore[arg-type]
