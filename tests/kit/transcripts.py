"""What the tests of the agent share: reading transcripts, checking them, and tools that wait until released."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from askfirst import Agent, AgentResult, Tool, tool
from askfirst.messages import AssistantMessage, Message, ToolCall, ToolResultMessage


def results(messages: Sequence[Message]) -> dict[str, ToolResultMessage]:
    """The tool results by call id, in the transcript's order; each call has at most one."""
    found = [message for message in messages if isinstance(message, ToolResultMessage)]
    by_id = {message.tool_call_id: message for message in found}
    assert len(by_id) == len(found), "a call has two results"
    return by_id


def texts(messages: Sequence[Message]) -> list[str]:
    """The texts of the tool results, in order."""
    return [message.text for message in results(messages).values()]


def open_calls(messages: Sequence[Message]) -> list[str]:
    """The ids of the calls without a result."""
    said = [message for message in messages if isinstance(message, AssistantMessage)]
    asked = [call.id for message in said for call in message.tool_calls]
    assert len(set(asked)) == len(asked), "two calls share an id"
    resolved = results(messages)
    assert set(resolved) <= set(asked), "a result without a call"
    return [call_id for call_id in asked if call_id not in resolved]


def assert_sound(messages: Sequence[Message]) -> None:
    """Assert that a transcript at rest is sound: every call has exactly one result, before the next message."""
    assert open_calls(messages) == []
    waiting: set[str] = set()
    for message in messages:
        if isinstance(message, ToolResultMessage):
            waiting.discard(message.tool_call_id)
        else:
            assert not waiting, f"{waiting} have no result when the conversation goes on"
            asked = message.tool_calls if isinstance(message, AssistantMessage) else []
            waiting = {call.id for call in asked}


def calls(*names: str) -> list[ToolCall]:
    """A call of each tool, without arguments, numbered from c1."""
    return [ToolCall(f"c{number}", name, {}) for number, name in enumerate(names, 1)]


class Held:
    """A tool whose body starts, sets an event, and waits until it is released or cancelled."""

    def __init__(self, name: str = "held", **options: str) -> None:
        self.started, self.release, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.tool: Tool = tool(name=name, **options)(self._body)  # pyright: ignore[reportArgumentType, reportCallIssue]

    async def _body(self) -> str:
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return f"{self.tool.name} done"


async def stopped(
    agent: Agent, ready: Awaitable[Any], *, twice: bool = False, text: str = "go"
) -> AgentResult:
    """Prompt an agent, wait until a condition holds, and abort the run."""
    run = asyncio.create_task(agent.prompt(text))
    await ready
    agent.abort()
    if twice:
        agent.abort()
    return await run
