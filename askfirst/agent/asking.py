"""Asking a person from within the loop: through the agent's channel, or as a request in the store."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from askfirst.agent.arguments import seal_on
from askfirst.agent.channel_host import in_turn
from askfirst.agent.question_ids import is_about, named
from askfirst.agent.run import SUPERSEDED, Run
from askfirst.agent.thread import call_ids
from askfirst.agent.tools import json_object
from askfirst.answers import signed
from askfirst.channels import DEFAULT, HitlChannel
from askfirst.errors import (
    HitlAborted,
    HitlCancelled,
    HitlDetached,
    HitlNoPendingRequest,
    HitlStaleAnswer,
    HitlTimedOut,
)
from askfirst.messages import JsonObject, ToolCall
from askfirst.requests import (
    ApproveAnswer,
    ApproveRequest,
    EscalateAnswer,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    StoredRequest,
    approves,
    asks_about,
    same_question,
)

CHOICES = ("retry", "skip", "abort")
MOOT = "its call was settled without it"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that cannot go on before this request is settled."""

    request: HitlRequest


async def ask_approve(
    run: Run,
    call: ToolCall,
    args: BaseModel,
    shown: JsonObject,
    digest: str,
    details: JsonObject | None,
    seconds: float | None = None,
) -> ApproveAnswer | Waiting:
    """May this call run with these arguments? ``digest`` is that of the call as it is ``shown``.

    People have so many ``seconds``, if that is given.
    """
    channel = run.channel
    if channel is not None:
        return await _approve_through(channel, call, shown, details, seconds)
    seal = seal_on(run.thread, call.id, args, shown)
    known = run.thread.requests.get(call.id)
    if known is not None and approves(known.request, digest, seal):
        return await _on_record(run, known)
    payload = ApproveRequest(
        tool_name=call.name,
        tool_call_id=call.id,
        args=shown,
        details=details,
        digest=digest,
        args_schema=run.spec.tools_by_name[call.name].args_schema,
    )
    return _waiting(run, payload.sealed(seal), call.id, seconds)


async def _approve_through(
    channel: HitlChannel,
    call: ToolCall,
    shown: JsonObject,
    details: JsonObject | None,
    seconds: float | None = None,
) -> ApproveAnswer:
    timeout = DEFAULT if seconds is None else seconds
    return await in_turn(
        channel, lambda: channel.approve(call.name, call.id, shown, details=details, timeout=timeout)
    )


async def ask_escalate(
    run: Run, call: ToolCall, args: BaseModel, attempt: int, *, changed: bool = False
) -> EscalateAnswer | Waiting:
    """A call was started and its end is unknown: what now? ``changed`` says that it was started with others."""
    prompt = (
        f"{call.name} was started, and the process stopped before its end was recorded. It may or may not have "
        "taken effect. Run it again, skip it, or abort the run?"
    )
    if changed:
        prompt += " Its arguments are not those that it was started with: they have changed since."
    shown = json_object(args)
    details: JsonObject = {"tool_name": call.name, "tool_call_id": call.id, "args": shown, "attempt": attempt}
    channel = run.channel
    if channel is not None:
        return await in_turn(channel, lambda: channel.escalate(prompt, choices=CHOICES, details=details))
    schema = run.spec.tools_by_name[call.name].args_schema
    payload = EscalateRequest(prompt=prompt, choices=list(CHOICES), details=details, args_schema=schema)
    first = f"{call.id}:escalate:1"  # as a channel numbers what is asked first
    return await _asked(run, payload.sealed(seal_on(run.thread, call.id, args, shown)), first)


def answered_before(run: Run, call: ToolCall) -> ApproveAnswer | None:
    """What a person has said to this call, if it is on record: yes, no, or with what arguments."""
    known = run.thread.requests.get(call.id)
    answer = known.answer if known is not None and known.status == "answered" else None
    return answer if isinstance(answer, ApproveAnswer) else None


