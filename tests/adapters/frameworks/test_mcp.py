"""The MCP gate before a real server, with FastMCP's and the reference SDK's clients, on stdio and HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import mcp_types
import pytest
from adapters.frameworks.mcp_rig import META, Lines, Rig, http_client
from fastmcp_tasks.client import TasksClientExtension
from kit.patience import PATIENCE
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from askfirst.adapters.mcp_gate import McpGate
from askfirst.adapters.mcp_http import HttpGate
from askfirst.gate.gate import Gate
from askfirst.permissions import Rule, Scope, StaticPermissionPolicy

pytestmark = pytest.mark.anyio
CHARGE = ("charge", {"cents": 5})


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, f"sqlite:///{tmp_path}/askfirst.db")


@pytest.fixture
def stored(tmp_path: Path, store_url: str) -> Rig:
    return Rig(tmp_path, store_url)


def allowing(folder: Path, *tools: str) -> str:
    """A policy that allows these tools, all for none, and asks about the others."""
    rules = [{"id": it, "scope": {"tool": it}, "effect": "allow"} for it in tools or ("*",)]
    (folder / "policy.json").write_text(json.dumps({"default": "ask", "rules": rules}))
    return str(folder / "policy.json")


def text_of(result: Any) -> str:
    return " ".join(it.text for it in result.content)


# Passing through.


def script(client: Lines) -> list[bytes]:
    """Everything that passes: in the handshake's time of MCP, and with the envelope of 2026-07-28."""
    start = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "lines", "version": "1"},
    }
    client.ask(0, json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": start}).encode())
    client.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    for number, (method, params) in enumerate(
        [
            ("tools/list", {}),
            ("resources/list", {}),
            ("resources/read", {"uri": "notes://one"}),
            ("prompts/get", {"name": "greeting", "arguments": {"name": "Ada"}}),
            ("tools/call", {"name": "add", "arguments": {"parts": [1, 2]}}),
            ("tools/call", {"name": "add", "arguments": {"parts": "no list"}}),
            ("tools/call", {"name": "slowly", "arguments": {"steps": 5}, "_meta": {"progressToken": "p"}}),
            ("tools/call", {"name": "large", "arguments": {"characters": 2_000_000}}),
            ("tools/call", {"name": "nothing", "arguments": {}}),
            ("no/such/method", {}),
        ],
        1,
    ):
        client.ask(
            number, json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        )
    assert client.end() == 0
    return client.said


def test_what_is_not_asked_about_passes_byte_for_byte(rig: Rig) -> None:
    plain = script(Lines(rig.server, rig.environment))
    through = script(Lines(rig.gate_command("--policy", allowing(rig.folder)), rig.environment))
    assert len(plain) == 16
    assert sum(map(len, plain)) > 4_000_000
    assert through == plain


def test_over_http_it_passes_byte_for_byte(rig: Rig) -> None:
    calls: list[tuple[str, str | None, dict[str, Any]]] = [
        ("server/discover", None, {}),
        ("tools/list", None, {}),
        ("tools/call", "add", {"name": "add", "arguments": {"parts": [1, 2]}}),
        ("tools/call", "large", {"name": "large", "arguments": {"characters": 2_000_000}}),
        ("tools/call", "slowly", {"name": "slowly", "arguments": {"steps": 5}}),
    ]
    with rig.over_http("--policy", allowing(rig.folder)) as urls:
        said: list[list[tuple[int, str, bytes]]] = []
        for url in urls:
            said.append([])
            for method, name, params in calls:
                meta = {**META, "progressToken": "p"} if name == "slowly" else META
                body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
                headers = {
                    "mcp-protocol-version": "2026-07-28",
                    "mcp-method": method,
                    "accept": "application/json, text/event-stream",
                } | ({} if name is None else {"mcp-name": name})
                back = httpx2.post(url, json=body, headers=headers, timeout=60)
                said[-1].append((back.status_code, back.headers["content-type"], back.content))
    assert [it[0] for it in said[0]] == [200] * 5
    assert b"notifications/progress" in said[0][4][2]
    assert said[0] == said[1]


async def test_resources_and_prompts_and_schemas_for_both_clients(rig: Rig) -> None:
    policy = allowing(rig.folder)
    steps: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        steps.append(done)

    async with rig.reference("--policy", policy) as client:
        added = await client.call_tool("add", {"parts": [1, 2]})
        assert added.structured_content == {"total": 3, "parts": [1, 2]}
        await client.call_tool("slowly", {"steps": 3}, progress_callback=progress)
        assert steps == [1, 2, 3]
        assert (await client.get_prompt("greeting", {"name": "Ada"})).messages
    async with rig.fast("--policy", policy) as fast:
        assert (await fast.call_tool("add", {"parts": [2, 2]})).structured_content == {
            "total": 4,
            "parts": [2, 2],
        }
        assert (await fast.read_resource("notes://one"))[0].text == "a note"
    assert await rig.waiting() == []


# Three ways to wait.


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_ask_answer_and_call_again_in_three_processes(stored: Rig, mode: str) -> None:
    async with stored.reference(mode=mode) as client:
        waits = await client.call_tool(*CHARGE)
    assert waits.is_error
    assert "a person has to approve it first, at http://127.0.0.1:8000/review/review_" in text_of(waits)
    assert stored.effects == []
    await stored.answer()
    async with stored.reference(mode=mode) as client:
        ran = await client.call_tool(*CHARGE)
        assert (ran.is_error, ran.structured_content) == (False, {"total": 5, "parts": [5]})
        assert stored.effects == ["5"]
        again = await client.call_tool(*CHARGE)
        assert again.is_error  # an approval is spent once: the same call again is asked about again
        await stored.answer()
        assert not (await client.call_tool(*CHARGE)).is_error
    assert stored.effects == ["5", "5"]


async def test_a_client_that_opens_links_is_sent_to_the_page_and_goes_on(rig: Rig) -> None:
    opened: list[str] = []

    async def open_link(context: Any, params: Any) -> mcp_types.ElicitResult:
        opened.append(params.url)
        await rig.answer()
        return mcp_types.ElicitResult(action="accept")

    async with rig.reference(elicitation_callback=open_link) as client:
        ran = await client.call_tool(*CHARGE)
    assert (ran.structured_content, rig.effects) == ({"total": 5, "parts": [5]}, ["5"])
    assert [it.startswith("http://127.0.0.1:8000/review/review_") for it in opened] == [True]


async def test_a_link_that_nobody_opens_is_no_decision(rig: Rig) -> None:
    async def decline(context: Any, params: Any) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="decline")

    async def accept(context: Any, params: Any) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept")

    for callback in (decline, accept):
        async with rig.reference(elicitation_callback=callback) as client:
            waits = await client.call_tool(*CHARGE)
            assert waits.is_error
            assert "has not run yet" in text_of(waits)
    assert (rig.effects, len(await rig.waiting())) == ([], 1)


