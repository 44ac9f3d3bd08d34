"""The gate: what must be settled for a call before its body may start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel

from assent.agent.arguments import expected, parse_args, unknown_tool
from assent.agent.asking import asking_from, is_about, is_from_body
from assent.agent.emitter import logger
from assent.agent.middleware import BeforeToolCallResult, ToolCallContext
from assent.agent.people import Waiting, ask_approve, ask_escalate
from assent.agent.run import Run
from assent.agent.tools import Tool, json_object
from assent.agent.verdict import (
    APPROVED,
    approve_trace,
    args_digest,
    escalate_trace,
    refusal_of,
    with_decision,
)
from assent.checkpointer.base import StoredEffect
from assent.errors import HitlAborted, HitlCancelled, HitlTimedOut
from assent.messages import JsonObject, ToolCall


@dataclass(frozen=True, slots=True)
class Admitted:
    """A call that may run, with the arguments that it runs with."""

    call: ToolCall
    tool: Tool
    args: BaseModel
    trace: JsonObject | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that does not run, and what the model is told instead."""

    call: ToolCall
    why: str
    trace: JsonObject | None = None


Settled = Admitted | Refused


async def settle(run: Run, calls: Sequence[ToolCall]) -> list[Settled]:
    """Settle every call of a message, in order, before any of them starts.

    Where a person has to be asked and nobody waits for the answer here, the run stops with all such requests
    open.
    """
    settled: list[Settled] = []
    waiting: list[Waiting] = []
    for call in calls:
        item = await _settle(run, call)
        if isinstance(item, Waiting):
            waiting.append(item)
        else:
            settled.append(item)
    if waiting:
        await run.pause([item.request for item in waiting])
    await _withdraw_moot(run, settled)
    return settled


async def _withdraw_moot(run: Run, settled: Sequence[Settled]) -> None:
    """End what is still asked about calls that were settled without it, such as those of a tool that is gone.

    What the body of an admitted call asked before a restart is not moot: the body asks it again.
    """
    if run.thread.pending is None:
        return
    for item in settled:
        for known in list(run.thread.requests.values()):
            is_open = known.status == "pending" and is_about(known.question_id, item.call.id)
            if is_open and not (isinstance(item, Admitted) and is_from_body(known.question_id, item.call.id)):
                await run.withdraw(known.question_id, "its call was settled without it")


async def _settle(run: Run, call: ToolCall) -> Settled | Waiting:
    """Settle one call; one that was started before and is not run now may have taken effect then."""
    effect = run.thread.effects.get(call.id)
    settled = await _decide(run, call, effect)
    if effect is not None and isinstance(settled, Refused):
        return replace(settled, why=f"{settled.why} {_UNKNOWN_END}")
    return settled


async def _decide(run: Run, call: ToolCall, effect: StoredEffect | None) -> Settled | Waiting:
    """Arguments, an effect in doubt, middleware from the outside in, a person; whatever goes wrong refuses."""
    admitted = _admit(run, call)
    if isinstance(admitted, Refused):
        return admitted
    if effect is None and not run.spec.onion.before_tool_call and not admitted.tool.requires_approval:
        return admitted
    with asking_from("gate", call.id, call.name):
        try:
            settled: Settled | Waiting = admitted
            if effect is not None:
                settled = await _resolve_doubt(run, admitted, effect)
            if isinstance(settled, Admitted):
                settled = await _through_middleware(run, settled)
            if isinstance(settled, Admitted):
                settled = await _approved(run, settled)
            return settled
        except (HitlTimedOut, HitlCancelled) as signal:
            why, trace = refusal_of(call.name, signal)
            return Refused(call, why, trace)


def _admit(run: Run, call: ToolCall) -> Settled:
    """Admit what can be run at all."""
    tool = run.spec.tools_by_name.get(call.name)
    if tool is None:
        return Refused(call, unknown_tool(call.name, list(run.spec.tools_by_name)))
    if call.malformed is not None:
        return Refused(call, f"The arguments of {tool.name} were not a JSON object. {expected(tool)}")
    args = parse_args(tool, call.args)
    if isinstance(args, str):
        why = f"The arguments of {tool.name} are invalid, so it was not run. {args} {expected(tool)}"
        return Refused(call, why)
    return Admitted(call, tool, args)


