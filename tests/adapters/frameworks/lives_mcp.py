"""One life of an MCP server whose tool asks before it acts: ``python lives_mcp.py VERB``; see kit.framework_races.

Natively the tool asks its client for input (MCP 2026-07-28) and acts on what the client sends back; the application
keeps the sealed request state between processes, as the SDK has it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from kit.framework_races import answer, at_the_line, say, write_effect
from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.request_state import RequestStateSecurity
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)

from askfirst import Gate
from askfirst.adapters.mcp import input_required
from askfirst.checkpointer.connect import checkpointer_from_url

NAME = "MCP, a tool that asks"
UNSUPPORTED: dict[str, str] = {}
OURS = os.environ.get("LIFE_SIDE", "ours") == "ours"
SEALED_WITH = "what a server in tests seals its state with"
YES = {"agree": {"type": "boolean"}}


def make_server(gate: Gate | None) -> MCPServer:
    server = MCPServer("shop", request_state_security=RequestStateSecurity(keys=[SEALED_WITH], ttl=3600))

    def pay(call: str, cents: int) -> str:
        write_effect(call, cents)
        return f"charged {cents}"

    @server.tool()
    async def charge(call: str, cents: int, ctx: Context) -> str | InputRequiredResult:
        """Charge a card."""
        if gate is not None:
            return await input_required(gate, ctx, pay, {"call": call, "cents": cents})
        said = (ctx.input_responses or {}).get("approval")
        if isinstance(said, ElicitResult):
            return pay(call, cents) if said.action == "accept" else "refused"
        form = ElicitRequestFormParams(
            message=f"Charge {cents}?", requested_schema={"type": "object", "properties": YES}
        )
        return InputRequiredResult(
            input_requests={"approval": ElicitRequest(params=form)}, request_state="asked"
        )

    return server


def calls_file() -> Path:
    """Where the application keeps what it called, and the state that it was given."""
    return Path(os.environ["LIFE_FOLDER"]) / "calls.json"


async def ask(client: Client) -> None:
    calls: list[Any] = []
    for number, cents in enumerate([5, 6][: int(os.environ["LIFE_CALLS"])], 1):
        args = {"call": f"call_{number}", "cents": cents}
        asked = await client.session.call_tool("charge", args, allow_input_required=True)
        assert isinstance(asked, InputRequiredResult), asked
        calls.append({"args": args, "state": asked.request_state})
    calls_file().write_text(json.dumps(calls))


async def go_on(client: Client, calls: list[Any]) -> None:
    """Send each call again, with the client's word that it is agreed to."""
    said: list[str] = []
    for call in calls:
        result = await client.session.call_tool(
            "charge",
            call["args"],
            request_state=call["state"],
            input_responses={
                name: ElicitResult(action="accept", content={"agree": True})
                for name in ("approval", "askfirst")
            },
            allow_input_required=True,
        )
        said.append(str(result.content[0]) if isinstance(result, CallToolResult) else "asked again")
    say(paused=False, text=" / ".join(said))


async def nobody(context: Any, params: Any) -> ElicitResult:
    """What makes the client one that can be asked."""
    return ElicitResult(action="cancel")


async def main(verb: str) -> None:
    if verb == "alter":
        calls_file().write_text(calls_file().read_text().replace('"cents": 5', '"cents": 9999'))
        return
    if not OURS:
        async with Client(make_server(None), elicitation_callback=nobody) as client:
            if verb == "ask":
                await ask(client)
                return
            calls = json.loads(calls_file().read_text())
            at_the_line()
            await go_on(client, calls[:1] if os.environ.get("LIFE_ONLY") else calls)
        return
    async with (
        checkpointer_from_url(os.environ["LIFE_STORE"], lease_seconds=1) as store,
        Gate(store, base_url="http://127.0.0.1:8000") as gate,
        Client(make_server(gate), elicitation_callback=nobody) as client,
    ):
        if verb == "ask":
            await ask(client)
            return
        if verb == "press":
            await answer(gate)
        await go_on(client, json.loads(calls_file().read_text()))


def the_error(raised: BaseException) -> BaseException:
    """The first error in a group, which a client's task group makes of it."""
    return the_error(raised.exceptions[0]) if isinstance(raised, BaseExceptionGroup) else raised


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except BaseExceptionGroup as group:
        raise the_error(group) from None
