"""Whatever happens to an agent, its transcript only grows, every call ends with one result, and providers accept it.

An agent is driven through random conversations: turns of text and of calls that work, raise, do not exist or are
malformed, models that fail, aborts and cancellations at any step of the event loop, and resumes. A call that a
cancellation cut short is in doubt: the run pauses there until a person decides, or a newer prompt supersedes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from kit.provider_servers import (
    AnthropicServer,
    OpenAIServer,
    anthropic_body,
    anthropic_complaints,
    anthropic_model,
    anthropic_reply,
    anthropic_text,
    openai_body,
    openai_complaints,
    openai_model,
    openai_reply,
    openai_text,
)
from kit.transcripts import assert_sound, open_calls

from askfirst import Agent, AgentEvent, ApprovalResponse, tool
from askfirst.errors import HitlRequestPending, ModelError
from askfirst.events import RunEndedEvent
from askfirst.messages import (
    AssistantMessage,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    UserMessage,
    decode,
    encode,
)
from askfirst.models import ModelRequest, ScriptedModel
from askfirst.requests import Decision

# The tools: one for each way in which a body can end.


@tool
async def add(a: int) -> int:
    await asyncio.sleep(0)
    return a + 1


@tool
async def broken() -> None:
    await asyncio.sleep(0)
    raise ValueError("broken as always")


@tool(execution_mode="sequential")
async def alone(a: int) -> str:
    for _ in range(3):
        await asyncio.sleep(0)
    return ""


@tool
async def stubborn() -> str:
    """A body that does not stop when it is cancelled."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return "done all the same"


@tool
def threaded() -> list[int]:
    return [1, 2]


TOOLS = [add, broken, alone, stubborn, threaded]


# The acts.


@dataclass(frozen=True)
class Fails:
    """A turn in which the model fails."""


@dataclass(frozen=True)
class Op:
    """One act on the agent. After ``steps`` steps of the event loop it is stopped, if ``stop`` says how."""

    kind: str
    stop: str | None = None
    steps: int = 0
    decision: Decision = "deny"
    """What an ``answer`` says of calls in doubt."""


IN_DOUBT = AssistantMessage([ToolCall("c1", "alone", {"a": 1}), ToolCall("c2", "alone", {"a": 2})])
LONG = "call_" + "x" * 35  # the longest that providers accept

ids = st.sampled_from(["c1", "c2", LONG, ""])
callable_parts = [
    ("add", {"a": 1}),
    ("add", {"a": "x"}),
    ("add", {}),
    ("alone", {"a": 1}),
    ("broken", {}),
    ("stubborn", {}),
    ("threaded", {}),
    ("nothing", {}),
]
call_parts = st.builds(
    lambda call_id, called: ToolCall(call_id, *called), ids, st.sampled_from(callable_parts)
) | ids.map(lambda call_id: ToolCall(call_id, "add", {}, malformed='{"a": '))
words = st.sampled_from(["Hello.", "I look. ", " ", ""]).map(TextPart)
thoughts = st.just(ThinkingPart("hm", signature="c2ln"))
spoken = st.lists(words | thoughts | call_parts, max_size=4).map(
    lambda parts: AssistantMessage(
        parts, stop_reason="tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end"
    )
)
cut = st.lists(words | call_parts, max_size=2).map(
    lambda parts: AssistantMessage(parts, stop_reason="length")
)
turns = st.lists(spoken | cut | st.just(Fails()), max_size=10)
ops = st.lists(
    st.builds(
        Op,
        kind=st.sampled_from(["prompt", "resume", "stream", "answer", "supersede"]),
        stop=st.sampled_from([None, None, "abort", "cancel", "abort and cancel", "abort twice"]),
        steps=st.integers(0, 25),
        decision=st.sampled_from(["approve", "deny"]),
    ),
    min_size=1,
    max_size=6,
)


def _turn(said: AssistantMessage | Fails) -> Any:
    async def turn(messages: list[Message]) -> AssistantMessage:
        await asyncio.sleep(0)
        if isinstance(said, Fails):
            raise ModelError("no luck")
        return said

    return turn