async def test_fastmcps_client_waits_for_a_task(rig: Rig) -> None:
    async with rig.fast(extensions=[TasksClientExtension()]) as client:
        call = asyncio.create_task(client.call_tool(*CHARGE))
        while not await rig.waiting():  # noqa: ASYNC110  (it is asked in another process)
            await asyncio.sleep(0.05)
        await rig.answer({"decision": "edit", "edited_args": {"cents": 7}})
        ran = await call
    assert (ran.structured_content, rig.effects) == ({"total": 7, "parts": [7]}, ["7"])
    assert "cents" in ran.content[0].text  # the note that a person changed the arguments


async def test_fastmcps_client_without_tasks_is_told_that_it_waits(rig: Rig) -> None:
    async with rig.fast(mode="legacy") as client:
        waits = await client.call_tool(*CHARGE, raise_on_error=False)
        assert waits.is_error
        await rig.answer()
        assert (await client.call_tool(*CHARGE)).structured_content == {"total": 5, "parts": [5]}
    assert rig.effects == ["5"]


async def test_over_http_progress_comes_while_an_approved_call_runs(rig: Rig) -> None:
    steps: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        steps.append(done)

    with rig.over_http() as (_, url):
        async with http_client(url) as client:
            slowly = ("slowly", {"steps": 3})
            assert (await client.call_tool(*slowly)).is_error
            await rig.answer()
            ran = await client.call_tool(*slowly, progress_callback=progress)
            assert (ran.is_error, text_of(ran)) == (False, "done")
        async with http_client(url, mode="legacy") as legacy:
            assert (await legacy.call_tool(*CHARGE)).is_error
            await rig.answer()
            assert not (await legacy.call_tool(*CHARGE)).is_error
    assert (steps, rig.effects) == ([1, 2, 3], ["5"])


