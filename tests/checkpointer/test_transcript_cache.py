"""What was decoded once is not decoded again, and never stands in for what is stored."""

from __future__ import annotations

from typing import Any

import pytest
from kit.stores import SHARED, Database, said

from askfirst import Agent, tool
from askfirst.checkpointer import encoding, transcript_cache
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.hitl.testing import FakeClock
from askfirst.ids import first_fence
from askfirst.messages import AssistantMessage, Message, TextPart, ToolCall, ToolResultMessage, UserMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
on_shared = pytest.mark.parametrize("database", SHARED, indirect=True)
LONG = 40
"""Turns: a transcript long enough to be remembered."""


def turn(number: int) -> list[Message]:
    call = ToolCall(f"call-{number}", "send", {"n": number})
    return [
        UserMessage(f"Send {number}."),
        AssistantMessage(call),
        ToolResultMessage(call.id, "send", "sent"),
        AssistantMessage(f"Sent {number}."),
    ]


async def write(checkpointer: SqlCheckpointer, *messages: Message, fence: int = 0) -> int:
    """Append to the thread "t"; returns its fence."""
    return await checkpointer.commit("t", said(*messages, release=True), fence=fence, acquire=True)


async def live(checkpointer: SqlCheckpointer, turns: int = LONG) -> tuple[list[Message], int]:
    """A thread with that many turns, and its fence."""
    messages = [message for number in range(turns) for message in turn(number)]
    return messages, await write(checkpointer, *messages)


async def read(checkpointer: SqlCheckpointer) -> list[Message]:
    stored = await checkpointer.load("t")
    assert stored is not None
    return stored.messages


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bodies that were decoded."""
    seen: list[str] = []
    decode = encoding.decode

    def counting(body: Any) -> Message:
        seen.append(body)
        return decode(body)

    monkeypatch.setattr(encoding, "decode", counting)
    return seen


async def test_only_what_is_new_is_decoded(checkpointer: SqlCheckpointer, decoded: list[str]) -> None:
    messages, fence = await live(checkpointer)
    assert await read(checkpointer) == messages
    assert len(decoded) == 4 * LONG
    decoded.clear()
    assert await read(checkpointer) == messages
    assert len(decoded) == 1, "what the model said last is always read"
    for number in (LONG, LONG + 1):
        messages += turn(number)
        fence = await write(checkpointer, *turn(number), fence=fence)
        decoded.clear()
        assert await read(checkpointer) == messages
        assert len(decoded) == 5


async def test_one_long_turn_is_remembered_too(checkpointer: SqlCheckpointer, decoded: list[str]) -> None:
    messages: list[Message] = [UserMessage("Send them all.")]
    for number in range(2 * LONG):
        messages += turn(number)[1:3]
    await write(checkpointer, *messages)
    await read(checkpointer)
    decoded.clear()
    assert await read(checkpointer) == messages
    assert len(decoded) == 2, "the last call and its result"


async def test_what_is_handed_out_is_nobody_elses(checkpointer: SqlCheckpointer) -> None:
    messages, _ = await live(checkpointer)
    for _ in range(3):
        (await read(checkpointer)).clear()
    assert await read(checkpointer) == messages


def change_args(messages: list[Any]) -> None:
    messages[1].tool_calls[0].args["n"] = {"more": []}


def change_type(messages: list[Any]) -> None:
    messages[1 + 4].tool_calls[0].args["n"] = True  # it was 1, which is equal


def change_details(messages: list[Any]) -> None:
    messages[2].details["seen"].append("changed")


def change_unknown(messages: list[Any]) -> None:
    messages[3].content[0].of_a_newer_version["kept"] = "changed"


def change_to_no_json(messages: list[Any]) -> None:
    messages[2].details["seen"] = object()


CHANGES = [change_args, change_type, change_details, change_unknown, change_to_no_json]


@pytest.mark.parametrize("change", CHANGES)
async def test_what_a_reader_changes_nobody_reads_after_it(
    checkpointer: SqlCheckpointer, change: Any
) -> None:
    """JSON in a message is not frozen. Also where the transcript has grown since it was first read."""
    messages, _ = await live(checkpointer, 1)
    await checkpointer.delete("t")
    call = messages[1]
    newer = TextPart("Sent.", of_a_newer_version={"kept": 1})
    odd = [
        messages[0],
        call,
        ToolResultMessage("call-0", "send", "sent", details={"seen": [1]}),
        AssistantMessage(newer),
    ]
    whole = [*odd, *(message for number in range(1, LONG) for message in turn(number))]
    fence = await write(checkpointer, *whole)
    for number in range(LONG, LONG + 3):
        change(await read(checkpointer))
        assert await read(checkpointer) == whole
        change(await read(checkpointer))
        whole += turn(number)
        fence = await write(checkpointer, *turn(number), fence=fence)
        again = await read(checkpointer)
        assert again == whole
        assert type(again[5].tool_calls[0].args["n"]) is int  # type: ignore[union-attr]


async def test_a_thread_deleted_here_is_forgotten(checkpointer: SqlCheckpointer) -> None:
    await live(checkpointer)
    await read(checkpointer)
    await checkpointer.delete("t")
    assert await checkpointer.load("t") is None
    await write(checkpointer, *turn(7))
    assert await read(checkpointer) == turn(7)


@on_shared
@pytest.mark.parametrize("turns", [0, 1, LONG, LONG + 9])
async def test_another_thread_of_that_name_is_read_as_it_is(database: Database, turns: int) -> None:
    """By a clock that stands still, so that nothing but what was said tells the two apart."""
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as here, database.checkpointer(clock=clock) as there:
        await live(here)
        await read(here)
        await there.delete("t")
        if turns == 0:
            assert await here.load("t") is None
            return
        others = [UserMessage("Another one."), *(it for number in range(turns) for it in turn(number))]
        await write(there, *others)
        assert await read(here) == others
        assert await read(here) == others


@on_shared
async def test_the_same_words_at_another_time_are_read_anew(database: Database, decoded: list[str]) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as here, database.checkpointer(clock=clock) as there:
        messages, _ = await live(here)
        await read(here)
        await there.delete("t")
        await clock.advance(1)
        await live(there)
        decoded.clear()
        assert await read(here) == messages
        assert len(decoded) == 4 * LONG


@on_shared
async def test_a_thread_made_again_at_the_same_time_that_ends_alike_is_read_as_it_is(
    database: Database,
) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as here, database.checkpointer(clock=clock) as there:
        messages, _ = await live(here)
        await read(here)
        await there.delete("t")
        others = [UserMessage("Of another customer."), *messages[1:]]
        await write(there, *others)
        assert await read(here) == others


async def test_a_database_that_is_opened_again_is_read_again(database: Database) -> None:
    """By a clock that stands still, and in memory it is another one."""
    checkpointer = database.checkpointer(clock=FakeClock())
    async with checkpointer:
        messages, _ = await live(checkpointer)
        await read(checkpointer)
    assert checkpointer._transcripts.get("t") is None
    async with checkpointer:
        if database.kind == "memory":
            messages[0] = UserMessage("Another one.")
            await write(checkpointer, *messages)
        assert await read(checkpointer) == messages


async def test_a_thread_of_many_steps_is_remembered_again(
    checkpointer: SqlCheckpointer, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tells it from another changes every thousand steps; then it is read anew once."""
    begins = first_fence() | 1015
    monkeypatch.setattr("askfirst.checkpointer.encoding.first_fence", lambda: begins)
    messages, fence = await live(checkpointer)
    await read(checkpointer)
    counts: list[int] = []
    for _ in range(5):
        for _ in range(3):
            fence = await write(checkpointer, fence=fence)
        decoded.clear()
        assert await read(checkpointer) == messages
        counts.append(len(decoded))
    assert counts == [1, 1, 4 * LONG, 1, 1]


