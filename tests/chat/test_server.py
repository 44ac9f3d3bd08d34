"""Agents in Slack threads: messages, streams, cards, presses, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.stores import SHARED, databases

from askfirst import AgentSpec, tool
from askfirst.chat import ChatToolset, Conversation, SlackChat, serve_channels
from askfirst.chat.server import NOT_FOR_YOU, NOTHING, STOPPED, Chats
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import ChatError
from askfirst.messages import Message, ToolCall
from askfirst.models import ScriptedModel
from examples.local_slack import (
    ADA,
    APP_TOKEN,
    BEN,
    BOT_TOKEN,
    CHANNEL,
    GUEST,
    STRANGER,
    TEAM,
    LocalSlack,
    People,
    Refusal,
    local_slack,
)

pytestmark = pytest.mark.anyio
database = databases(*SHARED)
PEOPLE = {f"{TEAM}:{ADA.id}": "Ada <ada@example.com>"}


class Shop:
    """An agent with one tool that needs approval, and what came of it."""

    def __init__(self) -> None:
        self.refunds: list[str] = []
        self.prompts: list[str] = []
        self.principals: list[str] = []
        self.go = asyncio.Event()
        self.go.set()
        self.begun = asyncio.Event()

    def spec(self, conversation: Conversation) -> AgentSpec:
        self.principals.append(conversation.principal)

        @tool(requires_approval=True)
        async def refund(order: str, cents: int) -> str:
            """Pay a customer back."""
            self.refunds.append(order)
            return f"{cents / 100:.2f} EUR were sent."

        return AgentSpec("support", ScriptedModel([self.say] * 20), [refund])

    async def say(self, messages: list[Message]) -> Any:
        last = messages[-1]
        if last.role == "tool":
            return f"Done. {last.text}"
        self.prompts.append(last.text)
        self.begun.set()
        await self.go.wait()
        if "refund" in last.text:
            return ["On it.", ToolCall(f"call_{len(messages)}", "refund", {"order": "A-1042", "cents": 4900})]
        return f"You said: {last.text}"


@asynccontextmanager
async def serving(
    slack: LocalSlack, store: SqlCheckpointer | str, registry: Any, **options: Any
) -> AsyncGenerator[Any]:
    chat = SlackChat(BOT_TOKEN, app_token=APP_TOKEN, base_url=slack.url, **{"people": PEOPLE, **options})
    async with serve_channels(registry, store=store, slack=chat) as server:
        await slack.until(lambda: slack.sockets, PATIENCE)
        yield server


@pytest.fixture
async def slack() -> AsyncGenerator[LocalSlack]:
    async with local_slack(ack_seconds=PATIENCE, trigger_seconds=PATIENCE) as local:
        yield local


def texts(slack: LocalSlack, thread: str) -> list[str]:
    return [slack.text(CHANNEL, each["ts"]) for each in slack.in_channel(CHANNEL, thread) if "bot_id" in each]


async def posted(slack: LocalSlack, thread: str, holds: Callable[[list[str]], Any]) -> list[str]:
    await slack.until(lambda: holds(texts(slack, thread)), PATIENCE)
    return texts(slack, thread)


def card(slack: LocalSlack, thread: str) -> str:
    """The ts of the card that has buttons."""
    people = People(slack)
    [ts] = [each["ts"] for each in slack.in_channel(CHANNEL, thread) if people.buttons(CHANNEL, each["ts"])]
    return ts


async def asked(slack: LocalSlack, people: People) -> str:
    """Say "refund", and wait for the agent's text and its card; returns the thread."""
    thread = await people.say(CHANNEL, "refund")
    await posted(slack, thread, lambda all_: len(all_) == 2)
    return thread


async def ran(slack: LocalSlack, thread: str) -> list[str]:
    """Wait until a card in the thread says that its call ran; returns what was posted."""
    return await posted(slack, thread, lambda all_: any("It ran" in each for each in all_))


async def test_a_message_prompts_the_agent_and_a_card_in_the_thread_decides(
    slack: LocalSlack, checkpointer: SqlCheckpointer
) -> None:
    shop, people = Shop(), People(slack)
    async with serving(slack, checkpointer, {"support": shop.spec}):
        thread = await people.say(CHANNEL, "a refund for A-1042, please")
        said = await posted(slack, thread, lambda all_: len(all_) == 2)
        assert said[0] == "On it."
        assert "cents: 4900" in said[1]
        assert shop.refunds == []
        ts = card(slack, thread)
        await people.press(CHANNEL, ts, "Approve")
        said = await ran(slack, thread)
        assert shop.refunds == ["A-1042"]
        assert said[1].endswith("Approved by Ada.\nIt ran: 49.00 EUR were sent.")
        assert said[2] == "Done. 49.00 EUR were sent."
        assert shop.principals[-1] == "ada@example.com"
        await people.say(CHANNEL, "thanks", thread_ts=thread, mentions=False)
        said = await posted(slack, thread, lambda all_: len(all_) == 4)
        assert said[3] == "You said: thanks"


