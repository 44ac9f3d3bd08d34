"""Claude Code's hook events at the gate: `PreToolUse` asks, `PostToolUse` and `PostToolUseFailure` record the end.

Claude Code runs the tool itself, between two hooks that may be two processes. So the first hook begins the effect
and the second finishes it. A call that was begun and not finished is in doubt: only a person can let it run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from askfirst.adapters.gated_call import Done, GatedCall, GatedTools, NotRun, Start, ToolsGiven
from askfirst.agent.verdicts import not_run
from askfirst.errors import HitlError, HitlInvalidRequest, HitlNoPendingRequest, HitlStaleAnswer, Pending
from askfirst.gate.gate import Gate
from askfirst.messages import JsonObject

RESUMER = "claude"
"""The name under which a worker knows the resumer of Claude's sessions, unless another is given."""

WhilePending = Literal["defer", "ask", "deny"]
"""What a hook answers while nobody has decided.

``"defer"``: stop the session here, to be resumed (``claude -p`` only, and only if a message makes one call).
``"ask"``: ask at Claude Code's own terminal. ``"deny"``: do not run the call.
"""


@dataclass(frozen=True, slots=True)
class ClaudeHooks:
    """Answers the hook events of Claude Code, for command hooks and for callbacks of the Agent SDK."""

    tools: GatedTools
    wait: float | None
    """Seconds to wait in place for the decision; None waits without limit."""
    while_pending: WhilePending
    outlives_tool: bool
    """Whether this process lives until the tool has ended. Then it holds the call's grant until that end."""

    @classmethod
    def of(
        cls,
        gate: Gate,
        tools: ToolsGiven = None,
        *,
        wait: float | None = 0.0,
        while_pending: WhilePending = "deny",
        resumer: str = RESUMER,
        outlives_tool: bool = False,
    ) -> ClaudeHooks:
        """Hooks for a gate. ``tools`` names the tools that a person decides on; the policy decides on all others."""
        return cls(GatedTools.of(gate, "claude", tools, resumer), wait, while_pending, outlives_tool)

    async def answer(self, event: Mapping[str, Any]) -> JsonObject:
        """The answer to one event, as Claude Code's JSON; ``{}`` leaves the call to Claude Code's own rules."""
        kind = _text(event, "hook_event_name")
        if kind == "PreToolUse":
            return await self._before(event)
        if kind in ("PostToolUse", "PostToolUseFailure"):
            return await self._after(kind, event)
        return {}

    async def permission(
        self, name: str, args: Mapping[str, Any], session: str, call_id: str
    ) -> Start | Done | NotRun | Pending:
        """Put a call to the gate, given by its name, arguments and ids; see `enter`."""
        return await self.enter(self._call(name, args, session, call_id, ()))

    def _call(
        self, name: str, args: Mapping[str, Any], session: str, call_id: str, path: tuple[str, ...]
    ) -> GatedCall:
        return self.tools.call(name, args, thread=session, call_id=call_id, agent_path=path)

    def _call_in(self, event: Mapping[str, Any]) -> GatedCall | None:
        """The call in a hook event; None if its tool does not go through the gate."""
        name, args = _text(event, "tool_name"), event.get("tool_input")
        if not isinstance(args, Mapping):
            raise HitlInvalidRequest(
                f"the event of {name} has no tool_input, so nobody can be asked about it"
            )
        agent = event.get("agent_type") or event.get("agent_id")
        path = (str(agent),) if event.get("agent_id") else ()
        call_id, session = _text(event, "tool_use_id"), _text(event, "session_id")
        given = cast("Mapping[str, Any]", args)
        return self._call(name, given, session, call_id, path) if self.tools.has(name) else None

    async def enter(self, call: GatedCall) -> Start | Done | NotRun | Pending:
        """Take a call through the gate up to its body, waiting in place for at most ``wait`` seconds."""
        return await call.enter_within(self.wait)

    async def _before(self, event: Mapping[str, Any]) -> JsonObject:
        call = self._call_in(event)
        if call is None:
            return {}
        entered = await self.enter(call)
        if isinstance(entered, Start):
            if entered.is_recorded and not self.outlives_tool:
                await call.gate.ledger.abandon(call.key)  # this process ends before the tool does
            answer: JsonObject = {} if entered.note is None else {"updatedInput": entered.args}
            if entered.note is not None:
                answer["additionalContext"] = entered.note
            return _decision("allow", **answer)
        if isinstance(entered, Pending):
            return await self._undecided(call, entered)
        return _decision("deny", permissionDecisionReason=text_instead(call.action.tool, entered))

    async def _undecided(self, call: GatedCall, pending: Pending) -> JsonObject:
        """The answer to a hook while nobody has decided on its call: see `WhilePending`."""
        why = f"{call.action.tool} waits for a person to decide (case {pending.case})."
        if self.while_pending == "ask":  # the person at the terminal decides, so nobody else should
            await cancel_request(call, "it was asked at Claude Code's own terminal instead")
        elif self.while_pending == "deny":
            await cancel_request(call, "nobody decided while Claude Code waited")
            why = not_run(call.action.tool, "nobody decided in time")
        return _decision(self.while_pending, permissionDecisionReason=why)

    async def _after(self, kind: str, event: Mapping[str, Any]) -> JsonObject:
        call = self._call_in(event)
        if call is None:
            return {}
        await call.gate.ready()
        if not await call.gate.ledger.adopt(call.key):
            if await call.gate.waiting(call.key) is None:
                return {}
            await cancel_request(call, "Claude Code ran it before anybody had decided")
            raise HitlError(
                f"Claude Code ran {call.action.tool} although nobody had approved it: it ignores defer in "
                "interactive sessions and where a message makes several calls; let the hook wait or deny instead"
            )
        if kind == "PostToolUse":
            await call.gate.finish(call.key, event.get("tool_response"))
        else:
            await call.gate.fail(call.key, str(event.get("error")))
        await cancel_request(call, "its call has ended meanwhile")
        return {}


def text_instead(tool: str, outcome: NotRun | Done) -> str:
    """The text for the model in place of a result: a hook cannot return the result of a call that ran before."""
    if isinstance(outcome, NotRun):
        return outcome.text
    ran = f"{tool} ran before, so it was not run again. Its result was: {outcome.value!r}"
    return ran if outcome.note is None else f"{outcome.note} {ran}"


async def cancel_request(call: GatedCall, reason: str) -> None:
    """Cancel the open request about a call, if there is one."""
    try:
        await call.gate.cancel(call.key, reason)
    except (HitlNoPendingRequest, HitlStaleAnswer):
        return


def _decision(decision: str, **more: Any) -> JsonObject:
    return {
        "hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision, **more},
    }


def _text(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    if not isinstance(value, str) or not value:
        raise HitlInvalidRequest(f"the hook's event has no {name}, so it cannot be put to the gate")
    return value
