"""Tools without the decorator: from a parameter model and a function, for example made at run time."""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import BaseModel, Field, create_model

from askfirst import Agent, Tool, ToolContext, ToolResult
from askfirst.messages import ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel


class Transfer(BaseModel):
    """The tool's arguments; pydantic validates them before the body runs."""

    account: str = Field(pattern=r"^[A-Z]{2}\d{4}$", description="like DE1234")
    cents: int = Field(gt=0)
    speed: Literal["normal", "instant"] = "normal"


async def transfer(args: Transfer, ctx: ToolContext) -> ToolResult:
    """The body: it gets the validated arguments, and the context because it has a parameter for it."""
    # A bank that supports idempotency keys books a repeated attempt only once.
    receipt = {"idempotency_key": ctx.idempotency_key, "account": args.account}
    return ToolResult(f"{args.cents / 100:.2f} sent to {args.account}", details=receipt)


def look_up(table: str, rows: dict[str, str]) -> Tool:
    """A read-only tool for a table that is only known at run time."""
    parameters = create_model(f"Find{table.title()}", key=(str, ...))

    def find(args: BaseModel) -> str:
        key = args.model_dump()["key"]
        return rows.get(key, f"nothing under {key!r}; there are: {', '.join(rows)}")

    return Tool(f"find_{table}", parameters, find, f"Find a row of {table}.", effect="none")


async def main() -> None:
    pay = Tool("transfer", Transfer, transfer, "Send money.", execution_mode="sequential")
    model = ScriptedModel(
        [
            ToolCall("c1", "find_accounts", {"key": "Ada"}),
            ToolCall("c2", "transfer", {"account": "DE 1234", "cents": 4900}),
            ToolCall("c3", "transfer", {"account": "DE1234", "cents": 4900}),
            "Done.",
        ]
    )
    agent = Agent(model=model, tools=[look_up("accounts", {"Ada": "DE1234"}), pay])
    result = await agent.prompt("Pay Ada 49 euros.")
    for message in result.messages:
        if isinstance(message, ToolResultMessage):
            print("error" if message.is_error else "ok", "-", message.text)
    print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