async def refused_before(run: Run, call: ToolCall) -> ApproveAnswer | Waiting | None:
    """How a person refused this call, if one did; that is final. Raises the signal of a request that ran out."""
    known = run.thread.requests.get(call.id)
    if known is None or known.status in ("pending", "superseded"):
        return None
    answer = known.answer
    if known.status == "answered" and not (isinstance(answer, ApproveAnswer) and answer.decision == "deny"):
        return None
    asked = known.request.payload
    if (
        run.channel is not None
        and isinstance(asked, ApproveRequest)
        and asks_about(known.request, asked.digest)
    ):
        # The channel finds the answer as well, and has listeners and the trace hear of it if they have not yet.
        return await _approve_through(run.channel, call, asked.args, asked.details)
    return outcome_of(known)


async def _asked(run: Run, payload: HitlPayload, first: str) -> Any:
    """The answer to this very question, if it is on record; else that it is waited for."""

    async def on_record(question_id: str) -> StoredRequest | None:
        return run.thread.requests.get(question_id)

    question_id = await named(first, payload, on_record)
    known = await on_record(question_id)
    if known is not None and same_question(known.request, payload):
        return await _on_record(run, known)
    return _waiting(run, payload, question_id)


async def _on_record(run: Run, known: StoredRequest) -> Any:
    """What a person has said to what they were asked before, if they were in time; or that it is still waited for."""
    if known.status == "pending":
        known = await run.expire(known)
    return Waiting(known.request) if known.status == "pending" else outcome_of(known, is_found=True)


def _waiting(run: Run, payload: HitlPayload, question_id: str, seconds: float | None = None) -> Waiting:
    return Waiting(
        HitlRequest(
            question_id=question_id,
            thread_id=run.thread.thread_id,
            payload=payload,
            created_at=run.clock.now(),
            timeout_seconds=seconds,
        )
    )


async def end_asked(run: Run, calls: Collection[str] | None = None) -> None:
    """End what was asked in this run for calls that are settled without it, such as by one who has given up.

    Without ``calls`` the run is over, and all is ended that nobody waits for.
    """
    channel = run.channel
    waited_for = None if channel is None or channel.pending is None else channel.pending.question_id
    for asked, for_call in list(run.asked.items()):
        if calls is None:
            is_moot = asked != waited_for
        else:
            is_moot = any(is_about(asked, call) or is_about(for_call, call) for call in calls)
        if is_moot:
            del run.asked[asked]
            await _end(run, asked)


async def end_left(run: Run) -> None:
    """Cancel requests about calls that have results: the process that wrote these died before it could."""
    if run.thread.pending is not None:
        resolved = call_ids(run.messages)
        await run.cancel_where(lambda asked: any(is_about(asked, it) for it in resolved), MOOT)


async def _end(run: Run, question_id: str) -> None:
    if run.channel is not None and run.channel.checkpointer is None:
        with suppress(HitlStaleAnswer, HitlNoPendingRequest):
            await run.channel.cancel(question_id, MOOT)
    else:
        await run.cancel(question_id, MOOT)


def outcome_of(stored: StoredRequest, *, is_found: bool = False) -> Any:
    """A settled request's answer, or the signal that stands for its absence.

    ``is_found`` says that nobody has waited for it here: it was settled when the run came to it.
    """
    match stored.status:
        case "answered":
            return signed(stored.answer, stored.answered_by, stored.via)
        case "cancelled":
            raise HitlCancelled(stored.reason or "cancelled", answered_by=stored.answered_by, via=stored.via)
        case "timed_out":
            raise HitlTimedOut(stored.request.timeout_seconds)
        case "aborted":
            raise HitlAborted(stored.reason or "aborted")
        case _:  # superseded: the thread went on without this run
            # A newer prompt leaves a reason; a newer question under the same id does not.
            if is_found and stored.reason:  # but its call is open: whoever made way for the prompt died of it
                raise HitlAborted(SUPERSEDED.why)
            raise HitlDetached(SUPERSEDED.why if stored.reason else "its question was asked anew elsewhere")
