"""The MCP server behind the gate: how a call is sent to it, and how its current tool definitions are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from askfirst.adapters.mcp_messages import Message, result_of
from askfirst.errors import HitlError

_PAGES = 100


class UpstreamLost(Exception):
    """The connection to the server ended before it answered: whether the call took effect is unknown."""


class UpstreamRefused(Exception):
    """The server refused a request before it ran anything, for example because of a missing login."""


class Upstream(Protocol):
    """The server behind the gate, for one call of a client."""

    async def request(self, message: Message, raw: bytes | None = None) -> tuple[bytes, Message]:
        """Send a request; ``raw`` is its unchanged bytes, if it is unchanged. Returns the response's bytes, and the
        response parsed.

        Raises `UpstreamLost` and `UpstreamRefused`.
        """
        ...

    async def tool(self, name: str, meta: Message) -> Message | None:
        """The current definition of a tool; None if the server lists no tool of this name."""
        ...


async def find_tool(ask: Callable[[Message], Awaitable[Message]], name: str, meta: Message) -> Message | None:
    """Find a tool in the pages of ``tools/list``; None if it is not listed. ``meta`` is the ``_meta`` of the call.

    Raises `HitlError` if the server does not list its tools, because then a person cannot be shown what a call does.
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
            raise HitlError("the server answered tools/list with an error")
        result = result_of(answer)
        tools: Any = result.get("tools")
        for tool in cast("list[Any]", tools) if isinstance(tools, list) else []:
            if isinstance(tool, dict) and cast(Message, tool).get("name") == name:
                return cast(Message, tool)
        cursor = result.get("nextCursor")
        if cursor is None:
            return None
    raise HitlError(f"the server's list of tools has more than {_PAGES} pages")
