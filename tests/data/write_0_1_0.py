"""Writes threads_0_1_0.sql: threads as Askfirst 0.1.0 leaves them, for later versions to go on with.

Run with that version only, which had another name; what it wrote is kept for good.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from pathlib import Path

from askfirst import Agent, ToolContext, tool
from askfirst.checkpointer import points
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.hitl import CheckpointedChannel, ask_user_tool
from askfirst.hitl.testing import FakeClock
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

TARGET = Path(__file__).with_name("threads_0_1_0.sql")
QUESTION = {"key": "colour", "prompt": "Which colour?", "options": [{"label": "Red", "value": "red"}]}


class Dies(BaseException):
    """Stands for the end of the process."""


@tool(requires_approval=True)
async def pay(amount: int, ctx: ToolContext, currency: str = "EUR") -> str:
    """Pay an amount."""
    return f"paid {amount} {currency}"


@tool(requires_approval=True)
async def fax(text: str) -> str:
    """Send a fax. Later versions of the program have no such tool."""
    return f"faxed {text}"


async def write(path: Path) -> None:
    """Leave a thread in every state that a thread can be left in."""
    async with SQLiteCheckpointer(path, owner="a process of 0.1.0", clock=FakeClock()) as store:
        await _agent(store, "finished", "hello, person").prompt("hello")
        await _agent(store, "paused", _pay()).prompt("pay")
        await _agent(store, "paused-unknown-tool", ToolCall("call-1", "fax", {"text": "hi"})).prompt("fax")
        await _agent(store, "paused-parallel", [_pay("call-1"), _pay("call-2")]).prompt("pay twice")
        for thread_id, answer in (
            ("answered", {"decision": "approve"}),
            ("edited", {"decision": "edit", "edited_args": {"amount": 3, "currency": "CHF"}}),
            ("denied", {"decision": "deny", "reason": "too much"}),
        ):
            await _agent(store, thread_id, _pay()).prompt("pay")
            await store.settle(thread_id, "call-1", answer, by="ann", via="test")
        await _ask(store)
        await _die_in_the_middle(store)


async def _ask(store: SQLiteCheckpointer) -> None:
    channel = CheckpointedChannel(checkpointer=store, thread_id="asking", default_timeout=1e9)
    call = ToolCall("call-1", "ask_user", {"questions": [QUESTION]})
    agent = Agent(model=ScriptedModel([call]), tools=[ask_user_tool(channel)], channel=channel)
    asking = asyncio.create_task(agent.prompt("paint it"))
    await anext(channel.subscribe())
    await agent.detach()
    await asking


async def _die_in_the_middle(store: SQLiteCheckpointer) -> None:
    agent = _agent(store, "in-doubt", _pay())
    await agent.prompt("pay")
    await store.settle("in-doubt", "call-1", {"decision": "approve"}, by="ann")
    dead: list[str] = []

    def die(point: str) -> None:
        if dead or point == "effect.started":
            dead.append(point)
            raise Dies

    points.hook = die
    try:
        await agent.resume()
    except Dies:
        return
    finally:
        points.hook = None


def _pay(call_id: str = "call-1") -> ToolCall:
    return ToolCall(call_id, "pay", {"amount": 5})


def _agent(store: SQLiteCheckpointer, thread_id: str, turn: object) -> Agent:
    model = ScriptedModel([turn])  # pyright: ignore[reportArgumentType]
    return Agent(model=model, tools=[pay, fax], checkpointer=store, thread_id=thread_id)


def dump(path: Path) -> str:
    """A database as SQL."""
    connection = sqlite3.connect(path)
    try:
        return "\n".join(connection.iterdump()) + "\n"
    finally:
        connection.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write(Path(folder, "threads.db")))
        TARGET.write_text(dump(Path(folder, "threads.db")))
