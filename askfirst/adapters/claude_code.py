"""Claude Code's hook events at the gate: `PreToolUse` asks, `PostToolUse` and `PostToolUseFailure` record the end.

Claude Code runs the tool itself, between two hooks that may be two processes. So the first hook begins the effect
and the second ends it. A call that is begun and has no end on record is in doubt, and does not run again by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from askfirst.adapters.gated_call import Done, GatedCall, GatedTools, Start, Told, ToolsGiven
from askfirst.agent.verdicts import not_run
from askfirst.errors import HitlError, HitlInvalidRequest, HitlNoPendingRequest, HitlStaleAnswer, Pending
from askfirst.gate.gate import Gate
from askfirst.messages import JsonObject

RESUMER = "claude"
"""The name under which a worker knows the resumer of Claude's sessions, unless another is given."""

WhilePending = Literal["defer", "ask", "deny"]
"""What Claude Code is told while nobody has decided.

``"defer"``: stop the session here, to be resumed (``claude -p`` only, and only where a message makes one call).
``"ask"``: ask at Claude Code's own terminal. ``"deny"``: do not run the call.
"""


@dataclass(frozen=True, slots=True)
class ClaudeHooks:
    """What a hook answers to an event of Claude Code, as a command hook and as a callback of the Agent SDK."""

    tools: GatedTools
    wait: float | None
    """Seconds to wait in place for the decision; None is for ever."""
    while_pending: WhilePending
    stays: bool
    """Whether this process lives as long as the tool runs, and so can hold the grant meanwhile."""

    @classmethod
    def of(
        cls,
        gate: Gate,
        tools: ToolsGiven = None,
        *,
        wait: float | None = 0.0,
        while_pending: WhilePending = "deny",
        resumer: str = RESUMER,
        stays: bool = False,
    ) -> ClaudeHooks:
        """Hooks for a gate; ``tools`` names those that a person decides on, and all others are put to its policy."""
        return cls(GatedTools.of(gate, "claude", tools, resumer), wait, while_pending, stays)

    async def answer(self, event: Mapping[str, Any]) -> JsonObject:
        """What to answer to one event, as Claude Code's JSON; ``{}`` leaves the call to Claude Code's own rules."""
        kind = _text(event, "hook_event_name")
        if kind == "PreToolUse":
            return await self._before(event)
        if kind in ("PostToolUse", "PostToolUseFailure"):
            return await self._after(kind, event)
        return {}

    async def permission(
        self, name: str, args: Mapping[str, Any], session: str, call_id: str
    ) -> Start | Done | Told | Pending:
        """The same for a call by its name, arguments and ids."""
        return await self.entered(self._call(name, args, session, call_id, ()))

    def _call(
        self, name: str, args: Mapping[str, Any], session: str, call_id: str, path: tuple[str, ...]
    ) -> GatedCall:
        return self.tools.call(name, args, thread=session, call_id=call_id, agent_path=path)

    def _called(self, event: Mapping[str, Any]) -> GatedCall | None:
        name, args = _text(event, "tool_name"), event.get("tool_input")
        if not isinstance(args, Mapping):
            raise HitlInvalidRequest(f"the event of {name} has no tool_input, so it cannot be asked about")
        agent = event.get("agent_type") or event.get("agent_id")
        path = (str(agent),) if event.get("agent_id") else ()
        call_id, session = _text(event, "tool_use_id"), _text(event, "session_id")
        given = cast("Mapping[str, Any]", args)
        return self._call(name, given, session, call_id, path) if self.tools.has(name) else None

    async def entered(self, call: GatedCall) -> Start | Done | Told | Pending:
        """Take a call as far as its body, waiting in place for as long as ``wait`` says."""
        entered = await call.enter()
        while isinstance(entered, Pending) and self.wait != 0:
            settled = await call.gate.ledger.wait(call.key, entered.request.question_id, self.wait)
            if settled is None:
                break
            entered = await call.enter()
        return entered

    async def _before(self, event: Mapping[str, Any]) -> JsonObject:
        call = self._called(event)
        if call is None:
            return {}
        entered = await self.entered(call)
        if isinstance(entered, Start):
            if entered.is_recorded and not self.stays:
                await call.gate.ledger.abandon(call.key)  # this process ends before the tool does
            answer: JsonObject = {} if entered.note is None else {"updatedInput": entered.args}
            if entered.note is not None:
                answer["additionalContext"] = entered.note
            return _decision("allow", **answer)
        if isinstance(entered, Pending):
            return await self._waits(call, entered)
        return _decision("deny", permissionDecisionReason=told(call.action.tool, entered))

    async def _waits(self, call: GatedCall, pending: Pending) -> JsonObject:
        why = f"{call.action.tool} waits for a person to decide (case {pending.case})."
        if self.while_pending == "ask":  # whoever sits at the terminal decides, so nobody else is to
            await withdraw(call, "it was asked at Claude Code's own terminal instead")
        elif self.while_pending == "deny":
            await withdraw(call, "nobody decided while Claude Code waited")
            why = not_run(call.action.tool, "nobody decided in time")
        return _decision(self.while_pending, permissionDecisionReason=why)

    async def _after(self, kind: str, event: Mapping[str, Any]) -> JsonObject:
        call = self._called(event)
        if call is None:
            return {}
        await call.gate.ready()
        if not await call.gate.ledger.adopt(call.key):
            if await call.gate.waiting(call.key) is None:
                return {}
            await withdraw(call, "Claude Code ran it before anybody had decided")
            raise HitlError(
                f"Claude Code ran {call.action.tool} although nobody had approved it: it ignores defer in "
                "interactive sessions and where a message makes several calls; let the hook wait or deny instead"
            )
        if kind == "PostToolUse":
            await call.gate.finish(call.key, event.get("tool_response"))
        else:
            await call.gate.fail(call.key, str(event.get("error")))
        await withdraw(call, "it has ended meanwhile")
        return {}


def told(tool: str, outcome: Told | Done) -> str:
    """What the model is told in place of a result; a hook cannot give the result of a call that ran before."""
    if isinstance(outcome, Told):
        return outcome.text
    ran = f"{tool} ran before, so it was not run again. Its result was: {outcome.value!r}"
    return ran if outcome.note is None else f"{outcome.note} {ran}"


async def withdraw(call: GatedCall, reason: str) -> None:
    """End what is open about a call, if anything is."""
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
