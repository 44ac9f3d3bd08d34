"""The gate before a call's body: policy, effects in doubt, middleware, person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pydantic import BaseModel

from askfirst.agent.arguments import parse_args, parse_edit, whole
from askfirst.agent.asking import (
    MOOT,
    answered_before,
    ask_approve,
    ask_escalate,
    end_asked,
    refused_before,
)
from askfirst.agent.context import Asking
from askfirst.agent.emitter import logger
from askfirst.agent.inbox import grounds, tell
from askfirst.agent.question_ids import is_about, is_from_body
from askfirst.agent.run import Run
from askfirst.agent.spec import BeforeToolCallResult, ToolCallContext
from askfirst.agent.thread import last_answer
from askfirst.agent.tools import Tool, json_object
from askfirst.agent.verdicts import (
    APPROVED,
    CHANGED_UNSEEN,
    UNKNOWN_END,
    approve_trace,
    args_digest,
    blocked,
    denial,
    escalate_trace,
    invalid_args,
    misfit,
    misfit_rerun,
    not_allowed,
    not_an_object,
    not_rerun,
    not_run,
    refusal_of,
    unknown_tool,
    with_decision,
)
from askfirst.checkpointer.base import StoredEffect
from askfirst.errors import HitlAborted, HitlCancelled, HitlTimedOut
from askfirst.messages import JsonObject, ToolCall, call_digest
from askfirst.permissions.decision import Decision, PendingAction
from askfirst.permissions.evaluate import decide
from askfirst.permissions.guardrails import judge_answer, stricter, tighten
from askfirst.requests import ApproveAnswer, EscalateAnswer, HitlRequest, approval_seconds

# Policy and guardrails: decisions about calls before they run. An error in one of them denies the call.


ALLOWED = Decision.allow()


def is_judged(run: Run) -> bool:
    """Whether the agent has a policy or guardrails."""
    return run.actor.policy is not None or bool(run.actor.spec.guardrails)


async def judge(run: Run, calls: Sequence[tuple[Tool, str, JsonObject]]) -> list[Decision]:
    """A decision for each call (the tool, the call's id, its arguments): the policy's, or a stricter one.

    The policy is asked about all of them at once, the guardrails after it.
    """
    if not calls or not is_judged(run):
        return [ALLOWED for _ in calls]
    actions = [
        PendingAction(
            tool=tool.name,
            principal=run.actor.principal,
            toolset=tool.toolset,
            args=args,
            tool_call_id=call_id,
            agent_path=run.actor.path,
        )
        for tool, call_id, args in calls
    ]
    decisions = await decide(run.actor.policy, actions)
    guardrails = run.actor.spec.guardrails
    if not guardrails:
        return decisions
    decisions = await tighten(decisions, actions, guardrails)
    said = last_answer(run.thread.messages)
    objection = None if said is None else await judge_answer(said, guardrails)
    if objection is None:
        return decisions
    return [stricter(decision, objection) for decision in decisions]


async def judge_call(run: Run, tool: Tool, call_id: str, args: object) -> Decision:
    """The decision about one call with these arguments, a model or a mapping."""
    [decision] = await judge(run, [(tool, call_id, json_object(args))])
    return decision


@dataclass(frozen=True, slots=True)
class Admitted:
    """A call that may run, with the arguments that it runs with."""

    call: ToolCall
    tool: Tool
    args: BaseModel
    trace: JsonObject | None = None
    attempt: int = 1
    digest: str | None = None
    """The digest of these arguments, if it was computed."""
    grant: str | None = None
    """The digest of the grant that made asking a person unnecessary."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that does not run, and what the model is told instead."""

    call: ToolCall
    why: str
    trace: JsonObject | None = None


Settled = Admitted | Refused


async def settle(run: Run, calls: Sequence[ToolCall]) -> tuple[list[Settled], list[HitlRequest]]:
    """Decide about calls, in order. Returns the settled calls, and the requests that the other calls wait for."""
    admitted = [_admit(run, call) for call in calls]
    settled: list[Settled] = []
    waiting: list[HitlRequest] = []
    for item, decision in zip(admitted, await _judged(run, admitted), strict=True):
        effect = run.thread.effects.get(item.call.id)
        outcome = await _decide(run, item, decision, effect)
        if isinstance(outcome, HitlRequest):
            waiting.append(outcome)
        elif effect is not None and isinstance(outcome, Refused):  # its earlier start may have taken effect
            settled.append(replace(outcome, why=f"{outcome.why} {UNKNOWN_END}"))
        else:
            settled.append(outcome)
    if not waiting or run.actor.spec.tool_gate == "each":
        await _cancel_moot(run, settled)
        await _tell_resolved(run, settled)
    return settled, waiting


async def put(run: Run, waiting: Sequence[HitlRequest], *, release: bool) -> None:
    """Store the requests that calls wait for, and tell listeners of the new ones."""
    for request in await run.put(waiting, release=release):
        await tell(run, request, "requested")


async def _tell_resolved(run: Run, settled: Sequence[Settled]) -> None:
    """Tell listeners of decisions that people made while no wait was open in this process."""
    if run.channel is not None or not run.thread.requests:
        return
    for item in settled:
        known = run.thread.requests.get(item.call.id)
        if known is not None and isinstance(known.answer, ApproveAnswer):
            await tell(run, known.request, "resolved", known.answer.decision)


async def _judged(run: Run, admitted: Sequence[Settled]) -> Sequence[Decision]:
    """The decisions of policy and guardrails about all calls; a refused call is not put to them."""
    if not is_judged(run):
        return [ALLOWED] * len(admitted)
    able = [item for item in admitted if isinstance(item, Admitted)]
    judged = iter(await judge(run, [(it.tool, it.call.id, json_object(it.args)) for it in able]))
    return [next(judged) if isinstance(item, Admitted) else ALLOWED for item in admitted]


async def _cancel_moot(run: Run, settled: Sequence[Settled]) -> None:
    """Cancel pending requests about calls that were settled without an answer, such as calls of a removed tool.

    Requests that the body of an admitted call opened before a restart stay open: the body asks again.
    """
    if run.thread.pending is not None:
        for item in settled:
            await run.cancel_where(partial(_is_moot, item), MOOT)
    if run.work.asked:  # requests of hooks that stopped waiting
        await end_asked(run, [item.call.id for item in settled])


def _is_moot(settled: Settled, question_id: str) -> bool:
    call_id = settled.call.id
    by_its_body = isinstance(settled, Admitted) and is_from_body(question_id, call_id)
    return is_about(question_id, call_id) and not by_its_body


async def _decide(
    run: Run, admitted: Settled, decision: Decision, effect: StoredEffect | None
) -> Settled | HitlRequest:
    """Decide about one call: policy, middleware from the outside in, effect in doubt, person. Errors refuse the call.

    Arguments that change on the way are put to the policy again.
    """
    if isinstance(admitted, Refused):
        return admitted
    call, tool = admitted.call, admitted.tool
    run.thread.at_gate.pop(call.id, None)
    verdict = decision.verdict
    free = verdict == "allow" and not tool.requires_approval
    if free and effect is None and not run.actor.spec.onion.before_tool_call and not run.thread.requests:
        return admitted if decision.grant is None else replace(admitted, grant=decision.grant)
    with Asking("gate", call.id, call.name):
        try:
            before = await refused_before(run, call)
            if before is not None:  # a denial is final, whatever the policy decides now
                return _denied_before(admitted, before)
            if verdict == "deny":
                return _not_allowed(admitted, decision)
            settled: Settled | HitlRequest = admitted
            run.thread.at_gate[call.id] = admitted.args
            if run.actor.spec.onion.before_tool_call:
                settled = await _through_middleware(run, admitted)
            if effect is not None and isinstance(settled, Admitted):
                settled = await _resolve_doubt(run, settled, effect)
            if isinstance(settled, Admitted) and settled.args is not admitted.args and is_judged(run):
                decision = await judge_call(run, tool, call.id, settled.args)
                settled = _not_allowed(settled, decision) if decision.verdict == "deny" else settled
            if isinstance(settled, Admitted):
                settled = await _approved(run, settled, decision)
            return settled
        except (HitlTimedOut, HitlCancelled) as signal:
            why, trace = refusal_of(call.name, signal)
            return Refused(call, why, trace)


def _denied_before(admitted: Admitted, before: ApproveAnswer | HitlRequest) -> Refused | HitlRequest:
    """The refusal that follows from a denial recorded earlier; or the request, while that has to be waited for."""
    if isinstance(before, HitlRequest):
        return before
    trace = approve_trace(admitted.tool, admitted.args, before)
    return Refused(admitted.call, denial(admitted.tool.name, before.reason), trace)


def _not_allowed(admitted: Admitted, decision: Decision) -> Refused:
    """A call that the policy, or a guardrail, denies."""
    trace: JsonObject = {"decision": "policy_deny"}
    if decision.reason is not None:
        trace["reason"] = decision.reason
    if decision.matched_rule_id is not None:
        trace["matched_rule_id"] = decision.matched_rule_id
    why = not_allowed(admitted.tool.name, decision.reason)
    return Refused(admitted.call, why, with_decision(admitted.trace, trace))


def _admit(run: Run, call: ToolCall) -> Settled:
    """Admit a call whose tool exists and whose arguments are valid; refuse any other."""
    tool = run.actor.spec.tools_by_name.get(call.name)
    if tool is None:
        return Refused(call, unknown_tool(call.name, list(run.actor.spec.tools_by_name)))
    if call.malformed is not None:
        return Refused(call, not_an_object(tool))
    args = parse_args(tool, call.args)
    if isinstance(args, str):
        return Refused(call, invalid_args(tool, args))
    return Admitted(call, tool, args)


async def _resolve_doubt(run: Run, admitted: Admitted, effect: StoredEffect) -> Settled | HitlRequest:
    """Settle a call in doubt: its body was started, and its end is unknown. Rerun it if that is harmless, else ask.

    The person decides about the arguments that would run. They are told if the body was started with others.
    """
    call, tool = admitted.call, admitted.tool
    shown, args = _started(run, admitted, effect)
    changed = shown is None
    again = replace(admitted, args=args, attempt=effect.attempt + 1)
    if "once" not in (effect.effect, tool.effect) and not changed:
        return again
    would_run = shown or _as_decided(run, admitted)
    answer = await ask_escalate(run, call, would_run, effect.attempt, changed=changed)
    if isinstance(answer, HitlRequest):
        return answer
    trace = with_decision(admitted.trace, escalate_trace(tool, would_run, answer))
    if answer.action == "abort":
        raise HitlAborted(answer.reason or f"{tool.name} was interrupted, and a person chose to stop")
    if answer.action == "skip":
        return Refused(call, not_rerun(tool.name, answer.reason), trace)
    if answer.modified_params is None:
        return replace(again, trace=trace)
    args = parse_edit(tool, would_run, answer.modified_params)
    if isinstance(args, str):
        trace["decision"] = "invalid_edit"  # nothing was retried
        return Refused(call, misfit_rerun(tool.name, args), trace)
    return replace(again, args=args, trace=trace)


def _started(run: Run, admitted: Admitted, effect: StoredEffect) -> tuple[BaseModel | None, BaseModel]:
    """Two sets of arguments: those the body was started with (None if unknown), and those the gate continues with.

    The two differ if a person edited the arguments: the edit is applied later, with the approval.
    """
    args, decided = admitted.args, _as_decided(run, admitted)
    if not effect.digest or args_digest(admitted.tool, decided) == effect.digest:
        return decided, args
    for retried in _retried_with(run, admitted, decided):
        if args_digest(admitted.tool, retried) == effect.digest:
            return retried, retried
    return None, args


def _as_decided(run: Run, admitted: Admitted) -> BaseModel:
    """The arguments with the person's recorded edit applied, if there is one."""
    answer = answered_before(run, admitted.call)
    if answer is None or answer.edited_args is None:
        return admitted.args
    edited = parse_edit(admitted.tool, admitted.args, answer.edited_args)
    return admitted.args if isinstance(edited, str) else edited


def _retried_with(run: Run, admitted: Admitted, args: BaseModel) -> Iterator[BaseModel]:
    """The arguments that a person gave, or was shown, when an earlier start of this call was in doubt."""
    for known in run.thread.requests.values():
        asked = known.request.payload.call
        if (
            asked is None
            or known.request.payload.kind != "escalate"
            or asked.tool_call_id != admitted.call.id
        ):
            continue
        given = known.answer.modified_params if isinstance(known.answer, EscalateAnswer) else None
        for edit in (given, asked.args):
            read = None if edit is None else parse_edit(admitted.tool, args, edit)
            if read is not None and not isinstance(read, str):
                yield read


async def _through_middleware(run: Run, admitted: Admitted) -> Settled:
    call, tool, args, trace = admitted.call, admitted.tool, admitted.args, admitted.trace
    approved: BaseModel | None = None
    for hook in run.actor.spec.onion.before_tool_call:
        run.thread.at_gate[call.id] = args
        ctx = ToolCallContext(
            call, tool, args, tuple(run.thread.messages), run.thread.thread_id, run.run_id, run.stop.event
        )
        decision = await _decided(hook, ctx)
        if decision is None:
            continue
        if decision.hitl_trace is not None:
            trace = with_decision(trace, decision.hitl_trace)
        if decision.block:
            return Refused(call, decision.reason or blocked(tool.name), trace)
        if decision.edited_args is not None:
            edited = parse_edit(tool, args, decision.edited_args)
            if isinstance(edited, str):
                return _misfit(call, edited, trace)
            if approved is not None and decision.hitl_trace is None and _differ_unseen(approved, edited):
                return Refused(call, not_run(tool.name, CHANGED_UNSEEN), trace)
            args = edited
        if decision.hitl_trace is not None:
            approved = args if trace is not None and trace.get("decision") in APPROVED else None
    return replace(admitted, args=args, trace=trace)


async def _decided(
    hook: Callable[[ToolCallContext], Awaitable[BeforeToolCallResult | None]], ctx: ToolCallContext
) -> BeforeToolCallResult | None:
    """A hook's decision about a call; an exception in the hook blocks the call."""
    name = ctx.tool.name
    try:
        decision = await hook(ctx)
        if decision is not None and not isinstance(decision, BeforeToolCallResult):
            raise TypeError(f"before_tool_call returned {decision!r}, which is not a BeforeToolCallResult")
        return decision
    except Exception as error:
        logger.exception("before_tool_call raised on %s; the call is refused", name)
        why = f"a check before it failed ({type(error).__name__})"
        trace: JsonObject = {"decision": "policy_deny", "reason": why}
        return BeforeToolCallResult(block=True, reason=not_run(name, why), hitl_trace=trace)


def _differ_unseen(approved: BaseModel, args: BaseModel) -> bool:
    """Whether arguments differ from the approved ones only in hidden parts, such as secrets."""
    shown = json_object(args)
    return json_object(approved) == shown and whole(args, shown, made=False) != whole(
        approved, shown, made=False
    )


async def _approved(run: Run, admitted: Admitted, decision: Decision) -> Settled | HitlRequest:
    """Make sure that an approval is for exactly the arguments that will run.

    A person is asked (again) if the tool or the policy requires an approval and none is recorded, or if the
    arguments have changed since. A recorded decision holds even if no approval would be required now. A person's
    edit is put to the policy, which may deny it.
    """
    call, tool, before = admitted.call, admitted.tool, admitted.trace or {}
    on_record = before.get("decision") in APPROVED
    required = tool.requires_approval or decision.requires_approval
    if not on_record and not required and answered_before(run, call) is None:
        return admitted if decision.grant is None else replace(admitted, grant=decision.grant)
    shown = json_object(admitted.args)
    digest = call_digest(tool.name, shown)
    if on_record and before.get("digest") == digest:
        return Admitted(call, tool, admitted.args, admitted.trace, admitted.attempt, digest)
    run.thread.at_gate[call.id] = admitted.args
    details = grounds(run.actor.path, run.actor.principal, decision)
    seconds = _seconds(run, tool, decision)
    answer = await ask_approve(run, call, admitted.args, shown, digest, details, seconds)
    if isinstance(answer, HitlRequest):
        return answer
    trace = with_decision(before, approve_trace(tool, admitted.args, answer, digest))
    if answer.decision == "deny":
        return Refused(call, denial(tool.name, answer.reason), trace)
    if answer.edited_args is None:
        return Admitted(call, tool, admitted.args, trace, admitted.attempt, digest)
    edited = parse_edit(tool, admitted.args, answer.edited_args)
    if isinstance(edited, str):
        return _misfit(call, edited, trace)
    again = replace(admitted, args=edited, trace=trace)
    if is_judged(run):
        judged = await judge_call(run, tool, call.id, edited)
        return _not_allowed(again, judged) if judged.verdict == "deny" else again
    return again


def _seconds(run: Run, tool: Tool, decision: Decision) -> float | None:
    """The request's time-out in seconds: the rule's, else the tool's, else the agent's."""
    said = decision.approval_timeout if decision.requires_approval else None
    if said is None:
        said = run.actor.spec.approval_timeout if tool.approval_timeout is None else tool.approval_timeout
    return None if said is None else approval_seconds(said)


def _misfit(call: ToolCall, faults: str, trace: JsonObject | None) -> Refused:
    """Refuse a call whose edited arguments are invalid; a person's edit is recorded as ``invalid_edit``."""
    if trace is not None and trace.get("decision") == "human_edit":
        trace = {**trace, "decision": "invalid_edit"}
    return Refused(call, misfit(call.name, faults), trace)