@dataclass
class Driver:
    """Runs acts on an agent, and checks its transcript."""

    agent: Agent
    seen: tuple[Message, ...] = ()
    ended: RunEndedEvent | None = None
    """How the last run ended."""

    def __post_init__(self) -> None:
        self.agent.subscribe(self._hear)

    def _hear(self, event: AgentEvent) -> None:
        if isinstance(event, RunEndedEvent):
            self.ended = event

    def look(self) -> None:
        now = self.agent.messages
        assert now[: len(self.seen)] == self.seen, "the transcript changed in its past"
        self.seen = now

    async def do(self, op: Op) -> None:
        """Run an act, and check the transcript after it."""
        before, asked = self.seen, await self.agent.load_pending_hitl_request()
        task = asyncio.create_task(self._run(op))
        for _ in range(op.steps):
            if task.done():
                break
            await asyncio.sleep(0)
            self.look()
        if op.stop is not None and "abort" in op.stop:
            self.agent.abort()
        if op.stop == "abort twice":
            self.agent.abort()
        if op.stop is not None and "cancel" in op.stop:
            task.cancel()
        await asyncio.wait([task])
        self.look()
        if task.cancelled():
            return
        if asked is not None and op.kind in ("prompt", "stream"):
            assert isinstance(task.exception(), HitlRequestPending), "it went on without the person"
            assert self.seen == before
            return
        assert task.exception() is None
        await self._check_rest(before)

    async def _check_rest(self, before: Sequence[Message]) -> None:
        assert not isinstance(self.seen[-1] if self.seen else None, UserMessage), "nobody answered"
        asked = await self.agent.load_pending_hitl_request()
        assert self.ended is not None
        assert (self.ended.status == "paused") == (asked is not None)
        if asked is None:
            assert_sound(self.seen)
        else:
            assert asked.payload.kind == "escalate", "nothing else needs a person here"
            assert asked.payload.details["tool_call_id"] in open_calls(self.seen)
            assert set(open_calls(before)) >= set(open_calls(self.seen)), "a new call is in no doubt"

    async def _run(self, op: Op) -> None:
        match op.kind:
            case "prompt":
                await self.agent.prompt("go on")
            case "supersede":
                await self.agent.prompt("go on", on_pending="supersede")
            case "resume":
                await self.agent.resume()
            case "answer":
                pending = (await self.agent.resume()).pending_approvals
                said = [ApprovalResponse(id=each.id, decision=op.decision) for each in pending]
                await self.agent.resume_with(said)
            case _:
                async for _ in self.agent.stream("go on", abort_on_leave=True):
                    self.look()


async def drive(script: Sequence[AssistantMessage | Fails], todo: Sequence[Op]) -> tuple[Message, ...]:
    """Run all acts, end with a prompt that is not stopped, and return the transcript."""
    model = ScriptedModel([_turn(said) for said in script])
    driver = Driver(Agent(model=model, tools=TOOLS, max_iterations=4))
    for op in todo:
        await driver.do(op)
    await driver.do(Op("supersede"))
    assert_sound(driver.seen)
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        assert after[: len(before)] == before, "a request is no extension of the one before"
    return driver.seen


def request(messages: Sequence[Message]) -> ModelRequest:
    return ModelRequest(
        (*messages, UserMessage("and now?")), "Be brief.", tuple(each.schema for each in TOOLS)
    )


