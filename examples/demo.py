"""An agent at a refund desk, in your terminal: ``scripts/demo``, or ``python examples/demo.py``.

It looks things up, makes a mistake, reads what went wrong, and mends it. The model is scripted unless
``--model`` names a real one; the tools, the loop and the events are the same for both.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from assent import Agent, Tool, ToolContext, tool
from assent.cli.render import TerminalView
from assent.errors import AssentError
from assent.messages import AssistantMessage, Delta, Message, ThinkingPart, ToolCall, ToolResultMessage
from assent.models import Model, ModelRequest, PydanticAIModel, ScriptedModel

INSTRUCTIONS = (
    "You work at the refund desk of a small shop. Look everything up; never guess an amount. "
    "You can work out a refund but not pay one. Answer in two or three plain sentences."
)
PROMPT = "Ada Ngo (ada@example.com) writes that her kettle came with a cracked lid. What do we owe her?"


class Order(NamedTuple):
    """An order: when, whose, and what each of its lines cost in cents."""

    month: str
    email: str
    lines: dict[str, int]


ORDERS = {
    "A-1042": Order("May", "ada@example.com", {"kettle": 4900, "tea": 850}),
    "A-0977": Order("February", "ada@example.com", {"filter": 1200}),
    "A-1040": Order("May", "bo@example.com", {"kettle": 4900}),
}
MONTHS = ("January", "February", "March", "April", "May", "June")
STOPS = ("Left the warehouse", "Sorted in Lyon", "On the van", "Delivered, parcel dented")


def desk_tools(pace: float) -> list[Tool]:
    """The desk's tools; each step of a look-up takes ``pace`` seconds."""

    @tool(effect="none")
    async def find_orders(email: str, ctx: ToolContext) -> dict[str, dict[str, int]]:
        """Find a customer's orders of this year; each line comes with its price in cents.

        Args:
            email: the customer's address
        """
        found: dict[str, dict[str, int]] = {}
        for number, month in enumerate(MONTHS, start=1):
            for order_id, order in ORDERS.items():
                if order.month == month and order.email == email:
                    found[order_id] = order.lines
            ctx.report(number / len(MONTHS), f"{month}: {len(found)} found")
            await asyncio.sleep(4 * pace)
        return found

    @tool(effect="none")
    async def track_parcel(email: str, ctx: ToolContext) -> str:
        """Follow the latest parcel to a customer.

        Args:
            email: the customer's address
        """
        for number, stop in enumerate(STOPS, start=1):
            ctx.report(number / len(STOPS), stop)
            await asyncio.sleep(5 * pace)
        return STOPS[-1]

    @tool(effect="none")
    def quote_refund(order_id: str, lines: list[str]) -> str:
        """Work out the refund for some lines of an order.

        Args:
            order_id: like A-1042
            lines: the names of the lines to refund
        """
        prices = ORDERS[order_id].lines
        if unknown := [line for line in lines if line not in prices]:
            raise ValueError(f"{order_id} has no line {unknown[0]!r}; its lines are {', '.join(prices)}")
        cents = sum(prices[line] for line in lines)
        return f"{cents / 100:.2f} EUR"

    return [find_orders, track_parcel, quote_refund]


def script() -> ScriptedModel:
    """What a model might say here, the mistake included."""

    def closing(messages: list[Message]) -> str:
        quote = next(message.text for message in reversed(messages) if isinstance(message, ToolResultMessage))
        return (
            f"We owe Ada {quote} for the kettle of order A-1042. The carrier notes a dented parcel, which "
            "fits what she writes. I have paid nothing: that is for a person to decide."
        )

    ada = {"email": "ada@example.com"}
    return ScriptedModel(
        [
            [
                ThinkingPart("I need the order and the delivery; neither depends on the other, so both."),
                "I will look up Ada's orders and her latest parcel.",
                ToolCall("c1", "find_orders", ada),
                ToolCall("c2", "track_parcel", ada),
            ],
            [
                "The kettle is in order A-1042. Now the amount.",
                ToolCall("c3", "quote_refund", {"order_id": "A-1042", "lines": ["kettle with lid"]}),
            ],
            [
                "That line has another name. Once more, as the order spells it.",
                ToolCall("c4", "quote_refund", {"order_id": "A-1042", "lines": ["kettle"]}),
            ],
            closing,
        ]
    )


class Paced:
    """A model slowed down to the speed of a reader."""

    def __init__(self, model: Model, pace: float) -> None:
        self._model = model
        self._pace = pace

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | AssistantMessage]:
        await asyncio.sleep(4 * self._pace)
        async for item in self._model.stream(request):
            yield item
            await asyncio.sleep(self._pace / 2)


def make_agent(model_name: str | None, pace: float) -> Agent:
    """The desk's agent, with a real model if one is named."""
    model = PydanticAIModel(model_name) if model_name else Paced(script(), pace)
    return Agent(id="refund-desk", model=model, tools=desk_tools(pace), instructions=INSTRUCTIONS)


async def run(agent: Agent, prompt: str) -> int:
    """Run the agent where a person can see and stop it; return the exit code."""
    agent.subscribe(TerminalView())
    with suppress(NotImplementedError):  # Windows; there Ctrl-C cancels the run instead
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, agent.abort)
    result = await agent.prompt(prompt)
    return {"completed": 0, "aborted": 130}.get(result.status, 1)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="demo", description="An agent at work in your terminal.")
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:claude-sonnet-5")
    parser.add_argument("--prompt", default=PROMPT, help="what to ask (the scripted model answers only one)")
    parser.add_argument("--fast", action="store_true", help="do not slow down for a reader")
    options = parser.parse_args(argv)
    try:
        agent = make_agent(options.model, 0 if options.fast else 0.09)
    except (AssentError, ImportError) as error:
        print(f"The model {options.model} cannot be used: {error}", file=sys.stderr)
        return 2
    try:
        return asyncio.run(run(agent, options.prompt))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
