"""Open requests as pending approvals: what is asked, by which agent, and why."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Literal

from pydantic_core import from_json, to_json

from assent import tracing
from assent.agent.emitter import NOTHING
from assent.agent.run import Run
from assent.agent.spec import AgentSpec
from assent.approvals import PendingApproval
from assent.events import ApprovalEvent
from assent.messages import JsonObject, ToolCall
from assent.permissions.decision import Decision
from assent.requests import (
    ApproveAnswer,
    ApproveRequest,
    EscalateAnswer,
    EscalateRequest,
    HitlRequest,
    asked_call,
    shown_digest,
)


def attribution(path: tuple[str, ...], principal: str, decision: Decision) -> JsonObject | None:
    """What a person is told beside the call: which agent asks, for whom, and which rule wants it asked."""
    told: JsonObject = {}
    if len(path) > 1:
        told["agent_path"] = list(path)
    if principal != "*":
        told["principal"] = principal
    if decision.verdict == "ask":
        if decision.matched_rule_id is not None:
            told["matched_rule_id"] = decision.matched_rule_id
        if decision.reason is not None:
            told["reason"] = decision.reason
    return told or None


def pending_approval(
    spec: AgentSpec,
    path: tuple[str, ...],
    principal: str,
    request: HitlRequest,
    call_path: tuple[str, ...] = (),
) -> PendingApproval:
    """A request as a value that can be shown anywhere and answered by its id."""
    payload = request.payload
    details: Any = {}
    if isinstance(payload, ApproveRequest):
        details = payload.details or {}
        call, digest = _shown_call(payload), payload.digest
        kind, reason = "approve", _text_in(details, "reason") if details else None
    elif isinstance(payload, EscalateRequest) and (asked := asked_call(payload)) is not None:
        call = ToolCall(asked.tool_call_id, asked.tool_name, asked.args)
        digest, kind, reason = shown_digest(payload), "escalate", payload.prompt
    else:
        call, digest, kind, reason = ToolCall(request.question_id, payload.kind, {}), None, "approve", None
    tool = spec.tools_by_name.get(call.name)
    return PendingApproval.of_valid(
        id="/".join([*call_path, request.question_id]),
        tool_call=call,
        digest=digest,
        kind=kind,
        agent_path=path,
        toolset=None if tool is None else tool.toolset,
        principal=principal,
        matched_rule_id=_text_in(details, "matched_rule_id") if details else None,
        reason=reason,
        created_at=request.created_at,
        expires_at=request.expires_at,
        call_path=call_path,
    )


def _text_in(details: JsonObject, name: str) -> str | None:
    """What a detail says; whoever asks through a channel may put anything there."""
    said = details.get(name)
    return said if isinstance(said, str) else None


def _shown_call(payload: ApproveRequest) -> ToolCall:
    # Its arguments are a copy: what was asked stays as it is, whatever becomes of what is shown.
    args: JsonObject = from_json(to_json(payload.args))
    return ToolCall.of_valid(id=payload.tool_call_id, name=payload.tool_name, args=args)


def tell(
    run: Run, request: HitlRequest, phase: Literal["requested", "resolved"], decision: str | None = None
) -> Awaitable[None]:
    """Tell listeners and the trace that a call waits, or has been decided; to be awaited for async listeners."""
    if not (run.emitter.listening or tracing.is_on()):
        return NOTHING
    approval = pending_approval(run.spec, run.path, run.principal, request, run.call_path)
    tracing.note(
        "approval",
        {
            "approval.phase": phase,
            "approval.id": approval.id,
            "gen_ai.tool.name": approval.tool_call.name,
            "assent.agent_path": "/".join(approval.agent_path),
            "approval.decision": decision,
        },
    )
    return run.emit(ApprovalEvent, phase=phase, approval=approval, decision=decision)


def decision_in(answer: Any) -> str | None:
    """What a person decided about a call; None if it is no decision about one.

    To let a call in doubt run again is to approve it, or to edit it; to skip it, or to abort the run, is to deny it.
    """
    if isinstance(answer, ApproveAnswer):
        return answer.decision
    if not isinstance(answer, EscalateAnswer):
        return None
    if answer.action != "retry":
        return "deny"
    return "approve" if answer.modified_params is None else "edit"