# One approval, one effect.


async def test_an_approval_is_nobody_elses(rig: Rig) -> None:
    with rig.over_http() as (_, url):
        async with (
            http_client(url, {"authorization": "Bearer ada"}) as ada,
            http_client(url, {"authorization": "Bearer ben"}) as ben,
        ):
            assert (await ada.call_tool(*CHARGE)).is_error
            await rig.answer()
            assert (await ben.call_tool(*CHARGE)).is_error
            assert rig.effects == []
            assert not (await ada.call_tool(*CHARGE)).is_error
    assert (rig.effects, len(await rig.waiting())) == (["5"], 1)


async def test_of_equal_calls_at_once_one_spends_the_approval(rig: Rig) -> None:
    async with rig.reference() as client:
        assert (await client.call_tool(*CHARGE)).is_error
        await rig.answer()
        calls = await asyncio.gather(*(client.call_tool(*CHARGE) for _ in range(5)))
    assert sorted(it.is_error for it in calls) == [False, True, True, True, True]
    assert (rig.effects, len(await rig.waiting())) == (["5"], 1)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_gate_killed_while_a_call_runs_leaves_it_in_doubt(rig: Rig, moment: str) -> None:
    client = Lines(rig.gate_command(), rig.environment)
    client.call(1, "tools/call", name="charge", arguments={"cents": 5})
    client.kill()
    await rig.answer()
    killing = Lines(rig.gate_command(), {**rig.environment, "UPSTREAM_KILLS": moment})
    with pytest.raises(AssertionError, match="the other side ended"):
        killing.call(1, "tools/call", name="charge", arguments={"cents": 5})
    killing.kill()
    after = Lines(rig.gate_command(), rig.environment)
    for number in (1, 2):
        told = after.call(number, "tools/call", name="charge", arguments={"cents": 5})["result"]
        assert told["isError"]
    [question] = await rig.waiting()
    assert question.request.payload.kind == "escalate"
    await rig.answer({"action": "skip"})
    told = after.call(3, "tools/call", name="charge", arguments={"cents": 5})["result"]
    assert "chose not to run it again" in told["content"][0]["text"]
    assert after.end() == 0
    assert rig.effects == ["5"]  # by the server, which outlived the gate


async def test_a_gate_over_http_killed_after_the_effect_leaves_it_in_doubt(rig: Rig) -> None:
    params = {"name": "charge", "arguments": {"cents": 5}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "charge",
        "accept": "application/json, text/event-stream",
    }
    rig.environment["UPSTREAM_KILLS"] = "after"
    with rig.over_http() as (_, url):
        assert httpx2.post(url, json=body, headers=headers, timeout=PATIENCE).json()["result"]["isError"]
        await rig.answer()
        with pytest.raises(httpx2.TransportError):
            httpx2.post(url, json=body, headers=headers, timeout=PATIENCE)
    del rig.environment["UPSTREAM_KILLS"]
    with rig.over_http() as (_, url):
        for _ in range(2):
            assert httpx2.post(url, json=body, headers=headers, timeout=PATIENCE).json()["result"]["isError"]
    [question] = await rig.waiting()
    assert (question.request.payload.kind, rig.effects) == ("escalate", ["5"])


async def test_a_tool_whose_definition_changed_is_asked_about_again(rig: Rig) -> None:
    async with rig.reference("--policy", allowing(rig.folder, "alter")) as client:
        assert (await client.call_tool(*CHARGE)).is_error
        await rig.answer()
        assert not (await client.call_tool("alter")).is_error
        assert (await client.call_tool(*CHARGE)).is_error
        assert (rig.effects, len(await rig.waiting())) == ([], 1)
        await rig.answer()
        assert not (await client.call_tool(*CHARGE)).is_error
    assert rig.effects == ["5"]


