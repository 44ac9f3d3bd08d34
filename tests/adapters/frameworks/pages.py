"""Run the code of a framework's page, and its lines in the README, which the main environment cannot."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import CodeType
from typing import Any

from kit.paths import ROOT

_BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


async def run_page(name: str, **names: Any) -> dict[str, Any]:
    """Run the python blocks of docs/guide/frameworks/NAME.md in one namespace, which has ``names`` to begin with."""
    page = ROOT / "docs" / "guide" / "frameworks" / f"{name}.md"
    return await _run(page, _BLOCK.findall(page.read_text("utf-8")), names)


async def run_readme(module: str, **names: Any) -> dict[str, Any]:
    """Run the README's lines for a module of `askfirst.adapters`: few, for a reader who has the ``names`` already."""
    page = ROOT / "README.md"
    blocks = [
        it for it in _BLOCK.findall(page.read_text("utf-8")) if f"from askfirst.adapters.{module} " in it
    ]
    assert len(blocks) == 1
    lines = [it for it in blocks[0].splitlines() if it]
    assert len(lines) <= 3
    return await _run(page, blocks, names)


async def _run(page: Path, blocks: list[str], names: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": f"page_{page.stem}", **names}
    for block in blocks:
        code: CodeType = compile(block, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, found)  # noqa: S307  (our own page)
        if inspect.isawaitable(result):
            await result
    return found