async def test_no_more_is_kept_than_fits(
    checkpointer: SqlCheckpointer, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [message for number in range(LONG) for message in turn(number)]
    for thread_id in ("a", "b", "c"):
        await checkpointer.commit(thread_id, said(*messages, release=True), fence=0, acquire=True)

    async def decoded_for(thread_id: str) -> int:
        decoded.clear()
        await checkpointer.load(thread_id)
        return len(decoded)

    await checkpointer.load("a")
    size = checkpointer._transcripts._size
    monkeypatch.setattr(transcript_cache, "KEPT_BYTES", 2 * size)
    assert [await decoded_for(it) for it in "bcab"] == [4 * LONG, 4 * LONG, 4 * LONG, 4 * LONG]
    assert await decoded_for("a") == 1
    assert await decoded_for("c") == 4 * LONG, "b was used before a, so it had to go"
    assert [await decoded_for(it) for it in "ac"] == [1, 1]
    monkeypatch.setattr(transcript_cache, "KEPT_BYTES", size - 1)
    assert [await decoded_for(it) for it in "bb"] == [4 * LONG, 4 * LONG], "one that does not fit at all"
    assert checkpointer._transcripts._size <= size - 1


async def test_agents_go_on_with_a_long_thread(checkpointer: SqlCheckpointer, decoded: list[str]) -> None:
    """A fresh agent for every request, as in a web server; another process sees the same."""
    ran: list[int] = []

    @tool(requires_approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        return "paid"

    await live(checkpointer)

    def agent(*turns: Any) -> Agent:
        return Agent(model=ScriptedModel(turns), tools=[pay], checkpointer=checkpointer, thread_id="t")

    for cents in range(3):
        paused = await agent(ToolCall(f"pay-{cents}", "pay", {"cents": cents})).prompt("Pay.")
        assert paused.status == "paused"
        await checkpointer.settle("t", f"pay-{cents}", {"decision": "approve"})
        decoded.clear()
        done = await agent("Done.").resume()
        assert (done.status, len(decoded)) == ("completed", 3), "the last word, the prompt and the call"
    assert ran == [0, 1, 2]
    known = await read(checkpointer)
    checkpointer._transcripts.forget("t")
    assert known == await read(checkpointer) == list(done.messages)
