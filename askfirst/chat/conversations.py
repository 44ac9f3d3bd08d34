"""The conversations of a store: found, kept, and the agent of each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from askfirst.agent.agent import Agent
from askfirst.agent.spec import AgentSpec
from askfirst.chat.base import ChatPlace, ChatPlatform, Conversation
from askfirst.checkpointer.sql import SqlCheckpointer

AGENT_ID = "askfirst.chat"
RESUMER = "askfirst.chat"

MakeSpec = Callable[[Conversation], AgentSpec]
Registry = Mapping[str, AgentSpec | MakeSpec]
"""Agents by name: a spec, or a function that returns one for a conversation (for `ChatToolset`)."""


class Conversations:
    """The conversations of an open store. One conversation is one thread."""

    def __init__(
        self, registry: Registry, store: SqlCheckpointer, platforms: Mapping[str, ChatPlatform]
    ) -> None:
        self._registry = registry
        self._store = store
        self._platforms = platforms

    def addressed(self, text: str) -> tuple[str, str]:
        """The name of the agent that a message is for, and the message without that name."""
        first, colon, rest = text.partition(":")
        if colon and first.strip() in self._registry:
            return first.strip(), rest.strip()
        return next(iter(self._registry)), text

    def agent_of(self, conversation: Conversation) -> Agent:
        """The agent of a conversation, on its thread."""
        spec = self._registry[conversation.agent]
        return Agent.from_spec(
            spec if isinstance(spec, AgentSpec) else spec(conversation),
            principal=conversation.principal,
            checkpointer=self._store,
            thread_id=conversation.thread_id,
            resumer=RESUMER,
        )

    async def keep(self, conversation: Conversation) -> None:
        """Store a conversation: its place, its agent, and on whose behalf the agent works now."""
        await self._store.save_checkpoint(
            _id(conversation.thread_id), AGENT_ID, conversation.stored(), thread_id=conversation.thread_id
        )

    async def find(self, thread_id: str) -> Conversation | None:
        """The conversation of a thread; None if there is none."""
        kept = await self._store.get_checkpoint(_id(thread_id), AGENT_ID)
        return None if kept is None else self.read(thread_id, kept.body)

    def read(self, thread_id: str, body: Any) -> Conversation:
        """A conversation from what its `Conversation.stored` returned."""
        place = ChatPlace(**body["place"])
        platform = self._platforms[place.platform]
        return Conversation(thread_id, body["agent"], place, body["principal"], platform, body["told"])


def thread_id_of(place: ChatPlace, agent: str) -> str:
    """The thread id of a conversation, derived from its place and agent: the same in every process."""
    return f"chat-{hashlib.sha256(f'{place.key}{chr(0)}{agent}'.encode()).hexdigest()[:32]}"


def _id(thread_id: str) -> str:
    return f"conversation-{thread_id}"
