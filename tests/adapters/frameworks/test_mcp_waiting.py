"""How MCP clients wait at the gate: each client, transport and capability, and what nobody may abuse."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types
import pytest
from adapters.frameworks.mcp_rig import META, Lines, Rig, http_client
from fastmcp import Client as FastClient
from fastmcp_tasks.client import TasksClientExtension
from kit.patience import PATIENCE
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from askfirst.adapters.mcp_gate import McpGate
from askfirst.adapters.mcp_http import HttpGate
from askfirst.gate.gate import Gate

pytestmark = pytest.mark.anyio
CHARGE: tuple[str, dict[str, Any]] = ("charge", {"cents": 5})
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
LINKS = {"elicitation": {"url": {}}}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, f"sqlite:///{tmp_path}/askfirst.db")


# Every client, on both transports, with and without elicitation and tasks.


@asynccontextmanager
async def connected(rig: Rig, which: str, transport: str, can: str) -> AsyncGenerator[tuple[Any, list[str]]]:
    """A client of a new gate, and the links that it was told to open. Whoever opens one approves."""
    opened: list[str] = []

    async def person(url: str) -> None:
        opened.append(url)
        await rig.answer()

    async def callback(context: Any, params: Any) -> Any:
        await person(params.url)
        return mcp_types.ElicitResult(action="accept")

    async def handler(message: str, kind: Any, params: Any, context: Any) -> Any:
        return await callback(context, params)

    settings: dict[str, Any] = {}
    if can == "elicitation":
        settings = (
            {"elicitation_callback": callback} if which == "reference" else {"elicitation_handler": handler}
        )
    elif can == "tasks":
        settings = {"extensions": [TasksClientExtension()]}
    elif which == "fast":
        settings = {"mode": "legacy"}  # else it knows tasks by itself
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            made = rig.reference(**settings) if which == "reference" else rig.fast(**settings)
        else:
            _, url = stack.enter_context(rig.over_http())
            made = http_client(url, **settings) if which == "reference" else FastClient(url, **settings)
        yield await stack.enter_async_context(made), opened


async def call(client: Any) -> Any:
    options = {"raise_on_error": False} if isinstance(client, FastClient) else {}
    return await client.call_tool(*CHARGE, **options)


@pytest.mark.parametrize("can", ["nothing", "elicitation", "tasks"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("which", ["reference", "fast"])
async def test_each_client_waits_as_it_can(rig: Rig, which: str, transport: str, can: str) -> None:
    async with connected(rig, which, transport, can) as (client, opened), asyncio.timeout(PATIENCE):
        calling = asyncio.create_task(call(client))
        if can == "nothing":
            waits = await calling
            assert waits.is_error
            assert "a person has to approve it first" in waits.content[0].text
            await rig.answer()
            calling = asyncio.create_task(call(client))
        elif can == "tasks":
            while not await rig.waiting():  # noqa: ASYNC110  (it is asked in another process)
                await asyncio.sleep(0.05)
            assert not calling.done()
            await rig.answer()
        ran = await calling
        assert (ran.is_error, ran.structured_content) == (False, {"total": 5, "parts": [5]})
    assert len(opened) == (can == "elicitation")
    assert rig.effects == ["5"]


# What a client cannot do is not asked of it.


IDS = itertools.count(1)


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": next(IDS), "method": method, "params": {"_meta": META, **params}}


def charge(capabilities: dict[str, Any], **more: Any) -> dict[str, Any]:
    meta = {**META, CAPABILITIES: capabilities}
    return request("tools/call", **{"name": "charge", "arguments": {"cents": 5}, "_meta": meta, **more})


def sent(client: Lines, message: dict[str, Any]) -> dict[str, Any]:
    return client.ask(message["id"], json.dumps(message).encode())


def test_nothing_is_elicited_from_a_client_that_cannot(rig: Rig) -> None:
    client = Lines(rig.gate_command(), rig.environment)
    for able in ({}, {"elicitation": {}}, {"elicitation": {"form": {}}}, {"extensions": {}}):
        result = sent(client, charge(able))["result"]
        assert result["isError"]
        assert result["resultType"] == "complete"
        assert "inputRequests" not in result
    asked = sent(client, charge(LINKS))["result"]
    assert asked["resultType"] == "input_required"
    assert sent(client, charge(TASKS))["result"]["resultType"] == "task"
    assert client.end() == 0


async def test_what_a_client_holds_cannot_be_forged_or_used_by_another(rig: Rig) -> None:
    client = Lines(rig.gate_command(), rig.environment)
    state = sent(client, charge(LINKS))["result"]["requestState"]
    task = sent(client, charge(TASKS))["result"]["taskId"]
    assert "charge" not in state + task
    for token in (state[:-3] + "AAA", "askfirst.", "askfirst.e30=", state + "x"):
        assert sent(client, charge({}, requestState=token))["result"]["isError"]
        assert "no such task" in sent(client, request("tasks/get", taskId=token))["error"]["message"]
    other = charge({}, requestState=state)
    other["params"]["arguments"] = {"cents": 500}  # a state is for its own call
    assert sent(client, other)["result"]["isError"]
    assert client.end() == 0
    assert (rig.effects, len(await rig.waiting())) == ([], 2)
    with rig.over_http() as (_, url):  # the gate has the same secret, and another requester
        async with httpx2.AsyncClient(headers={"authorization": "Bearer eve"}, timeout=PATIENCE) as eve:
            back = await eve.post(url, json=request("tasks/get", taskId=task))
            assert "no such task" in back.json()["error"]["message"]


async def test_a_task_and_a_call_spend_one_approval_between_them(rig: Rig) -> None:
    client = Lines(rig.gate_command(), rig.environment)
    task = sent(client, charge(TASKS))["result"]["taskId"]
    await rig.answer()
    assert not sent(client, charge({}))["result"]["isError"]
    told = sent(client, request("tasks/get", taskId=task))["result"]
    assert told["status"] == "completed"
    assert "another call has used this approval" in told["result"]["content"][0]["text"]
    assert client.end() == 0
    assert rig.effects == ["5"]


async def test_a_cancelled_task_withdraws_its_request(rig: Rig) -> None:
    client = Lines(rig.gate_command(), rig.environment)
    task = sent(client, charge(TASKS))["result"]["taskId"]
    sent(client, request("tasks/cancel", taskId=task))
    assert await rig.waiting() == []
    told = sent(client, request("tasks/get", taskId=task))["result"]
    assert told["result"]["isError"]
    assert client.end() == 0
    assert rig.effects == []


async def test_a_definition_that_changes_while_a_client_holds_a_state_is_asked_again(rig: Rig) -> None:
    client = Lines(rig.gate_command(), rig.environment)
    state = sent(client, charge(LINKS))["result"]["requestState"]
    task = sent(client, charge(TASKS))["result"]["taskId"]
    await rig.answer()
    sent(client, request("tools/call", name="alter"))
    await rig.answer()
    assert not sent(client, request("tools/call", name="alter"))["result"]["isError"]
    assert sent(client, charge(LINKS, requestState=state))["result"]["resultType"] == "input_required"
    told = sent(client, request("tasks/get", taskId=task))["result"]
    assert "definition changed" in told["result"]["content"][0]["text"]
    assert client.end() == 0
    assert (rig.effects, len(await rig.waiting())) == ([], 1)


# A server that refuses before it looks at a call.


async def test_a_server_that_wants_a_login_says_so_and_the_approval_is_not_spent(rig: Rig) -> None:
    effects: list[str] = []
    wanted = "Bearer new"

    async def endpoint(request: Request) -> Response:
        if request.headers.get("x-login") != wanted:
            return Response(
                "log in", 401, {"www-authenticate": 'Bearer resource_metadata="https://a.example"'}
            )
        message = await request.json()
        if message["method"] == "tools/list":
            result: dict[str, Any] = {"tools": [{"name": "charge", "inputSchema": {"type": "object"}}]}
        else:
            effects.append("5")
            result = {"content": []}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    server = httpx2.ASGITransport(Starlette(routes=[Route("/mcp", endpoint, methods=["POST"])]))
    async with Gate(rig.store) as gate:
        made = HttpGate(
            McpGate(gate, "shop", hold=0), "http://up/mcp", "ada", httpx2.AsyncClient(transport=server)
        )
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(made.app), base_url="http://127.0.0.1"
        ) as client:

            async def post(login: str) -> httpx2.Response:
                return await client.post("/mcp", json=charge({}), headers={"x-login": login})

            refused = await post("Bearer old")
            assert (refused.status_code, refused.text) == (401, "log in")
            assert "resource_metadata" in refused.headers["www-authenticate"]
            assert (await post(wanted)).json()["result"]["isError"]
            await rig.answer()
            assert (await post("Bearer old")).status_code == 401
            assert effects == []
            assert "isError" not in (await post(wanted)).json()["result"]
            await made.aclose()
    assert effects == ["5"]