async def test_edited_arguments_run_and_the_model_is_told(rig: Rig) -> None:
    async with rig.reference() as client:
        await client.call_tool(*CHARGE)
        await rig.answer({"decision": "edit", "edited_args": {"cents": 3}})
        ran = await client.call_tool(*CHARGE)
    assert (ran.structured_content, rig.effects) == ({"total": 3, "parts": [3]}, ["3"])
    assert '"cents":3' in text_of(ran).replace(" ", "")


async def test_a_refusal_stands_and_nobody_is_asked_again_at_once(rig: Rig) -> None:
    async with rig.reference() as client:
        await client.call_tool(*CHARGE)
        await rig.answer({"decision": "deny", "reason": "too dear"})
        for _ in range(2):
            told = await client.call_tool(*CHARGE)
            assert told.is_error
            assert "too dear" in text_of(told)
    assert (rig.effects, await rig.waiting()) == ([], [])


async def test_what_the_policy_denies_reaches_nobody(rig: Rig) -> None:
    (rig.folder / "p.json").write_text(json.dumps({"default": "deny", "rules": []}))
    async with rig.reference("--policy", str(rig.folder / "p.json")) as client:
        told = await client.call_tool(*CHARGE)
    assert told.is_error
    assert "no rule matched" in text_of(told)
    assert (rig.effects, await rig.waiting()) == ([], [])


# What two programs might read differently.


TWO_WAYS = [
    b'{"jsonrpc":"2.0","id":9,"method":"ping","method":"tools/call","params":{"name":"charge","arguments":{"cents":5}}}',
    b'{"jsonrpc":"2.0","id":9,"method":"ping","Method":"tools/call","params":{"name":"charge","arguments":{"cents":5}}}',
    b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"add","Name":"charge","arguments":{"cents":5}}}',
    b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"add","arguments":{"parts":[1],"Parts":[2]}}}',
    b'[{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"charge","arguments":{"cents":5}}}]',
    b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"charge","arguments":[5]}}',
    b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"charge","arguments":{"cents":5}}}',
    b'{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"charge","arguments":{"cents":5}}}',
]


def test_a_message_that_can_be_read_in_two_ways_goes_nowhere(rig: Rig) -> None:
    client = Lines(rig.gate_command("--policy", allowing(rig.folder, "add")), rig.environment)
    # Once the server has answered, it is up, and can end by itself.
    client.ask(1, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    for line in TWO_WAYS:
        has_one_id = b'"id":9' in line and not line.startswith(b"[") and b'"ping","method"' not in line
        assert client.ask(9 if has_one_id else None, line)["error"]["code"] < 0
    assert client.end() == 0
    assert rig.effects == []


@pytest.mark.parametrize(
    "headers",
    [
        {"mcp-method": "ping"},
        {"mcp-name": "charge"},
        {"mcp-name": "=?base64?Y2hhcmdl?="},
        {"content-type": "application/json; charset=utf-7"},
        {"content-type": "text/plain"},
        {"content-type": ""},
    ],
)
async def test_headers_that_say_something_else_than_the_message_go_nowhere(
    rig: Rig, headers: dict[str, str]
) -> None:
    reached: list[Any] = []

    async def endpoint(request: Request) -> Response:
        reached.append(await request.json())
        return JSONResponse({"jsonrpc": "2.0", "id": 1, "result": {}})

    server = httpx2.ASGITransport(Starlette(routes=[Route("/mcp", endpoint, methods=["POST"])]))
    policy = StaticPermissionPolicy([Rule(id="add", scope=Scope(tool="add"), effect="allow")])
    async with Gate(rig.store, policy=policy) as gate:
        made = HttpGate(McpGate(gate, "shop"), "http://up/mcp", "ada", httpx2.AsyncClient(transport=server))
        sound = {"mcp-method": "tools/call", "mcp-name": "add", "content-type": "application/json"}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add"}})
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(made.app), base_url="http://127.0.0.1"
        ) as client:
            assert (await client.post("/mcp", content=body, headers=sound)).status_code == 200
            assert len(reached) == 1
            assert (await client.post("/mcp", content=body, headers=sound | headers)).status_code == 400
            assert len(reached) == 1
        await made.aclose()