_UNKNOWN_END = "It was started before and interrupted: whether it took effect then is unknown."


async def _resolve_doubt(run: Run, admitted: Admitted, effect: StoredEffect) -> Settled | Waiting:
    """A body that was started and whose end nobody saw: run it again if that does no harm, else ask."""
    call, tool = admitted.call, admitted.tool
    again = replace(admitted, attempt=effect.attempt + 1)
    if "once" not in (effect.effect, tool.effect):
        return again
    answer = await ask_escalate(run, call, json_object(admitted.args), effect.attempt)
    if answer is None:
        return Refused(call, f"{tool.name} was not run again: there is nobody to ask.")
    if isinstance(answer, Waiting):
        return answer
    trace = escalate_trace(answer)
    if answer.action == "abort":
        raise HitlAborted(answer.reason or f"{tool.name} was interrupted, and a person chose to stop")
    if answer.action == "skip":
        return Refused(call, f"{tool.name} was not run again, as a person decided.", trace)
    if answer.modified_params is None:
        return replace(again, trace=trace)
    args = parse_args(tool, answer.modified_params)
    if isinstance(args, str):
        return Refused(call, f"{tool.name} was not run again: the new arguments do not fit. {args}", trace)
    return replace(again, args=args, trace=trace)


async def _through_middleware(run: Run, admitted: Admitted) -> Settled:
    call, tool, args, trace = admitted.call, admitted.tool, admitted.args, admitted.trace
    for hook in run.spec.onion.before_tool_call:
        ctx = ToolCallContext(
            call, tool, args, tuple(run.messages), run.thread.thread_id, run.run_id, run.signal
        )
        try:
            decision = await hook(ctx)
            if decision is None:
                continue
            if not isinstance(decision, BeforeToolCallResult):
                raise TypeError(f"before_tool_call returned {decision!r}, which is no BeforeToolCallResult")
        except Exception as error:
            logger.exception("before_tool_call raised on %s; the call is refused", tool.name)
            why = f"{tool.name} was not run: a check before it failed ({type(error).__name__})."
            return Refused(call, why, trace)
        if decision.hitl_trace is not None:
            trace = with_decision(trace, decision.hitl_trace)
        if decision.block:
            return Refused(call, decision.reason or f"{tool.name} was not allowed to run.", trace)
        if decision.edited_args is not None:
            edited = parse_args(tool, decision.edited_args)
            if isinstance(edited, str):
                return _misfit(call, edited, trace)
            args = edited
    return replace(admitted, args=args, trace=trace)


async def _approved(run: Run, admitted: Admitted) -> Settled | Waiting:
    """What was seen is what runs: an approval counts for the very arguments it was given for.

    A person is asked (again) if the tool requires it and no approval is on record, or if the arguments have
    changed since. Where nobody can be asked, the call is refused.
    """
    call, tool, before = admitted.call, admitted.tool, admitted.trace or {}
    on_record = before.get("decision") in APPROVED
    if on_record and before.get("digest") == args_digest(tool, admitted.args):
        return admitted
    if not on_record and not tool.requires_approval:
        return admitted
    args = json_object(admitted.args)
    answer = await ask_approve(run, call, args)
    if answer is None:
        why = f"{tool.name} was not run: it requires a person's approval, and there is nobody to ask."
        return Refused(call, why, admitted.trace)
    if isinstance(answer, Waiting):
        return answer
    trace = with_decision(before, approve_trace(tool, args, answer))
    if answer.decision == "deny":
        return Refused(call, denial(tool.name, answer.reason), trace)
    if answer.edited_args is None:
        return replace(admitted, trace=trace)
    edited = parse_args(tool, answer.edited_args)
    if isinstance(edited, str):
        return _misfit(call, edited, trace)
    return replace(admitted, args=edited, trace=trace)


def _misfit(call: ToolCall, faults: str, trace: JsonObject | None) -> Refused:
    """Edited arguments that the tool does not take; a person's edit that never ran is recorded as such."""
    if trace is not None and trace.get("decision") == "human_edit":
        trace = {**trace, "decision": "invalid_edit"}
    return Refused(call, f"{call.name} was not run: the edited arguments do not fit. {faults}", trace)


def denial(tool_name: str, reason: str | None) -> str:
    """What the model is told when a person said no."""
    return f"A person denied {tool_name}" + (f": {reason}" if reason else ".")
