"""``askfirst mcp``: MCP servers of Askfirst's own."""

from __future__ import annotations

import asyncio

import click

from askfirst.adapters.framework import needs
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.cli.claude_options import policy_option, timeout_option, tools_option
from askfirst.cli.output import database_url
from askfirst.gate.gate import Gate
from askfirst.permissions.shipped import policy_from


@click.group()
def mcp() -> None:
    """Askfirst's own MCP servers. For a gate before another server see askfirst gate."""


@mcp.command()
@policy_option
@tools_option
@click.option(
    "--wait",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="How long a prompt waits for the decision; then it is denied. Default: without limit.",
)
@timeout_option
def serve(policy: str | None, tools: tuple[str, ...], wait: float | None, timeout: str | None) -> None:
    """Answer Claude Code's permission prompts, on standard input and output.

    \b
    claude -p --permission-prompt-tool mcp__askfirst__approve --mcp-config \\
      '{"mcpServers": {"askfirst": {"command": "askfirst", "args": ["mcp", "serve"]}}}' ...

    Claude Code asks about calls that none of its own rules allows or denies. A person decides, with askfirst answer,
    on a page of askfirst serve or in a messenger, unless the policy does. An approved call runs, with the arguments
    as the person edited them; a denied one does not, and Claude reads why.
    """
    with needs("mcp"):
        from askfirst.adapters.claude_prompt import PermissionPrompts, permission_server
    rules = None if policy is None else policy_from(policy)

    async def run() -> None:
        async with (
            checkpointer_from_url(database_url()) as store,
            Gate(store, policy=rules, timeout=timeout) as gate,
        ):
            prompts = PermissionPrompts(gate, tools or None, wait=wait)
            await permission_server(prompts).run_stdio_async()

    asyncio.run(run())
