"""Programs that ask the person at their terminal; the test in delivery/test_terminal.py is that person.

`python terminal_scenes.py SCENE [PATH]`. SIGUSR1 simulates an answer on another surface. The result is printed as
JSON, in the last line.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from askfirst import Agent, tool
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.delivery import answering_in_terminal, desk_in_terminal
from askfirst.hitl import (
    CheckpointedChannel,
    ConfirmToolCallMiddleware,
    HitlChannel,
    InMemoryChannel,
    Option,
    Question,
)
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.requests import plain_answer

paid: list[tuple[str, int]] = []


@tool
def pay(to: str, cents: int) -> str:
    """Pay someone."""
    paid.append((to, cents))
    return "paid"


def agent_on(channel: HitlChannel, **options: Any) -> Agent:
    call = ToolCall("c1", "pay", {"to": "Ada\u202e", "cents": 490000})
    model = ScriptedModel([call, lambda messages: messages[-1].text])
    confirm = ConfirmToolCallMiddleware(channel, {"pay"})
    return Agent(id="payer", model=model, tools=[pay], channel=channel, middleware=[confirm], **options)


async def approve(path: str) -> Any:
    """An agent asks for a payment, while something else is printed."""
    channel = InMemoryChannel()
    agent = agent_on(channel)

    async def elsewhere() -> None:
        await channel.answer("c1", {"decision": "deny", "reason": "not today"}, by="Bob", via="browser")

    on_signal(elsewhere)
    ticking = asyncio.create_task(tick())
    async with answering_in_terminal(channel, by="Ada"):
        result = await agent.prompt("Pay Ada")
    ticking.cancel()
    return {"status": result.status, "text": result.text, "paid": paid}


async def stored(path: str) -> Any:
    """An agent asks for a payment on a stored channel, on which other processes can answer, too."""
    async with SQLiteCheckpointer(path) as checkpointer:
        channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t1")
        agent = agent_on(channel, checkpointer=checkpointer, thread_id="t1")

        async def elsewhere() -> None:
            await checkpointer.settle("t1", "c1", {"decision": "approve"}, by="Bob", via="browser")

        on_signal(elsewhere)
        async with answering_in_terminal(channel):
            result = await agent.prompt("Pay Ada")
        asked = await checkpointer.request("t1", "c1")
        assert asked is not None
        return {"status": result.status, "request": asked.status, "via": asked.via, "paid": paid}


async def kinds(path: str) -> Any:
    """Every kind of request, one after another."""
    channel = InMemoryChannel()
    options = [Option(label="Red wine", value="red"), Option(label="White", value="white", description="dry")]
    sides = [*options, Option(label="Other", value="o", allow_input=True)]
    async with answering_in_terminal(channel, by="Ada"):
        sure = await channel.confirm("Are you sure?", details={"rows": 3})
        answers = await channel.ask(
            [
                Question(key="wine", prompt="Which?", options=options),
                Question(key="sides", prompt="And?", options=sides, multi_select=True),
                Question(key="name", prompt="For whom?\x1b[2J"),
                Question(key="note", prompt="Anything else?", required=False),
            ]
        )
        doubt = await channel.escalate("It broke.", details={"args": {"n": 1}})
    return [sure, answers, plain_answer(doubt)]


async def desk(path: str) -> Any:
    """All open requests of a store."""
    async with SQLiteCheckpointer(path) as checkpointer:
        await desk_in_terminal(checkpointer)
        return [stored.question_id for stored in await checkpointer.pending()]


async def tick() -> None:
    number = 0
    while True:
        await asyncio.sleep(0.05)
        number += 1
        print(f"tick {number}")  # noqa: T201


def on_signal(act: Callable[[], Awaitable[None]]) -> None:
    tasks: list[asyncio.Future[None]] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, lambda: tasks.append(asyncio.ensure_future(act())))


SCENES = {scene.__name__: scene for scene in (approve, stored, kinds, desk)}

if __name__ == "__main__":
    said = asyncio.run(SCENES[sys.argv[1]](sys.argv[-1]))
    print("\nSAID", json.dumps(said))  # noqa: T201
