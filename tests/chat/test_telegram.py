"""Agents in Telegram chats."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2  # noqa: F401  (loaded before the event loop runs, as it reads files)
import pytest
from kit.stores import SHARED, databases
from kit.telegram_server import CHAT, STRANGER, TOKEN, USER, TelegramServer, telegram_server

from askfirst import AgentSpec, tool
from askfirst.chat import ChatToolset, Conversation, TelegramChat, serve_channels
from askfirst.chat.server import NOT_FOR_YOU
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.messages import Message, ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
database = databases(*SHARED)
RAN: list[str] = []


@tool(requires_approval=True)
async def refund(order: str) -> str:
    """Pay a customer back."""
    RAN.append(order)
    return f"paid {order}"


def say(messages: list[Message]) -> Any:
    last = messages[-1]
    if last.role == "tool":
        return f"Done: {last.text}"
    if "refund" in last.text:
        return ["On it.", ToolCall(f"c{len(messages)}", "refund", {"order": "A-1"})]
    return f"You said: {last.text}"


@asynccontextmanager
async def serving(telegram: TelegramServer, store: SqlCheckpointer, spec: Any) -> AsyncGenerator[None]:
    chat = TelegramChat(TOKEN, people={str(USER["id"]): "Ada"}, base_url=telegram.url)
    async with serve_channels({"support": spec}, store=store, telegram=chat):
        await telegram.until(lambda: telegram.polls)
        yield


@pytest.fixture
async def telegram() -> AsyncGenerator[TelegramServer]:
    RAN.clear()
    async with telegram_server() as server:
        yield server


def shop(conversation: Conversation) -> AgentSpec:
    return AgentSpec("support", ScriptedModel([say] * 9), [refund])


def card(telegram: TelegramServer) -> int | None:
    found = [each for each in telegram.messages if telegram.buttons(each)]
    return found[-1] if found else None


async def test_a_message_prompts_the_agent_and_a_button_decides_once(
    telegram: TelegramServer, checkpointer: SqlCheckpointer
) -> None:
    async with serving(telegram, checkpointer, shop):
        await telegram.say("refund, please")
        await telegram.until(lambda: card(telegram))
    async with serving(telegram, checkpointer, shop):  # another process, later
        ts = card(telegram)
        assert ts is not None
        stranger = await telegram.press(ts, "Approve", user=STRANGER)
        await telegram.told(stranger)
        assert RAN == []
        await asyncio.gather(*(telegram.press(ts, "Approve") for _ in range(10)))
        await telegram.until(lambda: "Done: paid A-1" in telegram.posted())
        await telegram.until(lambda: "It ran: paid A-1" in telegram.messages[ts]["text"])
        assert RAN == ["A-1"]
        await telegram.say("thanks")
        await telegram.until(lambda: "You said: thanks" in telegram.posted())


async def test_strangers_and_bots_prompt_nothing(
    telegram: TelegramServer, checkpointer: SqlCheckpointer
) -> None:
    async with serving(telegram, checkpointer, shop):
        await telegram.say("refund", user=STRANGER)
        await telegram.say("refund", user={**USER, "is_bot": True})
        await telegram.say("refund", sender_chat={"id": CHAT})
        await telegram.say("/pending", user=STRANGER)
        await telegram.until(lambda: len(telegram.posted()) == 2)
        assert telegram.posted() == [NOT_FOR_YOU] * 2
        await telegram.say("/pending")
        await telegram.until(lambda: len(telegram.posted()) == 3)
    assert telegram.posted()[-1] == "Nothing waits for a decision."


async def test_words_are_inert_and_long_ones_are_parted(
    telegram: TelegramServer, checkpointer: SqlCheckpointer
) -> None:
    text = "@everyone /start https://evil.example \u202e " + " ".join(f"word{n}" for n in range(1000))

    def spec(conversation: Conversation) -> AgentSpec:
        return AgentSpec("support", ScriptedModel([text]))

    async with serving(telegram, checkpointer, spec):
        await telegram.say("tell me")
        await telegram.until(lambda: "word999" in " ".join(telegram.posted()))
    messages = list(telegram.messages.values())
    assert len(messages) > 1
    for each in messages:
        [entity] = each["entities"]
        assert (entity["type"], entity["offset"]) == ("pre", 0)
        assert entity["length"] == len(each["text"].encode("utf-16-le")) // 2
    assert " ".join(telegram.posted()) == text.replace("\u202e", "<U+202E>")


async def test_chat_tools_post_react_and_upload(
    telegram: TelegramServer, checkpointer: SqlCheckpointer
) -> None:
    def spec(conversation: Conversation) -> AgentSpec:
        def script(messages: list[Message]) -> Any:
            results = [each.text for each in messages if each.role == "tool"]
            first = results[0] if results else ""
            calls = [
                ToolCall("c0", "post_message", {"text": "first"}),
                ToolCall("c1", "edit_message", {"message_id": first, "text": "second"}),
                ToolCall("c2", "add_reaction", {"message_id": first, "emoji": "👍"}),
                ToolCall("c3", "upload_file", {"name": "a.txt", "content": "abc"}),
            ]
            return calls[len(results)] if len(results) < len(calls) else "All done."

        tools = ChatToolset(conversation, require_approval=False).tools
        return AgentSpec("support", ScriptedModel([script] * 9), tools)

    async with serving(telegram, checkpointer, spec):
        await telegram.say("go")
        await telegram.until(lambda: "All done." in telegram.posted())
    assert "second" in telegram.posted()
    assert [emoji for _, emoji in telegram.reactions] == ["👍"]
    assert [each["document"] for each in telegram.messages.values() if "document" in each] == ["abc"]
