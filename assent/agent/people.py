"""Asking a person from within the loop: through the agent's channel, or by leaving a request in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assent.agent.run import Run
from assent.errors import HitlAborted, HitlCancelled, HitlDetached, HitlTimedOut
from assent.messages import JsonObject, ToolCall, call_digest
from assent.requests import (
    ApproveAnswer,
    ApproveRequest,
    EscalateAnswer,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    StoredRequest,
    same_question,
)

CHOICES = ("retry", "skip", "abort")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that cannot go on before this request is settled."""

    request: HitlRequest


async def ask_approve(run: Run, call: ToolCall, args: JsonObject) -> ApproveAnswer | Waiting | None:
    """May this call run with these arguments? None if there is nobody to ask."""
    if run.channel is not None:
        return await run.channel.approve(call.name, call.id, args)
    digest = call_digest(call.name, args)
    payload = ApproveRequest(tool_name=call.name, tool_call_id=call.id, args=args, digest=digest)
    return _from_store(run, payload, call.id)


async def ask_escalate(
    run: Run, call: ToolCall, args: JsonObject, attempt: int
) -> EscalateAnswer | Waiting | None:
    """A call was started and its end is unknown: what now? None if there is nobody to ask."""
    prompt = (
        f"{call.name} was started, and the process stopped before its end was recorded. It may or may not have "
        "taken effect. Run it again, skip it, or abort the run?"
    )
    details: JsonObject = {"tool_name": call.name, "tool_call_id": call.id, "args": args, "attempt": attempt}
    if run.channel is not None:
        return await run.channel.escalate(prompt, choices=CHOICES, details=details)
    payload = EscalateRequest(prompt=prompt, choices=list(CHOICES), details=details)
    return _from_store(run, payload, f"{call.id}:escalate:1")  # as a channel numbers what is asked first


def _from_store(run: Run, payload: HitlPayload, question_id: str) -> Any:
    """The stored answer to this very question; if there is none, what to wait for."""
    if run.journal is None:
        return None
    asked = HitlRequest(
        question_id=question_id,
        thread_id=run.thread.thread_id,
        payload=payload,
        created_at=run.clock.now(),
    )
    known = run.thread.requests.get(question_id)
    if known is None or not same_question(known.request, asked):
        return Waiting(asked)
    return Waiting(known.request) if known.status == "pending" else outcome_of(known)


def outcome_of(stored: StoredRequest) -> Any:
    """A settled request's answer, or the signal that stands for its absence."""
    match stored.status:
        case "answered":
            if isinstance(stored.answer, ApproveAnswer | EscalateAnswer):
                return stored.answer.model_copy(update={"answered_by": stored.answered_by, "via": stored.via})
            return stored.answer
        case "cancelled":
            raise HitlCancelled(stored.reason or "cancelled")
        case "timed_out":
            raise HitlTimedOut(stored.request.timeout_seconds)
        case "aborted":
            raise HitlAborted(stored.reason or "aborted")
        case _:  # superseded: the thread went on without this run
            raise HitlDetached
