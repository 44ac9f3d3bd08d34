"""Streaming an agent's text into a chat: a message that grows, within what the platform allows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from askfirst.agent.agent import Agent
from askfirst.chat.base import ChatPlace, ChatPlatform
from askfirst.clock import Clock
from askfirst.errors import DeliveryError
from askfirst.events import AgentEvent, MessageDeltaEvent
from askfirst.messages import AssistantMessage

logger = logging.getLogger("askfirst.chat")
_MOST_TRIES = 8
_FIRST_PAUSE = 1.0


@dataclass
class _Message:
    """One message of the agent: its text so far, and what stands in the chat of it (id and text of each part)."""

    text: str = ""
    posted: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


class TextStream:
    """Posts what an agent says while it says it: one message for each of its own, more where one is too long.

    The agent never waits for the chat: what it says is noted here, and posted by a task beside it.
    """

    def __init__(self, platform: ChatPlatform, place: ChatPlace, clock: Clock) -> None:
        self._platform = platform
        self._place = place
        self._clock = clock
        self._messages: list[_Message] = []
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def has_posted(self) -> bool:
        """Whether anything was posted."""
        return any(each.posted for each in self._messages)

    @asynccontextmanager
    async def of(self, agent: Agent) -> AsyncGenerator[None]:
        """Stream what an agent says within this context; at its end all of it is posted."""
        unsubscribe = agent.subscribe(self._hear)
        growing = asyncio.create_task(self._grow())
        try:
            yield
        finally:
            unsubscribe()
            async with self._writing:  # a post that is under way is not cut off, or it would be made twice
                growing.cancel()
            await asyncio.wait({growing})
            await self._finish()

    async def say(self, text: str) -> None:
        """Post a text of its own."""
        self._messages.append(_Message(text))
        await self._finish()

    def _hear(self, event: AgentEvent) -> None:
        if len(event.agent_path) > 1:
            return  # a subagent's words are for the agent that asked it
        if event.type == "message_started" and event.role == "assistant":
            self._messages.append(_Message())
        elif event.type == "message_delta" and self._messages:
            self._messages[-1].text = _grown(self._messages[-1].text, event)
        elif event.type == "message_ended" and isinstance(event.message, AssistantMessage) and self._messages:
            self._messages[-1].text = event.message.text
        else:
            return
        self._changed.set()

    async def _grow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
            except DeliveryError as error:  # made good by the next one, or at the end
                logger.info("what an agent says is posted later: %s", error)
                await self._clock.sleep(error.retry_after or _FIRST_PAUSE)
            await self._clock.sleep(self._platform.pause_seconds)

    async def _finish(self) -> None:
        """Post all that was said, however often it takes."""
        pause = _FIRST_PAUSE
        for attempt in range(_MOST_TRIES):
            try:
                await self._write()
            except DeliveryError as error:
                if error.permanent or attempt + 1 == _MOST_TRIES:
                    logger.error("what an agent said could not be posted: %s", error)
                    return
                await self._clock.sleep(error.retry_after or pause)
                pause *= 2
            else:
                return

    async def _write(self) -> None:
        """Bring the chat up to date."""
        async with self._writing:
            for message in self._messages:
                for number, part in enumerate(parts(message.text, self._platform.text_limit)):
                    await self._write_part(message, number, part)

    async def _write_part(self, message: _Message, number: int, part: str) -> None:
        if number >= len(message.posted):
            message.posted.append((await self._platform.post(self._place, part), part))
        elif message.posted[number][1] != part:
            message_id = message.posted[number][0]
            await self._platform.edit(self._place, message_id, part)
            message.posted[number] = (message_id, part)


def _grown(text: str, event: MessageDeltaEvent) -> str:
    if event.delta.type == "restart":
        return ""
    return text + event.delta.text if event.delta.type == "text" else text


def parts(text: str, limit: int) -> list[str]:
    """A text in parts of at most ``limit`` characters, parted at the ends of lines or words where there are any."""
    found: list[str] = []
    while len(text) > limit:
        at = max(text.rfind("\n", limit // 2, limit), text.rfind(" ", limit // 2, limit))
        at = limit if at < 0 else at
        found.append(text[:at])
        text = text[at:].lstrip("\n ") if at < limit else text[at:]
    return [each for each in (*found, text) if each.strip()]
