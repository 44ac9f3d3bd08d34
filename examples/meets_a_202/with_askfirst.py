"""A tool of our own agent whose API answers 202: ``python examples/meets_a_202/with_askfirst.py``.

The run is suspended while the human decides, and no lease is held meanwhile: any process could resume it.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import httpx2
from shop_api import Refund, Shop, human, shop

from askfirst import Agent, Tool
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.client import HitlClient
from askfirst.client.http_tool import http_tool, resume_when_decided
from askfirst.messages import Message, ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel


def refund_tool(client: HitlClient, api: Shop) -> Tool:
    """The shop's API as a tool."""
    return http_tool(
        client,
        "POST",
        f"{api.url}/refunds",
        name="refund",
        description="Pay money back for an order. The shop may ask a human first.",
        parameters=Refund,
    )


def script(messages: list[Message]) -> str | ToolCall:
    """A scripted model: it calls the tool, then says how the call ended."""
    last = messages[-1]
    if isinstance(last, ToolResultMessage):
        return "Your refund was refused." if last.is_error else "Your refund is on its way."
    return ToolCall("call_1", "refund", {"order": "A-1042", "cents": 4900})


async def work(api: Shop, store: SQLiteCheckpointer, client: HitlClient) -> None:
    def make_agent(thread_id: str) -> Agent:
        tools = [refund_tool(client, api)]
        model = ScriptedModel([script, script])
        return Agent(model=model, tools=tools, checkpointer=store, thread_id=thread_id)

    result = await make_agent("ticket-7").prompt("Refund order A-1042.")
    print(f"the run is {result.status}")
    async for result in resume_when_decided(client, make_agent):  # in production: a process that never ends
        print(f"the run is {result.status}: {result.text}")
        return


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="askfirst-desk-") as folder:
        async with (
            shop() as api,
            SQLiteCheckpointer(Path(folder) / "desk.db") as store,
            httpx2.AsyncClient(headers=api.headers) as http,
            HitlClient(http, deliver=human, store=store) as client,
        ):
            await work(api, store, client)


if __name__ == "__main__":
    asyncio.run(main())
