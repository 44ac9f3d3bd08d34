"""Streaming an agent's text into a chat: a message that is edited as it grows, within the platform's limits."""

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
    """One message of the agent: its text so far, and its posted parts (the id and text of each)."""

    text: str = ""
    posted: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


class TextStream:
    """Posts an agent's messages while they are streamed: one chat message for each, or several if it is too long.

    The agent never waits for the chat: its text is recorded here, and another task posts it.
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
    async def follow(self, agent: Agent) -> AsyncGenerator[None]:
        """Stream an agent's text within this context; at its end all of the text is posted."""
        unsubscribe = agent.subscribe(self._on_event)
        growing = asyncio.create_task(self._post_changes())
        try:
            yield
        finally:
            unsubscribe()
            async with self._writing:  # let a running post end: if it were cancelled, it would be repeated
                growing.cancel()
            await asyncio.wait({growing})
            await self._finish()

    async def say(self, text: str) -> None:
        """Post a text as a separate message."""
        self._messages.append(_Message(text))
        await self._finish()

    def _on_event(self, event: AgentEvent) -> None:
        if len(event.agent_path) > 1:
            return  # a subagent's text is for its caller, not for the chat
        if event.type == "message_started" and event.role == "assistant":
            self._messages.append(_Message())
        elif event.type == "message_delta" and self._messages:
            self._messages[-1].text = _extended(self._messages[-1].text, event)
        elif event.type == "message_ended" and isinstance(event.message, AssistantMessage) and self._messages:
            self._messages[-1].text = event.message.text
        else:
            return
        self._changed.set()

    async def _post_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
            except DeliveryError as error:  # the next edit, or the end of the text, posts what is missing
                logger.info("a part of an agent's text is posted later: %s", error)
                await self._clock.sleep(error.retry_after or _FIRST_PAUSE)
            await self._clock.sleep(self._platform.pause_seconds)

    async def _finish(self) -> None:
        """Post the whole text; a post that fails is retried with back-off, up to eight times in all."""
        pause = _FIRST_PAUSE
        for attempt in range(_MOST_TRIES):
            try:
                await self._write()
            except DeliveryError as error:
                if error.permanent or attempt + 1 == _MOST_TRIES:
                    logger.error("an agent's text could not be posted: %s", error)
                    return
                await self._clock.sleep(error.retry_after or pause)
                pause *= 2
            else:
                return

    async def _write(self) -> None:
        """Post new parts, and edit parts that have changed."""
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


def _extended(text: str, event: MessageDeltaEvent) -> str:
    """A message's text after a delta."""
    if event.delta.type == "restart":
        return ""
    return text + event.delta.text if event.delta.type == "text" else text


def parts(text: str, limit: int) -> list[str]:
    """A text in parts of at most ``limit`` characters, split at the ends of lines or words if possible."""
    found: list[str] = []
    while len(text) > limit:
        at = max(text.rfind("\n", limit // 2, limit), text.rfind(" ", limit // 2, limit))
        at = limit if at < 0 else at
        found.append(text[:at])
        text = text[at:].lstrip("\n ") if at < limit else text[at:]
    return [each for each in (*found, text) if each.strip()]