async def test_ten_presses_run_the_tool_once(slack: LocalSlack, checkpointer: SqlCheckpointer) -> None:
    shop, people = Shop(), People(slack)
    async with serving(slack, checkpointer, {"support": shop.spec}):
        thread = await asked(slack, people)
        ts = card(slack, thread)
        before = slack.messages[CHANNEL, ts]
        await asyncio.gather(*(people.press(CHANNEL, ts, "Approve", message=before) for _ in range(10)))
        await ran(slack, thread)
    assert shop.refunds == ["A-1042"]
    assert len(slack.ephemerals) == 9


async def test_another_server_resumes_what_one_has_asked(
    slack: LocalSlack, checkpointer: SqlCheckpointer
) -> None:
    shop, people = Shop(), People(slack)
    async with serving(slack, checkpointer, {"support": shop.spec}):
        thread = await asked(slack, people)
    other = Shop()
    async with serving(slack, checkpointer, {"support": other.spec}):
        await people.press(CHANNEL, card(slack, thread), "Approve")
        await ran(slack, thread)
    assert (shop.refunds, other.refunds) == ([], ["A-1042"])


async def test_later_messages_queue_and_run_in_order(
    slack: LocalSlack, checkpointer: SqlCheckpointer
) -> None:
    shop, people = Shop(), People(slack)
    shop.go.clear()
    async with serving(slack, checkpointer, {"support": shop.spec}):
        thread = await people.say(CHANNEL, "one")
        await shop.begun.wait()
        for word in ("two", "three"):
            await people.say(CHANNEL, word, thread_ts=thread)
        assert shop.prompts == ["one"]
        shop.go.set()
        said = await posted(slack, thread, lambda all_: len(all_) == 3)
    assert said == [f"You said: {word}" for word in ("one", "two", "three")]


async def test_a_message_waits_while_a_person_is_asked(
    slack: LocalSlack, checkpointer: SqlCheckpointer
) -> None:
    shop, people = Shop(), People(slack)
    async with serving(slack, checkpointer, {"support": shop.spec}):
        thread = await asked(slack, people)
        await people.say(CHANNEL, "and hello", thread_ts=thread)
        await people.press(CHANNEL, card(slack, thread), "Reject")
        [view] = slack.views
        await people.submit(view, {"field:0": "No."})
        said = await posted(slack, thread, lambda all_: "You said: and hello" in all_)
    assert shop.prompts == ["refund", "and hello"]
    assert shop.refunds == []
    assert "Rejected by Ada." in said[1]


