"""The definition of an MCP server's tool, as the server gives it at this moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from askfirst.adapters.mcp_messages import Message, result_of
from askfirst.errors import HitlError

_PAGES = 100


async def find_tool(ask: Callable[[Message], Awaitable[Message]], name: str, meta: Message) -> Message | None:
    """Look for a tool in the pages of ``tools/list``; None if it is on none of them. ``meta`` is the caller's.

    Raises `HitlError` if the server does not list its tools: then nobody can tell what a call would do.
    """
    cursor: Any = None
    own = {key: value for key, value in meta.items() if key != "progressToken"}
    for _ in range(_PAGES):
        params: Message = {}
        if own:
            params["_meta"] = own
        if cursor is not None:
            params["cursor"] = cursor
        answer = await ask({"jsonrpc": "2.0", "method": "tools/list", "params": params})
        if "error" in answer:
            raise HitlError("the server gave an error in place of the list of its tools")
        result = result_of(answer)
        tools: Any = result.get("tools")
        for tool in cast("list[Any]", tools) if isinstance(tools, list) else []:
            if isinstance(tool, dict) and cast(Message, tool).get("name") == name:
                return cast(Message, tool)
        cursor = result.get("nextCursor")
        if cursor is None:
            return None
    raise HitlError(f"the server's list of tools has more than {_PAGES} pages")
