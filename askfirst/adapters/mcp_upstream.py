"""The MCP server behind the gate: how a call reaches it, and what it says of its tools at this moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from askfirst.adapters.mcp_messages import Message, result_of
from askfirst.errors import HitlError

_PAGES = 100


class UpstreamLost(Exception):
    """The server went away before it answered: nobody knows whether the call took effect."""


class UpstreamRefused(Exception):
    """The server refused a request before it looked at it, such as one without a login: nothing took effect."""


class Upstream(Protocol):
    """The server behind the gate, as one call of a client reaches it."""

    async def request(self, message: Message, raw: bytes | None = None) -> tuple[bytes, Message]:
        """Send a request, ``raw`` if it is as it came; returns the response as it came, and read.

        Raises `UpstreamLost` and `UpstreamRefused`.
        """
        ...

    async def tool(self, name: str, meta: Message) -> Message | None:
        """The definition of a tool as the server gives it now; None if it lists none of this name."""
        ...


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