async def test_what_waits_is_worked_off_though_the_answer_came_while_it_was_put_back(
    slack: LocalSlack, checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("askfirst.chat.server.SWEEP_SECONDS", PATIENCE * 10)  # nothing else wakes the thread
    shop, people = Shop(), People(slack)
    put_back, resume, resumed = checkpointer.release_checkpoint, Chats.resume, asyncio.Event()

    async def resuming(chats: Chats, continuation: Any) -> Any:
        result = await resume(chats, continuation)
        resumed.set()
        return result

    async def slowly(*args: Any, **options: Any) -> None:
        await put_back(*args, **options)
        await people.press(CHANNEL, card(slack, thread), "Approve")
        async with asyncio.timeout(PATIENCE):
            await resumed.wait()

    monkeypatch.setattr(Chats, "resume", resuming)
    monkeypatch.setattr(checkpointer, "release_checkpoint", slowly)
    async with serving(slack, checkpointer, {"support": shop.spec}):
        thread = await asked(slack, people)
        await people.say(CHANNEL, "and hello", thread_ts=thread)
        await posted(slack, thread, lambda all_: "You said: and hello" in all_)
    assert shop.refunds == ["A-1042"]


async def test_a_message_that_failed_is_not_held_until_its_claim_lapses(
    slack: LocalSlack, checkpointer: SqlCheckpointer
) -> None:
    shop, people = Shop(), People(slack)
    called = asyncio.Event()

    def broken(conversation: Conversation) -> AgentSpec:
        called.set()
        raise ValueError

    async with serving(slack, checkpointer, {"support": broken}):
        thread = await people.say(CHANNEL, "hello")
        async with asyncio.timeout(PATIENCE):
            await called.wait()
    assert len(await checkpointer.list_checkpoints("askfirst.chat.inbox", state="pending")) == 1
    async with serving(slack, checkpointer, {"support": shop.spec}):
        await posted(slack, thread, lambda all_: "You said: hello" in all_)


async def test_a_message_that_is_delivered_again_counts_once(
    slack: LocalSlack, checkpointer: SqlCheckpointer
) -> None:
    shop, people = Shop(), People(slack)
    async with serving(slack, checkpointer, {"support": shop.spec}):
        thread = await people.say(CHANNEL, "hello")
        await posted(slack, thread, lambda all_: len(all_) == 1)
        event = {**slack.messages[CHANNEL, thread], "channel_type": "channel"}
        for kind in ("app_mention", "message"):
            wrapped = {"type": "event_callback", "team_id": TEAM, "event": {**event, "type": kind}}
            assert (await slack.deliver("events_api", wrapped)).acked
        await people.say(CHANNEL, "bye", thread_ts=thread)
        await posted(slack, thread, lambda all_: "You said: bye" in all_)
    assert shop.prompts == ["hello", "bye"]


async def test_stop_aborts_a_run_a_question_and_the_queue(
    slack: LocalSlack, checkpointer: SqlCheckpointer
) -> None:
    shop, people = Shop(), People(slack)
    shop.go.clear()
    async with serving(slack, checkpointer, {"support": shop.spec}):
        thread = await people.say(CHANNEL, "one")
        await shop.begun.wait()
        await people.say(CHANNEL, "two", thread_ts=thread)
        await people.say(CHANNEL, "Stop!", thread_ts=thread)
        await posted(slack, thread, lambda all_: all_ == [STOPPED])
        shop.go.set()
        asks = await people.say(CHANNEL, "refund")
        await posted(slack, asks, lambda all_: len(all_) == 2)
        await people.say(CHANNEL, "stop", thread_ts=asks)
        said = await posted(slack, asks, lambda all_: STOPPED in all_)
        assert "withdrawn" in said[1]
        await people.say(CHANNEL, "stop", thread_ts=asks)
        await slack.until(lambda: any(each["text"] == NOTHING for each in slack.ephemerals), PATIENCE)
    assert shop.prompts == ["one", "refund"]
    assert shop.refunds == []


@pytest.mark.parametrize("who", [STRANGER, GUEST])
async def test_who_may_not_talk_to_it_is_told_so_and_prompts_nothing(
    slack: LocalSlack, checkpointer: SqlCheckpointer, who: Any
) -> None:
    shop, people = Shop(), People(slack)
    async with serving(slack, checkpointer, {"support": shop.spec}):
        thread = await people.say(CHANNEL, "refund", by=who)
        await slack.until(lambda: slack.ephemerals, PATIENCE)
        assert [each["text"] for each in slack.ephemerals] == [NOT_FOR_YOU]
        await people.say(CHANNEL, "people among themselves", mentions=False)
        await people.say(CHANNEL, "a bot", bot_id="B0OTHER")
        await people.say(CHANNEL, "an edit", subtype="message_changed")
    assert shop.prompts == []
    assert texts(slack, thread) == []


async def test_who_may_talk_need_not_be_who_may_decide(
    slack: LocalSlack, checkpointer: SqlCheckpointer
) -> None:
    shop, people = Shop(), People(slack)
    deciders = {f"{TEAM}:{BEN.id}": "Ben"}
    async with serving(slack, checkpointer, {"support": shop.spec}, deciders=deciders):
        thread = await asked(slack, people)
        ts = card(slack, thread)
        await people.press(CHANNEL, ts, "Approve", by=ADA)
        assert shop.refunds == []
        await people.say(CHANNEL, "refund", by=BEN)
        await people.press(CHANNEL, ts, "Approve", by=BEN)
        await ran(slack, thread)
    assert shop.prompts == ["refund"]
    assert shop.refunds == ["A-1042"]


async def test_without_buttons_a_printed_code_decides_and_no_other(
    slack: LocalSlack, checkpointer: SqlCheckpointer
) -> None:
    shop, people = Shop(), People(slack)
    deciders = {f"{TEAM}:{BEN.id}": "Ben"}
    async with serving(slack, checkpointer, {"support": shop.spec}, deciders=deciders, buttons=False):
        thread = await people.say(CHANNEL, "refund")
        said = await posted(slack, thread, lambda all_: len(all_) == 2)
        code = said[1].partition("reply: approve ")[2][:6]
        other = "000000" if code != "000000" else "111111"
        await people.say(CHANNEL, f"approve {code}", thread_ts=thread, by=ADA)
        await people.say(CHANNEL, f"approve {other}", thread_ts=thread, by=BEN)
        await people.say(CHANNEL, f"approve {code}", by=BEN)  # in another thread
        assert shop.refunds == []
        await people.say(CHANNEL, f"approve {code}", thread_ts=thread, by=BEN)
        await ran(slack, thread)
    assert shop.refunds == ["A-1042"]


async def test_long_text_streams_within_the_limits(slack: LocalSlack, checkpointer: SqlCheckpointer) -> None:
    people = People(slack)
    long = " ".join(f"word{number}" for number in range(5_000))

    def spec(conversation: Conversation) -> AgentSpec:
        return AgentSpec("long", ScriptedModel([long]))

    slack.refusals["chat.postMessage"] = [Refusal("ratelimited", retry_after=0)]
    async with serving(slack, checkpointer, {"long": spec}):
        thread = await people.say(CHANNEL, "tell me")
        said = await posted(slack, thread, lambda all_: "word4999" in " ".join(all_))
    assert " ".join(" ".join(said).split()) == long
    assert len(said) > 1


async def test_hostile_words_of_an_agent_are_inert(slack: LocalSlack, checkpointer: SqlCheckpointer) -> None:
    people = People(slack)
    hostile = "<!channel> <https://evil.example|good> *bold* \u202egnp.exe"

    def spec(conversation: Conversation) -> AgentSpec:
        return AgentSpec("hostile", ScriptedModel([hostile]))

    async with serving(slack, checkpointer, {"hostile": spec}):
        thread = await people.say(CHANNEL, "tell me")
        [said] = await posted(slack, thread, lambda all_: all_)
    assert said == "<!channel> <https://evil.example|good> *bold* <U+202E>gnp.exe"
    [message] = [each for each in slack.in_channel(CHANNEL, thread) if "bot_id" in each]
    assert {block["text"]["type"] for block in message["blocks"]} == {"plain_text"}
    assert "<" not in message["text"]


async def test_chat_tools_are_behind_the_gate(slack: LocalSlack, checkpointer: SqlCheckpointer) -> None:
    people = People(slack)
    done: list[str] = []

    def spec(conversation: Conversation) -> AgentSpec:
        async def say(messages: list[Message]) -> Any:
            last = messages[-1]
            if last.role == "tool":
                done.append(last.text)
            step = sum(each.role == "tool" for each in messages)
            first = next((each.text for each in messages if each.role == "tool"), "")
            calls = [
                ToolCall("c0", "post_message", {"text": "first"}),
                ToolCall("c1", "edit_message", {"message_id": first, "text": "second"}),
                ToolCall("c2", "add_reaction", {"message_id": first, "emoji": "tada"}),
                ToolCall("c3", "upload_file", {"name": "a.txt", "content": "abc"}),
            ]
            return calls[step] if step < len(calls) else "All done."

        return AgentSpec("support", ScriptedModel([say] * 9), ChatToolset(conversation).tools)

    async with serving(slack, checkpointer, {"support": spec}):
        thread = await people.say(CHANNEL, "go")
        for step in range(4):
            await slack.until(
                lambda step=step: (
                    sum("It ran" in each for each in texts(slack, thread)) == step
                    and any(people.buttons(CHANNEL, each["ts"]) for each in slack.in_channel(CHANNEL, thread))
                ),
                PATIENCE,
            )
            assert len(done) == step
            await people.press(CHANNEL, card(slack, thread), "Approve")
        said = await posted(slack, thread, lambda all_: "All done." in all_)
    assert "second" in said
    assert "first" not in said
    assert [name for *_, name in slack.reactions] == ["tada"]
    [file] = slack.files.values()
    assert (file["content"], file["thread_ts"]) == (b"abc", thread)


async def test_a_message_names_one_of_several_agents(
    slack: LocalSlack, checkpointer: SqlCheckpointer
) -> None:
    people = People(slack)
    registry = {
        name: lambda conversation: AgentSpec(
            conversation.agent, ScriptedModel([f"I am {conversation.agent}"])
        )
        for name in ("support", "billing")
    }
    async with serving(slack, checkpointer, registry):
        first = await people.say(CHANNEL, "hello")
        second = await people.say(CHANNEL, "billing: hello")
        assert await posted(slack, first, lambda all_: all_) == ["I am support"]
        assert await posted(slack, second, lambda all_: all_) == ["I am billing"]


async def test_pending_is_told_to_those_who_may_decide(
    slack: LocalSlack, checkpointer: SqlCheckpointer
) -> None:
    shop, people = Shop(), People(slack)
    async with serving(slack, checkpointer, {"support": shop.spec}):
        assert "Nothing waits" in (await people.command("pending", channel=CHANNEL)).payload["text"]
        await asked(slack, people)
        assert "refund" in (await people.command("pending", channel=CHANNEL)).payload["text"]
        told = await people.command("pending", channel=CHANNEL, by=STRANGER)
        assert told.payload["text"] == NOT_FOR_YOU


def test_a_server_needs_an_agent_and_a_chat() -> None:
    with pytest.raises(ChatError, match="no agent"):
        serve_channels({}, store="sqlite:///x.db")
    with pytest.raises(ChatError, match="no chat"):
        serve_channels({"a": AgentSpec("a", ScriptedModel([]))}, store="sqlite:///x.db")
