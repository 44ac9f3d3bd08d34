"""``askfirst hook``: the gate as a command hook of Claude Code, one process for each event."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, cast

import click

from askfirst.adapters.claude_code import RESUMER, ClaudeHooks, WhilePending
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.claude_options import policy_option, timeout_option, tools_option
from askfirst.cli.output import on_database
from askfirst.errors import HitlInvalidRequest
from askfirst.gate.gate import Gate
from askfirst.limits import BODY_BYTES
from askfirst.permissions.shipped import policy_from


def _event() -> dict[str, Any]:
    raw = sys.stdin.buffer.read(BODY_BYTES + 1)
    if len(raw) > BODY_BYTES:
        raise HitlInvalidRequest(f"the hook's event has more than {BODY_BYTES} bytes, so it is not read")
    try:
        event: Any = json.loads(raw)
    except ValueError:
        raise HitlInvalidRequest(
            "standard input is not JSON: Claude Code gives a hook its event there"
        ) from None
    if not isinstance(event, dict):
        raise HitlInvalidRequest("the hook's event is not a JSON object")
    return cast("dict[str, Any]", event)


def _cwd(event: dict[str, Any]) -> str | None:
    """Where the agent is just now: relative paths start there."""
    cwd = event.get("cwd")
    return cwd if isinstance(cwd, str) and cwd else None


@click.command()
@policy_option
@tools_option
@click.option(
    "--wait",
    type=click.FloatRange(0, 86_400),
    default=540,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the decision. Must be less than the hook's timeout in Claude Code's settings.",
)
@click.option(
    "--pending",
    type=click.Choice(["deny", "ask", "defer"]),
    default="deny",
    show_default=True,
    help="What to answer if nobody has decided by then. defer: stop the session, to be resumed (claude -p only, and "
    "only where a message makes one call). ask: ask at Claude Code's own terminal.",
)
@timeout_option
@click.option(
    "--resumer",
    default=RESUMER,
    show_default=True,
    metavar="NAME",
    help="The resumer that resumes a deferred session.",
)
def hook(
    policy: str | None, tools: tuple[str, ...], wait: float, pending: str, timeout: str | None, resumer: str
) -> None:
    """Answer one event of Claude Code, read from standard input.

    PreToolUse is answered with allow, deny, ask or defer; PostToolUse and PostToolUseFailure record how the call
    ended. Name this command in Claude Code's settings for all three. Exit code 0: the answer is on standard output.
    2: something went wrong, and Claude Code does not run the call.

    The repository of the policy coding-agent is CLAUDE_PROJECT_DIR, which Claude Code sets; relative paths start at
    the event's cwd.
    """
    event = _event()
    rules = None if policy is None else policy_from(policy, os.environ.get("CLAUDE_PROJECT_DIR"), _cwd(event))

    async def answer(checkpointer: SqlCheckpointer) -> dict[str, Any]:
        async with Gate(checkpointer, policy=rules, timeout=timeout) as gate:
            given = cast(WhilePending, pending)
            events = ClaudeHooks.of(gate, tools or None, wait=wait, while_pending=given, resumer=resumer)
            return await events.answer(event)

    click.echo(json.dumps(on_database(answer, acts=True)))
