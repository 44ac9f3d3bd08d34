"""A refund desk: its orders, its tools, and a scripted model for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from askfirst import Tool, ToolContext, tool
from askfirst.messages import AssistantMessage, Delta, Message, ThinkingPart, ToolCall, ToolResultMessage
from askfirst.models import Model, ModelRequest, ScriptedModel

INSTRUCTIONS = (
    "You work at the refund desk of a small shop. Look everything up and never guess an amount; work out a refund "
    "before you pay it. A person may forbid a payment or change it: accept that. Answer in two or three plain "
    "sentences that say what was done and what was not."
)
PROMPT = "Ada Ngo (ada@example.com) writes that her kettle came with a cracked lid. Please refund the kettle."


class Order(NamedTuple):
    """An order: its month, the customer's address, and the price of each line in cents."""

    month: str
    email: str
    lines: dict[str, int]


class Payment(NamedTuple):
    """Money that has left the shop."""

    order_id: str
    cents: int


ORDERS = {
    "A-1042": Order("May", "ada@example.com", {"kettle": 4900, "tea": 850}),
    "A-0977": Order("February", "ada@example.com", {"filter": 1200}),
    "A-1040": Order("May", "bo@example.com", {"kettle": 4900}),
}
MONTHS = ("January", "February", "March", "April", "May", "June")


class Desk:
    """The desk's tools over its orders; each step of a look-up takes ``pace`` seconds."""

    def __init__(self, pace: float) -> None:
        self.payments: list[Payment] = []
        self.tools: list[Tool] = [self._find_orders(pace), _quote_refund(), self._pay_refund()]

    def _find_orders(self, pace: float) -> Tool:
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

        return find_orders

    def _pay_refund(self) -> Tool:
        @tool(
            requires_approval=True,
            sentence="Pay back {cents:money:EUR} for order {order_id}",
            done_sentence="Paid back {cents:money:EUR} for order {order_id}",
            approve="Pay {cents:money:EUR}",
            labels={"order_id": "Order", "cents": "Amount"},
            formats={"cents": "money:EUR"},
            consequences=["money"],
        )
        def pay_refund(order_id: str, cents: int) -> str:
            """Pay money back for an order. A person is asked first.

            Args:
                order_id: like A-1042
                cents: how much
            """
            self.payments.append(Payment(order_id, cents))
            return f"Paid {cents / 100:.2f} EUR for {order_id}"

        return pay_refund


def _quote_refund() -> Tool:
    @tool(effect="none")
    def quote_refund(order_id: str, lines: list[str]) -> int:
        """Work out the refund for some lines of an order, in cents.

        Args:
            order_id: like A-1042
            lines: the names of the lines to refund
        """
        prices = ORDERS[order_id].lines
        if unknown := [line for line in lines if line not in prices]:
            raise ValueError(f"{order_id} has no line {unknown[0]!r}; its lines are {', '.join(prices)}")
        return sum(prices[line] for line in lines)

    return quote_refund


def script() -> ScriptedModel:
    """A scripted model for this desk; it makes a mistake, too."""

    def closing(messages: list[Message]) -> str:
        paid = next(message for message in reversed(messages) if isinstance(message, ToolResultMessage))
        said = paid.text.splitlines()[-1]
        if paid.is_error:
            return f"I have paid nothing. This is what I was told: {said}"
        return f"Done, after a person said yes: {said}. Ada can be told that her money is on its way."

    return ScriptedModel(
        [
            [
                ThinkingPart("First the order; what the lid costs I cannot know."),
                "I will look up Ada's orders.",
                ToolCall("c1", "find_orders", {"email": "ada@example.com"}),
            ],
            [
                "The kettle is in order A-1042. Now the amount.",
                ToolCall("c2", "quote_refund", {"order_id": "A-1042", "lines": ["kettle with lid"]}),
            ],
            [
                "That line has another name. Once more, as the order spells it.",
                ToolCall("c3", "quote_refund", {"order_id": "A-1042", "lines": ["kettle"]}),
            ],
            [
                "Paying is not for me alone to decide.",
                ToolCall("c4", "pay_refund", {"order_id": "A-1042", "cents": 4900}),
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
