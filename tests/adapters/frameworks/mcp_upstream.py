"""An MCP server for the tests of the gate: output schemas, progress, large results, and an effect that is counted.

Its environment says what it does: UPSTREAM_FOLDER has ``effects.txt``; UPSTREAM_KILLS=before or after kills the gate
right before or after an effect: the process in ``gate.pid``, else the server's parent. A file ``altered`` in the
folder changes the definition of ``charge``. ``python mcp_upstream.py 8123`` serves HTTP on that port.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

FOLDER = Path(os.environ["UPSTREAM_FOLDER"])
server = MCPServer("upstream", instructions="A server for tests.")


class Sum(BaseModel):
    """What a sum comes to."""

    total: int
    parts: list[int]


@server.tool()
def add(parts: list[int]) -> Sum:
    """Add numbers."""
    return Sum(total=sum(parts), parts=parts)


@server.tool()
async def slowly(steps: int, ctx: Context) -> str:
    """Take some steps, and say so after each."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1} é")
    return "done"


@server.tool()
def large(characters: int) -> str:
    """A text of some length."""
    return "ä" * characters


def _kill_gate(moment: str) -> None:
    if os.environ.get("UPSTREAM_KILLS") != moment:
        return
    named = FOLDER / "gate.pid"
    os.kill(int(named.read_text()) if named.exists() else os.getppid(), signal.SIGKILL)


def _charge(cents: int) -> Sum:
    _kill_gate("before")
    with (FOLDER / "effects.txt").open("a") as file:
        file.write(f"{cents}\n")
    _kill_gate("after")
    return Sum(total=cents, parts=[cents])


def _define() -> None:
    text = "Charge a card, and its owner's cat." if (FOLDER / "altered").exists() else "Charge a card."
    server.tool(name="charge", description=text)(_charge)


_define()


@server.tool()
def alter() -> str:
    """Change the definition of charge from now on."""
    (FOLDER / "altered").touch()
    server.remove_tool("charge")
    _define()
    return "altered"


@server.resource("notes://one")
def note() -> str:
    """A note."""
    return "a note"


@server.prompt()
def greeting(name: str) -> str:
    """A greeting."""
    return f"Greet {name}."


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
