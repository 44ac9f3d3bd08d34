"""Claude Agent SDK: the gate as hooks and as `can_use_tool`, and a resumer for workers.

Claude Code, which the SDK drives, runs the tools. With `hooks`, it asks the gate before a tool runs, and reports to
the gate afterwards.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
# (the SDK is installed in the environment of this adapter's tests only)

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from askfirst.adapters.claude_code import RESUMER, ClaudeHooks, WhilePending, text_instead
from askfirst.adapters.framework import needs
from askfirst.adapters.gated_call import Start, ToolsGiven
from askfirst.errors import Pending, ResumeFailed
from askfirst.gate.gate import Gate
from askfirst.workers.continuations import Continuation
from askfirst.workers.resumers import Resumer

with needs("claude"):
    from claude_agent_sdk import (
        ClaudeAgentOptions,
        HookMatcher,
        PermissionResultAllow,
        PermissionResultDeny,
        ResultMessage,
        ToolPermissionContext,
        query,
    )

WAIT_SECONDS = 540.0
"""How long a hook waits in place for the decision, by default."""
_MARGIN = 60.0
"""Seconds added to a hook's wait, to give Claude Code's time-out for the hook."""


def hooks(
    gate: Gate,
    matcher: str | None = None,
    tools: ToolsGiven = None,
    *,
    wait: float = WAIT_SECONDS,
    while_pending: WhilePending = "deny",
    resumer: str = RESUMER,
) -> dict[Any, list[HookMatcher]]:
    """Hooks for ``ClaudeAgentOptions(hooks=hooks(gate, matcher="Bash|mcp__.*"))``.

    ``matcher`` is Claude Code's pattern of tool names, None for all. ``tools`` are the names of the tools that a
    person decides on, or a mapping from names to options of `Gate.guarded`. The gate's policy decides on all other
    tools. Without ``tools`` and without a policy, a person decides on every call. The hook waits ``wait`` seconds in
    place for the decision. If nobody has decided by then, the call is denied; with ``while_pending="defer"`` the
    session stops instead, to be resumed by `claude_resumer`. ``"defer"`` is not the default, because Claude Code
    ignores it in interactive sessions and if a message makes several calls, and then runs what its own rules allow. A
    hook that fails blocks the call.
    """
    events = ClaudeHooks.of(
        gate, tools, wait=wait, while_pending=while_pending, resumer=resumer, outlives_tool=True
    )

    async def answer(event: Any, tool_use_id: str | None, context: Any) -> Any:
        return await events.answer(event)

    before = HookMatcher(matcher=matcher, hooks=[answer], timeout=wait + _MARGIN, on_failure="block")
    after = HookMatcher(matcher=matcher, hooks=[answer], timeout=_MARGIN)
    return {"PreToolUse": [before], "PostToolUse": [after], "PostToolUseFailure": [after]}


def can_use_tool(
    gate: Gate, tools: ToolsGiven = None, *, session: str = "sdk", wait: float | None = None
) -> Callable[[str, dict[str, Any], ToolPermissionContext], Awaitable[Any]]:
    """A callback for ``ClaudeAgentOptions(can_use_tool=can_use_tool(gate))`` that waits in place for the decision.

    Claude Code asks it only about calls that none of its own rules allows. ``session`` is the session's id, the same
    as in the options, so that `hooks` used with it recognize the call. A call is denied if its tool is not among
    ``tools`` and the gate has no policy.
    """
    events = ClaudeHooks.of(gate, tools, wait=wait, while_pending="deny", outlives_tool=True)

    async def answer(name: str, args: dict[str, Any], context: ToolPermissionContext) -> Any:
        if not events.tools.has(name):
            return PermissionResultDeny(message=f"{name} was not run: nobody is asked about it.")
        entered = await events.permission(name, args, session, str(context.tool_use_id))
        if isinstance(entered, Start):
            return PermissionResultAllow(updated_input=entered.args)
        if isinstance(entered, Pending):
            return PermissionResultDeny(message=f"{name} waits for a person to decide (case {entered.case}).")
        return PermissionResultDeny(message=text_instead(name, entered))

    return answer


def claude_resumer(
    options: ClaudeAgentOptions | Callable[[str], ClaudeAgentOptions],
    prompt: str = "Continue.",
    *,
    transport: Callable[[], Any] | None = None,
) -> Resumer:
    """A resumer that continues a session when people have decided; it returns the session's `ResultMessage`.

    ``options`` are the session's options, with `hooks`, or a function that returns them for a session's id. They are
    used with ``resume`` set to the session's id.
    """

    async def resume(continuation: Continuation) -> Any:
        session = continuation.thread_id
        given: Any = options(session) if callable(options) else options
        channel = None if transport is None else transport()
        ended: ResultMessage | None = None
        async for message in query(
            prompt=_once(prompt), options=replace(given, resume=session), transport=channel
        ):
            if isinstance(message, ResultMessage):
                ended = message
        if ended is None:
            raise ResumeFailed(f"Claude's session {session!r} ended without a result")
        if ended.is_error:
            said = cast("str | None", ended.result)
            raise ResumeFailed(f"Claude's session {session!r} failed: {said or ended.subtype}")
        return ended

    return resume


async def _once(prompt: str) -> Any:
    """The prompt as a stream of one message: the SDK runs hooks only for streams."""
    yield {"type": "user", "message": {"role": "user", "content": prompt}, "parent_tool_use_id": None}
