"""Events: what listeners hear, in which order, and how events are written."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from kit.transcripts import Held, calls, texts

from askfirst import Agent, AgentEvent, ToolContext, tool
from askfirst.errors import ModelError
from askfirst.events import (
    Event,
    MessageDeltaEvent,
    MessageEndedEvent,
    MessageStartedEvent,
    RunEndedEvent,
    RunStartedEvent,
    ToolEndedEvent,
    ToolProgressEvent,
    ToolStartedEvent,
    TurnEndedEvent,
    TurnStartedEvent,
    decode_event,
    encode_event,
)
from askfirst.messages import (
    AssistantMessage,
    ImagePart,
    RestartDelta,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

HEAD: dict[str, Any] = {"thread_id": "t", "run_id": "r", "seq": 7, "at": 1_700_000_000_000}


def recording(agent: Agent) -> list[AgentEvent]:
    heard: list[AgentEvent] = []
    agent.subscribe(heard.append)
    return heard


# As JSON.


@pytest.mark.parametrize(
    "event",
    [
        RunStartedEvent(**HEAD, agent_id="a", resumed=True),
        RunEndedEvent(**HEAD, status="failed", text="ü", reason="why", usage=Usage(input_tokens=3)),
        RunEndedEvent(**HEAD, status="completed"),
        TurnStartedEvent(**HEAD),
        TurnEndedEvent(**HEAD),
        *(MessageStartedEvent(**HEAD, role=role) for role in ("user", "assistant", "tool")),
        MessageDeltaEvent(**HEAD, delta=TextDelta(text="hi")),
        MessageDeltaEvent(**HEAD, delta=ThinkingDelta(text="hm")),
        MessageDeltaEvent(**HEAD, delta=ToolCallDelta(id="c", name="n", args='{"a')),
        MessageDeltaEvent(**HEAD, delta=RestartDelta(reason="broken")),
        MessageEndedEvent(**HEAD, message=UserMessage([ImagePart(media_type="image/png", data=b"\xff")])),
        MessageEndedEvent(**HEAD, message=AssistantMessage(ToolCall("c", "n", {"a": [2**70, None]}))),
        MessageEndedEvent(**HEAD, message=ToolResultMessage("c", "n", "x", details={"a": {"b": 1.5}})),
        ToolStartedEvent(**HEAD, tool_call_id="c", tool_name="n", args={"a": [1, None]}),
        ToolProgressEvent(**HEAD, tool_call_id="c", tool_name="n", fraction=0.5, text="half"),
        ToolProgressEvent(**HEAD, tool_call_id="c", tool_name="n"),
        ToolEndedEvent(**HEAD, tool_call_id="c", tool_name="n", is_error=True),
    ],
    ids=lambda event: event.type,
)
def test_round_trip(event: AgentEvent) -> None:
    written = encode_event(event)
    assert decode_event(written) == event
    assert encode_event(decode_event(written)) == written
    fields = json.loads(written)
    assert {name: fields[name] for name in HEAD} == HEAD
    assert fields["type"] == event.type
    with pytest.raises(ValueError, match="frozen"):
        event.seq = 8


def test_a_newer_versions_field_survives() -> None:
    written = '{"thread_id":"t","run_id":"r","seq":7,"at":1,"type":"turn_started","mood":null}'
    assert '"mood":null' in encode_event(decode_event(written))


# Order.


async def test_the_events_of_a_run() -> None:
    @tool
    async def work(n: int, ctx: ToolContext) -> str:
        ctx.report(0.5, "half")
        return "worked"

    script = [["Hm ", ToolCall("c1", "work", {"n": 1}), ToolCall("c2", "none", {})], "Done."]
    agent = Agent(model=ScriptedModel(script), tools=[work], id="helper", thread_id="t1")
    heard = recording(agent)
    before = time.time()
    result = await agent.prompt("go")
    after = time.time()
    kinds = [event.type for event in heard]
    assert (
        kinds
        == [
            "run_started",
            *("message_started", "message_ended"),  # the person's
            "turn_started",
            *("message_started", *["message_delta"] * 5, "message_ended"),
            *("tool_started", "tool_progress", "tool_ended", "tool_ended"),
            *("message_started", "message_ended") * 2,
            "turn_ended",
            "turn_started",
            *("message_started", "message_delta", "message_ended"),
            "turn_ended",
            "run_ended",
        ]
        or kinds.count("tool_ended") == 2
    )
    assert [event.seq for event in heard] == list(range(len(heard)))
    assert {event.thread_id for event in heard} == {"t1"}
    assert {event.run_id for event in heard} == {result.run_id}
    assert all(before <= event.at <= after for event in heard)
    started, ended = heard[0], heard[-1]
    assert isinstance(started, RunStartedEvent)
    assert (started.agent_id, started.resumed) == ("helper", False)
    assert isinstance(ended, RunEndedEvent)
    assert (ended.status, ended.text) == ("completed", "Done.")
    in_transcript = tuple(event.message for event in heard if isinstance(event, MessageEndedEvent))
    assert in_transcript == result.messages
    tools = [event for event in heard if isinstance(event, ToolEndedEvent)]
    assert {(event.tool_call_id, event.is_error) for event in tools} == {("c1", False), ("c2", True)}
    assert [event.args for event in heard if isinstance(event, ToolStartedEvent)] == [{"n": 1}]


async def test_a_single_tool_reads_started_progress_ended() -> None:
    @tool
    async def work(ctx: ToolContext) -> None:
        ctx.report(0.5)

    agent = Agent(model=ScriptedModel([calls("work"), "done"]), tools=[work])
    heard = recording(agent)
    await agent.prompt("go")
    kinds = [event.type for event in heard]
    at = kinds.index("tool_started")
    assert kinds[at : at + 6] == [
        "tool_started",
        "tool_progress",
        "tool_ended",
        "message_started",
        "message_ended",
        "turn_ended",
    ]


async def test_a_message_is_in_the_transcript_when_it_is_told() -> None:
    agent = Agent(model=ScriptedModel([calls("x"), "done"]))
    seen: list[bool] = []
    agent.subscribe(
        lambda event: (
            seen.append(event.message in agent.messages) if isinstance(event, MessageEndedEvent) else None
        )
    )
    await agent.prompt("go")
    assert seen == [True] * 4


async def test_seq_goes_on_from_run_to_run() -> None:
    agent = Agent(model=ScriptedModel(["one", "two"]))
    heard = recording(agent)
    await agent.prompt("a")
    await agent.prompt("b")
    await agent.resume()
    assert [event.seq for event in heard] == list(range(len(heard)))
    assert len({event.run_id for event in heard}) == 2
    starts = [event.resumed for event in heard if isinstance(event, RunStartedEvent)]
    assert starts == [False, False, True]


async def test_a_failed_run_says_why() -> None:
    def fail(messages: Any) -> str:
        raise ModelError("overloaded")

    agent = Agent(model=ScriptedModel([fail]))
    heard = recording(agent)
    await agent.prompt("go")
    ended = heard[-1]
    assert isinstance(ended, RunEndedEvent)
    assert (ended.status, ended.reason) == ("failed", "overloaded")
    kinds = [event.type for event in heard]
    assert kinds.count("message_started") == kinds.count("message_ended") == 2


async def test_parallel_tools_keep_one_sequence() -> None:
    first, second = Held("first"), Held("second")
    agent = Agent(model=ScriptedModel([calls("first", "second"), "x"]), tools=[first.tool, second.tool])
    heard = recording(agent)
    run = asyncio.create_task(agent.prompt("go"))
    await asyncio.gather(first.started.wait(), second.started.wait())
    second.release.set()
    while not [event for event in heard if isinstance(event, ToolEndedEvent)]:  # noqa: ASYNC110
        await asyncio.sleep(0)
    first.release.set()
    await run
    ended = [event.tool_name for event in heard if isinstance(event, ToolEndedEvent)]
    assert ended == ["second", "first"]  # as it happened; the transcript has them in call order
    assert texts(agent.messages) == ["first done", "second done"]
    assert [event.seq for event in heard] == list(range(len(heard)))


# Listeners.


async def test_sync_and_async_listeners_hear_everything_in_order() -> None:
    heard: dict[str, list[int]] = {"sync": [], "async": [], "object": []}

    def sync(event: AgentEvent) -> None:
        heard["sync"].append(event.seq)

    async def slow(event: AgentEvent) -> None:
        await asyncio.sleep(0)
        heard["async"].append(event.seq)

    class Listener:
        async def __call__(self, event: AgentEvent) -> None:
            heard["object"].append(event.seq)

    agent = Agent(model=ScriptedModel([calls("x"), "done"]))
    for listener in (sync, slow, Listener()):
        agent.subscribe(listener)
    await agent.prompt("go")
    assert heard["sync"] == heard["async"] == heard["object"] == list(range(len(heard["sync"])))


async def test_the_agent_waits_for_async_listeners() -> None:
    gate, asked = asyncio.Event(), asyncio.Event()

    async def slow(event: AgentEvent) -> None:
        if isinstance(event, RunStartedEvent):
            asked.set()
            await gate.wait()

    model = ScriptedModel(["ok"])
    agent = Agent(model=model)
    agent.subscribe(slow)
    run = asyncio.create_task(agent.prompt("go"))
    await asked.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    assert model.requests == []
    gate.set()
    assert (await run).text == "ok"


async def _raise_later(event: AgentEvent) -> None:
    await asyncio.sleep(0)
    raise ValueError("mine")


def _raise(event: AgentEvent) -> None:
    raise ValueError("mine")


async def _lose_a_task(event: AgentEvent) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("listener", [_raise, _raise_later, _lose_a_task])
@pytest.mark.parametrize("others", [0, 1])
async def test_a_raising_listener_harms_nobody(
    listener: Callable[[AgentEvent], Any], others: int, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        ctx.report(0.5)
        return "worked"

    async def good(event: AgentEvent) -> None:
        heard.append(event)

    heard: list[AgentEvent] = []
    agent = Agent(model=ScriptedModel([calls("work"), "done"]), tools=[work])
    agent.subscribe(listener)
    for _ in range(others):
        agent.subscribe(good)
    result = await agent.prompt("go")
    assert (result.status, texts(result.messages)) == ("completed", ["worked"])
    assert [event.seq for event in heard] == list(range(len(heard)))
    assert len(heard) == others * len(
        [record for record in caplog.records if "a listener raised" in record.message]
    )
    assert "a listener raised on run_started (seq 0)" in caplog.text
    assert caplog.records[0].exc_info is not None


async def test_unsubscribe() -> None:
    agent = Agent(model=ScriptedModel(["one", "two"]))
    heard: list[AgentEvent] = []
    unsubscribe = agent.subscribe(heard.append)
    await agent.prompt("a")
    count = len(heard)
    assert count
    unsubscribe()
    unsubscribe()  # once is enough, twice does no harm
    await agent.prompt("b")
    assert len(heard) == count


async def test_the_same_listener_twice() -> None:
    agent = Agent(model=ScriptedModel(["one", "two"]))
    heard: list[AgentEvent] = []
    first, second = agent.subscribe(heard.append), agent.subscribe(heard.append)
    await agent.prompt("a")
    assert [event.seq for event in heard[:4]] == [0, 0, 1, 1]
    first()
    heard.clear()
    await agent.prompt("b")
    seqs = [event.seq for event in heard]
    assert len(set(seqs)) == len(seqs)
    assert seqs
    second()


async def test_unsubscribing_while_being_told() -> None:
    agent = Agent(model=ScriptedModel(["one"]))
    once: list[AgentEvent] = []
    rest: list[AgentEvent] = []

    def listener(event: AgentEvent) -> None:
        once.append(event)
        stop()

    stop = agent.subscribe(listener)
    agent.subscribe(rest.append)
    await agent.prompt("go")
    assert len(once) == 1
    assert [event.seq for event in rest] == list(range(len(rest)))


async def test_a_late_listener_misses_what_was_before() -> None:
    agent = Agent(model=ScriptedModel(["one"]))
    late: list[AgentEvent] = []

    def early(event: AgentEvent) -> None:
        if event.type == "turn_started":
            agent.subscribe(late.append)

    agent.subscribe(early)
    await agent.prompt("go")
    assert late[0].type == "message_started"


def test_every_event_is_documented_and_has_a_type_of_its_own() -> None:
    kinds = [each for each in Event.__subclasses__() if each.__module__ == "askfirst.events"]
    names = [each.model_fields["type"].default for each in kinds]
    assert len(set(names)) == len(names) >= 10
    assert all(each.__doc__ for each in kinds)
