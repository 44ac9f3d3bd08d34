"""``askfirst mcp serve`` as Claude Code uses it: an MCP server on standard input and output with one tool."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from adapters.frameworks.mcp_rig import Rig
from kit.patience import PATIENCE
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

pytestmark = pytest.mark.anyio


def server(rig: Rig, *options: str) -> Any:
    arguments = ["-m", "askfirst.cli", "mcp", "serve", *options]
    return stdio_client(StdioServerParameters(command=sys.executable, args=arguments, env=rig.environment))


async def test_claude_code_is_answered_as_it_documents(tmp_path: Path) -> None:
    rig = Rig(tmp_path, f"sqlite:///{tmp_path}/askfirst.db")
    prompt = {"tool_name": "Bash", "input": {"command": "make"}, "tool_use_id": "toolu_1", "extra": [1]}

    async def person(answer: Any) -> None:
        while not await rig.waiting():  # noqa: ASYNC110  (it is asked in another process)
            await asyncio.sleep(0.05)
        await rig.answer(answer)

    for mode in ("legacy", "auto"):
        async with Client(server(rig), mode=mode) as client, asyncio.timeout(PATIENCE):
            [tool] = (await client.list_tools()).tools
            assert (tool.name, tool.output_schema) == ("approve", None)
            assert {"tool_name", "input", "tool_use_id"} <= set(tool.input_schema["properties"])
            for answer, said in (
                ({"decision": "approve"}, {"behavior": "allow", "updatedInput": {"command": "make"}}),
                (
                    {"decision": "edit", "edited_args": {"command": "ls"}},
                    {"behavior": "allow", "updatedInput": {"command": "ls"}},
                ),
                ({"decision": "deny", "reason": "no"}, None),
            ):
                prompt["tool_use_id"] += "1"
                told, _ = await asyncio.gather(client.call_tool("approve", prompt), person(answer))
                assert (told.is_error, told.structured_content, len(told.content)) == (False, None, 1)
                found = json.loads(told.content[0].text)
                assert found == said or (said is None and found["behavior"] == "deny")


async def test_when_claude_code_ends_its_prompt_is_withdrawn(tmp_path: Path) -> None:
    rig = Rig(tmp_path, f"sqlite:///{tmp_path}/askfirst.db")
    async with Client(server(rig), mode="legacy") as client, asyncio.timeout(PATIENCE):
        asked = asyncio.create_task(client.call_tool("approve", {"tool_name": "Bash", "input": {}}))
        while not await rig.waiting():  # noqa: ASYNC110  (it is asked in another process)
            await asyncio.sleep(0.05)
        asked.cancel()
        while await rig.waiting():  # noqa: ASYNC110  (it is withdrawn in another process)
            await asyncio.sleep(0.05)
