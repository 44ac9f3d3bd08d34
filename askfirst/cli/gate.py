"""``askfirst gate``: a gate before an MCP server, for any client."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from askfirst.account import os_account
from askfirst.adapters.framework import needs
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.link import issue_link
from askfirst.cli.output import database_url, say
from askfirst.errors import Pending
from askfirst.gate.gate import Gate
from askfirst.ids import BASE_URL_VARIABLE
from askfirst.limits import LINK_DAYS
from askfirst.permissions.shipped import policy_from
from askfirst.requests import approval_seconds
from askfirst.service.callbacks import SECRET_VARIABLE
from askfirst.service.egress import check_base_url

if TYPE_CHECKING:
    from askfirst.adapters.mcp_gate import Link, McpGate


def _seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    try:
        return approval_seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter("write HOST:PORT, such as 127.0.0.1:8765.")
    return host.removeprefix("[").removesuffix("]"), int(port)


@click.command()
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]")
@click.option("--policy", metavar="FILE", help="The rules. Without rules a person decides on every call.")
@click.option(
    "--name", default="mcp", show_default=True, help="The server's name; rules match it as their toolset."
)
@click.option(
    "--timeout", callback=_seconds, metavar="TIME", help="How long people have to decide, such as 24h."
)
@click.option("--to", help="Who is to be asked; kept with the request.")
@click.option(
    "--hold",
    type=click.FloatRange(0, 3_600),
    default=20.0,
    show_default=True,
    help="How many seconds a call is held before the client is told that it waits.",
)
@click.option(
    "--listen",
    callback=_address,
    metavar="HOST:PORT",
    help="Listen for HTTP at this address; needs --upstream.",
)
@click.option("--upstream", metavar="URL", help="The MCP endpoint behind the gate.")
@click.option(
    "--base-url",
    envvar=BASE_URL_VARIABLE,
    show_envvar=True,
    help="The public URL of the service, for the address that clients get.",
)
@click.option(
    "--answering-links",
    is_flag=True,
    help="Give clients a link with which anyone may answer. See the warning above.",
)
def gate(
    command: tuple[str, ...],
    policy: str | None,
    name: str,
    timeout: float | None,
    to: str | None,
    hold: float,
    listen: tuple[str, int] | None,
    upstream: str | None,
    base_url: str | None,
    answering_links: bool,
) -> None:
    """Run a gate before an MCP server.

    Each call of its tools is allowed, denied, or put to a person first.

    \b
    askfirst gate --policy policy.yaml -- npx some-server
    askfirst gate --policy policy.yaml --listen 127.0.0.1:8765 --upstream https://...

    With a COMMAND it starts that server, and speaks to the client on standard input and output. With
    --listen and --upstream it is an HTTP proxy before another MCP server (streamable HTTP). FILE is a file
    of rules, or the name of a policy that Askfirst ships: coding-agent. Everything except calls of tools is
    passed on unchanged.

    While a person decides, a client that can open links gets the address of the case, a client that
    supports tasks gets a task, and any other client gets an error result that says that the call waits. The
    same call, made again, gets the decision. An approval holds for one call. People find open requests with
    askfirst pending, and through the deliveries and pages of askfirst serve.

    The address that a client gets has no token, so nobody can answer with it: people use the link that a
    delivery or askfirst link gives them. With --answering-links the address has a token, and anyone who
    opens it may answer. Use that only if the agent itself cannot open web pages.

    If ASKFIRST_SECRET is set, clients can continue after a restart of the gate.
    """
    if bool(command) == bool(upstream) or bool(listen) != bool(upstream):
        raise click.UsageError("give a COMMAND after --, or --listen and --upstream.")
    if answering_links and base_url is None:
        raise click.UsageError("--answering-links needs --base-url.")
    with needs("mcp"):
        from askfirst.adapters.mcp_gate import McpGate
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="askfirst gate: %(message)s")
    rules = None if policy is None else policy_from(policy)

    async def run() -> int:
        async with checkpointer_from_url(database_url()) as store:
            made = Gate(store, policy=rules, timeout=timeout, to=to, base_url=base_url)
            link = _answering(store, base_url) if answering_links and base_url is not None else None
            standing = McpGate(made, name, secret=os.environ.get(SECRET_VARIABLE), hold=hold, link=link)
            if listen is None or upstream is None:
                return await _stdio(standing, command)
            return await _http(standing, listen, upstream)

    code = asyncio.run(run())
    sys.stdout.flush()
    if listen is None:
        os._exit(code)  # a thread may still wait for the client's next line
    click.get_current_context().exit(code)


def _answering(store: SqlCheckpointer, base_url: str) -> Link:
    """Links with a token, one for each case."""
    check_base_url(base_url)
    known: dict[str, str] = {}

    async def link(pending: Pending) -> str | None:
        if pending.case not in known:
            known[pending.case] = await issue_link(pending.case, base_url.rstrip("/"), LINK_DAYS, store)
        return known[pending.case]

    return link


async def _stdio(gate: McpGate, command: Sequence[str]) -> int:
    from askfirst.adapters.mcp_stdio import StdioGate

    if shutil.which(command[0]) is None:
        raise click.UsageError(f"there is no command {command[0]!r}.")
    return await StdioGate(gate, command, f"{os_account()} by {shlex.join(command)}").run()


async def _http(gate: McpGate, listen: tuple[str, int], upstream: str) -> int:
    with needs("mcp"):
        import uvicorn

        from askfirst.adapters.mcp_http import HttpGate

    host, port = listen
    made = HttpGate(gate, upstream, f"{os_account()} by {upstream}")
    server = uvicorn.Server(uvicorn.Config(made.app, host, port, log_level="warning", lifespan="off"))
    say(f"The gate listens at http://{host}:{port}. Ctrl-C ends it.", err=True)
    try:
        await server.serve()
    finally:
        await made.aclose()
    return 0