async def complaints(messages: Sequence[Message]) -> list[str]:
    """What either provider would refuse in this transcript, after one more message of a person."""
    asked = request(messages)
    return [
        *openai_complaints(await openai_body(asked)),
        *anthropic_complaints(await anthropic_body(asked)),
    ]


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns, ops)
@example([AssistantMessage([ToolCall("c1", "add", {"a": 1})] * 3)] * 2, [Op("prompt", "abort", 4)])
@example(
    [AssistantMessage([ToolCall("c1", "stubborn", {}), ToolCall("c2", "alone", {"a": 1})])],
    [Op("prompt", "abort", 6)],
)
@example([Fails(), Fails()], [Op("prompt"), Op("resume"), Op("resume")])
@example([AssistantMessage(ToolCall(LONG, "add", {"a": 1}))] * 3, [Op("prompt"), Op("prompt")])
@example([IN_DOUBT], [Op("prompt", "cancel", 4), Op("resume"), Op("prompt"), Op("stream")])
@example([IN_DOUBT], [Op("prompt", "cancel", 4), Op("answer", decision="deny")])
@example([IN_DOUBT], [Op("prompt", "cancel", 4), Op("answer", decision="approve"), Op("resume")])
@example([IN_DOUBT], [Op("prompt", "cancel", 4), Op("answer", "cancel", 4, "approve"), Op("answer")])
def test_any_conversation_leaves_a_sound_transcript(
    script: list[AssistantMessage | Fails], todo: list[Op]
) -> None:
    messages = asyncio.run(drive(script, todo))
    assert open_calls(messages) == []
    assert tuple(decode(encode(message)) for message in messages) == messages


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(["alone", "add"]), min_size=1, max_size=3),
    st.integers(1, 8),
    turns,
    ops,
)
def test_a_conversation_that_begins_in_doubt(
    names: list[str], steps: int, script: list[AssistantMessage | Fails], todo: list[Op]
) -> None:
    """Like the test before, but it begins where that one rarely gets: with bodies that were cut short."""
    begun = AssistantMessage([ToolCall(f"d{n}", name, {"a": n}) for n, name in enumerate(names)])
    messages = asyncio.run(drive([begun, *script], [Op("prompt", "cancel", steps), *todo]))
    assert open_calls(messages) == []


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)
@given(turns, ops)
@example([AssistantMessage(ToolCall(LONG, "add", {"a": 1}))] * 3, [Op("prompt"), Op("prompt")])
@example([AssistantMessage([TextPart(" "), ToolCall("", "nothing", {})])], [Op("prompt", "abort", 5)])
def test_both_providers_accept_any_conversation(
    script: list[AssistantMessage | Fails], todo: list[Op]
) -> None:
    """The transcript goes through pydantic-ai and the real SDKs, to the body that would be sent."""

    async def main() -> list[str]:
        return await complaints(await drive(script, todo))

    assert asyncio.run(main()) == []


# Also over a real connection, to servers that refuse what the providers would refuse.

ROUGH: list[AssistantMessage | Fails] = [
    AssistantMessage(
        [
            ThinkingPart("hm", signature="c2ln"),
            TextPart("I look. "),
            ToolCall("c1", "add", {"a": 1}),
            ToolCall("c1", "add", {"a": "x"}),
            ToolCall("c2", "nothing", {}),
            ToolCall("c3", "add", {}, malformed='{"a": '),
            ToolCall("c4", "broken", {}),
            ToolCall("c5", "alone", {"a": 1}),
        ],
        stop_reason="tool_use",
    ),
    Fails(),
    AssistantMessage(ToolCall("c1", "stubborn", {}), stop_reason="tool_use"),
    AssistantMessage(()),
]
ROUGH_OPS = [Op("prompt"), Op("resume", "abort", 3), Op("prompt", "cancel", 5), Op("prompt", "abort", 2)]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.anyio
async def test_a_rough_conversation_goes_on_with_a_real_provider(provider: str) -> None:
    messages = await drive(ROUGH, ROUGH_OPS)
    if provider == "openai":
        server, model_of = OpenAIServer(openai_reply(openai_text("Fine."))), openai_model
    else:
        server, model_of = AnthropicServer(anthropic_reply(anthropic_text("Fine."))), anthropic_model
    async with server:
        agent = Agent(model=model_of(server), tools=TOOLS, messages=messages)
        result = await agent.prompt("and now?")
    assert (result.status, result.text, result.reason) == ("completed", "Fine.", None)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("call_id", "name"),
    [
        ("c1", "functions.add"),
        ("c1", "a b"),
        ("c1", ""),
        ("c1", "x" * 70),
        ("call:1/x", "add"),
        ("c" * 60, "add"),
    ],
)
@pytest.mark.anyio
async def test_both_providers_accept_what_a_model_made_up(call_id: str, name: str) -> None:
    """A model calls a tool that does not exist, with an invalid name: it is told so, and the next request is valid.
    So is a request with ids that another provider made."""
    messages = await drive([AssistantMessage(ToolCall(call_id, name, {"a": 1}))], [Op("prompt")])
    assert await complaints(messages) == []
