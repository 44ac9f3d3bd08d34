"""A run: one passage of the loop over a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Any

from assent.agent.emitter import Emitter
from assent.agent.fold import unresolved_calls, with_unique_calls
from assent.agent.spec import AgentSpec
from assent.events import Event, MessageDeltaEvent, MessageEndedEvent, MessageStartedEvent
from assent.messages import AssistantMessage, Delta, Message, TextDelta, ToolResultMessage


class Thread:
    """One conversation: its id and its transcript, which only ever grows at its end."""

    __slots__ = ("_call_ids", "messages", "thread_id")

    def __init__(self, thread_id: str, messages: Iterable[Message] = ()) -> None:
        self.thread_id = thread_id
        self.messages = list(messages)
        self._call_ids = {
            call.id
            for message in self.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
        }

    def add(self, message: Message) -> Message:
        """Append a message and return it as it stands in the transcript, its calls' ids made unique."""
        if isinstance(message, AssistantMessage) and (calls := message.tool_calls):
            message = with_unique_calls(message, self._call_ids)
            self._call_ids.update(call.id for call in calls)
            self._call_ids.update(call.id for call in message.tool_calls)
        self.messages.append(message)
        return message


@dataclass(slots=True, eq=False)
class Run:
    """What the loop works on: the thread, what the agent is made of, and who listens."""

    spec: AgentSpec
    thread: Thread
    emitter: Emitter
    run_id: str
    signal: asyncio.Event = field(default_factory=asyncio.Event)
    said: list[str] | None = None
    """The text of the message that the model is just saying; None between messages."""

    @property
    def messages(self) -> list[Message]:
        """The thread's transcript."""
        return self.thread.messages

    def emit(self, event_type: type[Event], **fields: Any) -> Awaitable[None]:
        """Tell the agent's listeners; to be awaited."""
        return self.emitter.emit(event_type, self.run_id, **fields)

    async def append(self, *messages: Message) -> None:
        """Put messages at the transcript's end, then tell the listeners."""
        added = [self.thread.add(message) for message in messages]
        for message in added:
            if self.said is None:
                await self.emit(MessageStartedEvent, role=message.role)
            self.said = None
            await self.emit(MessageEndedEvent, message=message)

    async def open_message(self) -> None:
        """The model begins to speak."""
        self.said = []
        await self.emit(MessageStartedEvent, role="assistant")

    async def hear(self, delta: Delta) -> None:
        """The model said a little more."""
        if self.said is not None:
            if isinstance(delta, TextDelta):
                self.said.append(delta.text)
            elif delta.type == "restart":
                self.said.clear()
        await self.emit(MessageDeltaEvent, delta=delta)

    async def resolve_open_calls(self, why: str) -> None:
        """Give every unresolved call a result, so that the transcript can be continued by any provider."""
        if calls := unresolved_calls(self.messages):
            await self.append(*(unrun(call.id, call.name, why) for call in calls))

    async def close(self) -> None:
        """End an aborted run: no call is left open, and the last word is what the model had said by then."""
        await self.resolve_open_calls("Not run: the run was aborted before this call started.")
        await self.append(AssistantMessage("".join(self.said or ()) or (), stop_reason="aborted"))


def unrun(tool_call_id: str, tool_name: str, why: str) -> ToolResultMessage:
    """The result of a call that did not run, or whose end nobody saw."""
    return ToolResultMessage(tool_call_id, tool_name, why, is_error=True, details={"synthetic": True})
