"""An agent that asks in the terminal before it pays: type approve, deny with a reason, or edit with new arguments.

It needs the ``cli`` extra.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from pydantic_core import from_json

from askfirst import Agent, tool
from askfirst.cli.render import TerminalView
from askfirst.hitl import (
    ConfirmToolCallMiddleware,
    HitlInvalidAnswer,
    HitlRequest,
    HitlStaleAnswer,
    InMemoryChannel,
)
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel


@tool(effect="none")
def look_up(name: str) -> str:
    """Find what we owe someone."""
    return f"we owe {name} 49.00 EUR"


@tool
def pay(to: str, cents: int) -> str:
    """Pay someone."""
    return f"{cents / 100:.2f} EUR sent to {to}"


class Keyboard:
    """Lines from standard input, read without blocking the event loop.

    It reads only while a line is wanted. What was typed into a terminal before is discarded: it cannot be an answer
    to a question that was not shown yet.
    """

    def __init__(self) -> None:
        self._file = sys.stdin.fileno()
        self._lines = asyncio.StreamReader()

    async def line(self, prompt: str) -> str | None:
        """The next line, or None at the end of the input."""
        if os.isatty(self._file):
            import termios

            termios.tcflush(self._file, termios.TCIFLUSH)
        print(prompt, end="", flush=True)
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self._file, self._read)
        except PermissionError:  # a plain file, which is always ready
            while data := os.read(self._file, 65536):
                self._lines.feed_data(data)
            self._lines.feed_eof()
        try:
            line = await self._lines.readline()
        finally:
            loop.remove_reader(self._file)
        return line.decode().strip() if line else None

    def _read(self) -> None:
        if data := os.read(self._file, 65536):
            self._lines.feed_data(data)
        else:
            self._lines.feed_eof()
            asyncio.get_running_loop().remove_reader(self._file)  # at its end, a file is always readable


def understood(line: str) -> dict[str, Any]:
    """A typed line as an answer, which the channel then checks."""
    word, _, rest = line.partition(" ")
    if word == "edit":
        with suppress(ValueError):
            return {"decision": "edit", "edited_args": from_json(rest)}
    return {"decision": word, "reason": rest or None}


async def ask(channel: InMemoryChannel, keyboard: Keyboard, request: HitlRequest) -> None:
    """Ask the person about one request, and again until the answer fits."""
    while True:
        line = await keyboard.line("approve, deny WHY or edit JSON > ")
        try:
            if line is None:
                await channel.cancel(request.question_id, "nobody is at the keyboard")
            else:
                await channel.answer(request.question_id, understood(line), by="me", via="terminal")
            return
        except HitlInvalidAnswer as error:
            print("; ".join(error.faults))
        except HitlStaleAnswer as error:
            print(error)
            return


async def sit_at(channel: InMemoryChannel) -> None:
    """The person: answers one request after another."""
    keyboard = Keyboard()
    async for request in channel.subscribe():
        await ask(channel, keyboard, request)


async def main() -> int:
    channel = InMemoryChannel(default_timeout=600)
    model = ScriptedModel(
        [
            ToolCall("c1", "look_up", {"name": "Ada"}),
            ToolCall("c2", "pay", {"to": "Ada", "cents": 490000}),
            lambda messages: f"The result was: {messages[-1].text.splitlines()[-1]}",
        ]
    )
    middleware = [ConfirmToolCallMiddleware(channel, {"pay"})]
    agent = Agent(model=model, tools=[look_up, pay], channel=channel, middleware=middleware)
    agent.subscribe(TerminalView())
    with suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, agent.abort)
    person = asyncio.create_task(sit_at(channel))
    person.add_done_callback(lambda _: agent.abort())  # nobody is left to answer
    try:
        result = await agent.prompt("Pay Ada what we owe her.")
    finally:
        person.cancel()
        await asyncio.wait([person])
    return 0 if result.status == "completed" else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
