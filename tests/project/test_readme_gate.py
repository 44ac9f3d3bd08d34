"""The README's first lines, for code that the reader has: a plain function, and the command before an MCP server."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from kit.paths import ROOT
from kit.patience import PATIENCE

pytestmark = pytest.mark.anyio
README = (ROOT / "README.md").read_text("utf-8")
SECTION = README.partition("## In the code that you have\n")[2].partition("\n## ")[0]


async def test_a_plain_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"__name__": "readme"}
    block = re.findall(r"^```python\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)[0]
    exec(compile(block, "README.md", "exec"), found)  # noqa: S102  (our own page)
    gate, opened = found["gate"], asyncio.Queue[Any]()
    gate.on_opened(opened.put)
    async with gate, asyncio.timeout(PATIENCE):
        calls = [asyncio.create_task(found["pay_back"]("A-1042", 4900)) for _ in range(3)]
        request = await opened.get()
        assert request.request.payload.sentences == ["Pay 49.00 EUR back for order A-1042"]
        await gate.answer(request, {"decision": "approve"}, by="ada")
        assert await asyncio.gather(*calls) == ["4900 cents sent for A-1042"] * 3
        assert await gate.pending() == []


def test_the_readers_own_world_comes_first() -> None:
    assert README.index("scripts/demo") < README.index(SECTION) < README.index("## An agent in fifteen lines")
    adapters = re.findall(r"^from askfirst\.adapters\.(\w+) import", SECTION, re.MULTILINE)
    assert adapters == ["langgraph", "openai_agents", "pydantic_ai"]


def test_the_command_before_an_mcp_server_is_that_of_its_page() -> None:
    [block] = re.findall(r"^```bash\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)
    assert block in (ROOT / "docs/guide/frameworks/mcp.md").read_text("utf-8")
