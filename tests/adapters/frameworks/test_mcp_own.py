"""A tool of one's own MCP server that asks at the gate, and the gate as the person behind a client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import mcp_types
import pytest
from adapters.frameworks.pages import run_page
from fastmcp import Client as FastClient
from fastmcp import Context as FastContext
from fastmcp import FastMCP
from kit.framework_races import race_table
from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import InputRequiredResult

from askfirst.adapters.mcp import elicitation, input_required
from askfirst.gate.gate import Gate

pytestmark = pytest.mark.anyio


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(f"sqlite:///{tmp_path}/askfirst.db", base_url="http://127.0.0.1:8000")


async def approve(gate: Gate, answer: Any = None) -> None:
    """Answer what is asked already."""
    [waiting] = await gate.pending()
    await gate.answer(waiting, answer or {"decision": "approve"})


def server_of(gate: Gate, effects: list[int]) -> MCPServer:
    server = MCPServer("shop")

    def pay_back(cents: int) -> str:
        effects.append(cents)
        return f"paid {cents}"

    @server.tool()
    async def refund(cents: int, ctx: Context) -> str | InputRequiredResult:
        return await input_required(gate, ctx, pay_back, {"cents": cents})

    return server


async def test_a_client_that_opens_links_is_sent_to_the_page(gate: Gate) -> None:
    effects: list[int] = []

    async def open_link(context: Any, params: Any) -> mcp_types.ElicitResult:
        assert params.url.startswith("http://127.0.0.1:8000/review/review_")
        await approve(gate)
        return mcp_types.ElicitResult(action="accept")

    async with gate, Client(server_of(gate, effects), elicitation_callback=open_link) as client:
        ran = await client.call_tool("refund", {"cents": 5})
        assert (ran.is_error, ran.content[0].text) == (False, "paid 5")
    assert effects == [5]


async def test_a_client_that_cannot_is_told_that_it_waits_and_each_approval_is_spent_once(gate: Gate) -> None:
    effects: list[int] = []
    async with gate, Client(server_of(gate, effects)) as client:
        for number in (1, 2):
            waits = await client.call_tool("refund", {"cents": 5})
            assert waits.is_error
            assert "a person has to approve it first" in waits.content[0].text
            await approve(gate)
            assert not (await client.call_tool("refund", {"cents": 5})).is_error
            assert effects == [5] * number
        await client.call_tool("refund", {"cents": 6})
        await approve(gate, {"decision": "deny", "reason": "too dear"})
        told = await client.call_tool("refund", {"cents": 6})
        assert told.is_error
        assert "too dear" in told.content[0].text
    assert effects == [5, 5]


async def test_a_fastmcp_server(gate: Gate) -> None:
    server = FastMCP("shop")
    effects: list[int] = []

    def pay_back(cents: int) -> str:
        effects.append(cents)
        return f"paid {cents}"

    @server.tool
    async def refund(cents: int, ctx: FastContext) -> str:
        return await input_required(gate, ctx, pay_back, {"cents": cents})

    async with gate, FastClient(server) as client:
        waits = await client.call_tool("refund", {"cents": 5}, raise_on_error=False)
        assert waits.is_error
        await approve(gate)
        assert (await client.call_tool("refund", {"cents": 5})).content[0].text == "paid 5"
    assert effects == [5]


async def asked(gate: Gate, answer: Callable[[Any], Any]) -> mcp_types.ElicitResult:
    """What the callback says to a form, while a person gives this answer."""
    schema = {
        "type": "object",
        "properties": {
            "model_size": {"type": "string", "enum": ["small", "large"], "title": "Size"},
            "guests": {"type": "integer", "minimum": 1},
            "note": {"type": "string"},
        },
        "required": ["model_size", "guests"],
    }
    params = mcp_types.ElicitRequestFormParams(message="A table?", requested_schema=schema)
    stop = gate.on_opened(answer)
    said = await elicitation(gate)(None, params)
    stop()
    return said


async def test_a_form_becomes_questions(gate: Gate) -> None:
    async with gate:

        async def fill(request: Any) -> None:
            keys = [it.key for it in request.request.payload.questions]
            await gate.answer(request, dict(zip(keys, ["large", "4", ""], strict=True)))

        said = await asked(gate, fill)
        assert (said.action, said.content) == ("accept", {"model_size": "large", "guests": 4})
        assert (await asked(gate, lambda it: gate.cancel(it))).action == "cancel"


@dataclass
class Table:
    """What a server asks for."""

    guests: int
    size: Literal["small", "large"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_it_is_the_person_behind_both_clients(gate: Gate, mode: Any) -> None:
    server = FastMCP("inn")

    @server.tool
    async def book(ctx: FastContext) -> str:
        said = await ctx.elicit("A table?", Table)
        return f"{said.action}: {getattr(said, 'data', None)}"

    async def fill(request: Any) -> None:
        await gate.answer(request, dict(zip(["field_0", "field_1"], ["4", "large"], strict=True)))

    stop = gate.on_opened(fill)
    async with gate:
        async with FastClient(server, mode=mode, elicitation_handler=elicitation(gate)) as fast:
            said = (await fast.call_tool("book")).content[0].text
            assert said == "accept: Table(guests=4, size='large')"
        async with Client(server, mode=mode, elicitation_callback=elicitation(gate)) as client:
            said = (await client.call_tool("book", {})).content[0].text
            assert said == "accept: Table(guests=4, size='large')"
        stop()
        gate.on_opened(lambda request: gate.cancel(request))
        async with FastClient(server, mode=mode, elicitation_handler=elicitation(gate)) as fast:
            assert "cancel" in (await fast.call_tool("book")).content[0].text


async def test_a_url_is_shown_to_a_person(gate: Gate) -> None:
    params = mcp_types.ElicitRequestURLParams(message="Log in", url="https://example.com/login")
    async with gate:
        for opened, action in ((True, "accept"), (False, "decline")):
            shown: list[str] = []

            async def answer(request: Any, said: bool = opened, shown: list[str] = shown) -> None:
                shown.append(request.request.payload.prompt)
                await gate.answer(request, said)

            stop = gate.on_opened(answer)
            assert (await elicitation(gate)(None, params)).action == action
            stop()
            assert ["https://example.com/login" in it for it in shown] == [True]


def test_the_race_table(tmp_path: Path) -> None:
    race_table("MCP", Path(__file__).parent / "lives_mcp.py", tmp_path)


async def test_the_page(tmp_path: Path) -> None:
    page = await run_page("mcp", store=f"sqlite:///{tmp_path}/askfirst.db")
    gate = page["gate"]

    async def answer(request: Any) -> None:
        """Whoever is shown the link approves the refund, and says that they have opened the link."""
        if request.request.payload.kind == "confirm":
            [refund] = [it for it in await gate.pending() if it.request.payload.kind == "approve"]
            await gate.answer(refund, {"decision": "approve"})
            await gate.answer(request, True)

    gate.on_opened(answer)
    async with gate, page["client"] as client:
        ran = await client.call_tool("refund", {"order": "A-1", "cents": 5})
        assert (ran.is_error, ran.content[0].text) == (False, "paid 5 for A-1")
