"""Run the code of a framework's page, which the main environment cannot."""

from __future__ import annotations

import ast
import inspect
import re
from types import CodeType
from typing import Any

from kit.paths import ROOT

_BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


async def run_page(name: str, **names: Any) -> dict[str, Any]:
    """Run the python blocks of docs/guide/frameworks/NAME.md in one namespace, which has ``names`` to begin with."""
    page = ROOT / "docs" / "guide" / "frameworks" / f"{name}.md"
    found: dict[str, Any] = {"__name__": f"page_{name}", **names}
    for block in _BLOCK.findall(page.read_text("utf-8")):
        code: CodeType = compile(block, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, found)  # noqa: S307  (our own page)
        if inspect.isawaitable(result):
            await result
    return found
