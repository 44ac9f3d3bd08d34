"""Asking a person from within the loop: through the agent's channel, or as a request in the store."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from askfirst.agent.arguments import seal_on
from askfirst.agent.channel_host import in_turn
from askfirst.agent.question_ids import is_about, named
from askfirst.agent.run import SUPERSEDED, Run
from askfirst.agent.thread import call_ids
from askfirst.agent.tools import idempotency_key, json_object
from askfirst.answers import attributed
from askfirst.channels import DEFAULT, HitlChannel
from askfirst.errors import (
    HitlAborted,
    HitlCancelled,
    HitlDetached,
    HitlNoPendingRequest,
    HitlStaleAnswer,
    HitlTimedOut,
)
from askfirst.ids import OLDEST_FIRST_FENCE
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


async def ask_approve(
    run: Run,
    call: ToolCall,
    args: BaseModel,
    shown: JsonObject,
    digest: str,
    details: JsonObject | None,
    seconds: float | None = None,
) -> ApproveAnswer | HitlRequest:
    """Ask a person whether a call may run with these arguments. ``digest`` is that of the call as it is ``shown``.

    Returns the answer, or the request itself if it has to be stored and waited for. ``seconds`` is the request's
    time-out.
    """
    channel = run.channel
    if channel is not None:
        return await _approve_through(channel, call, shown, details, seconds)
    seal = seal_on(run.thread, call.id, args, shown)
    known = run.thread.requests.get(call.id)
    if known is not None and approves(known.request, digest, seal):
        return await _on_record(run, known)
    tool = run.actor.spec.tools_by_name[call.name]
    payload = ApproveRequest.of_valid(
        tool_name=call.name,
        tool_call_id=call.id,
        args=shown,
        details=from_json(to_json(details)),  # raises for a rule's reason that is not valid Unicode
        digest=digest,
        args_schema=tool.args_schema,
        display=tool.words_for(shown),
    )
    return _new_request(run, payload if seal is None else payload.sealed(seal), call.id, seconds)


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
) -> EscalateAnswer | HitlRequest:
    """Ask a person what to do about a call in doubt: its body was started, and its end is not recorded.

    ``changed`` says that the body was started with other arguments than these. Returns as `ask_approve` does.
    """
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
    tool = run.actor.spec.tools_by_name[call.name]
    same_key = idempotency_key(run.thread.thread_id, call.id, lasting_id(run))
    payload = EscalateRequest(
        prompt=prompt,
        choices=list(CHOICES),
        details=details,
        args_schema=tool.args_schema,
        display={**(tool.words_for(shown) or {}), "idempotency_key": same_key},
    )
    first = f"{call.id}:escalate:1"  # the id that a channel gives the first escalate of a call
    return await _asked(run, payload.sealed(seal_on(run.thread, call.id, args, shown)), first)


def lasting_id(run: Run) -> str:
    """A part of the idempotency key: an id that a run keeps when it is resumed, and that no other run has.

    Without a store a subagent gets a new run id at each resume, so the id of the root run is used. It is empty on a
    thread of an old version, whose calls may have been started with keys that lack it.
    """
    if run.journal is not None:
        return run.run_id if run.journal.lease.fence >= OLDEST_FIRST_FENCE else ""
    while run.caller is not None:
        run = run.caller
    return run.run_id


def answered_before(run: Run, call: ToolCall) -> ApproveAnswer | None:
    """A person's answer to the approve request about this call, if one is recorded on the thread."""
    known = run.thread.requests.get(call.id)
    answer = known.answer if known is not None and known.status == "answered" else None
    return answer if isinstance(answer, ApproveAnswer) else None


async def refused_before(run: Run, call: ToolCall) -> ApproveAnswer | HitlRequest | None:
    """A person's denial of this call, if one is recorded; a denial is final.

    A request that was cancelled, timed out or aborted raises its signal.
    """
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
        # The channel finds the recorded answer too, and notifies listeners and the trace if it has not done so yet.
        return await _approve_through(run.channel, call, asked.args, asked.details)
    return outcome_of(known)


async def _asked(run: Run, payload: HitlPayload, first: str) -> Any:
    """The recorded answer to this question, or the request that has to be settled first."""

    async def on_record(question_id: str) -> StoredRequest | None:
        return run.thread.requests.get(question_id)

    question_id = await named(first, payload, on_record)
    known = await on_record(question_id)
    if known is not None and same_question(known.request, payload):
        return await _on_record(run, known)
    return _new_request(run, payload, question_id)


async def _on_record(run: Run, known: StoredRequest) -> Any:
    """The outcome of a request that is on the thread already; the request itself while it is pending."""
    if known.status == "pending":
        known = await run.expire(known)
    return known.request if known.status == "pending" else outcome_of(known, is_found=True)


def _new_request(
    run: Run, payload: HitlPayload, question_id: str, seconds: float | None = None
) -> HitlRequest:
    return HitlRequest.of_valid(
        question_id=question_id,
        thread_id=run.thread.thread_id,
        payload=payload,
        created_at=run.clock.now(),
        timeout_seconds=seconds,
    )


async def end_asked(run: Run, calls: Collection[str] | None = None) -> None:
    """Cancel requests of this run about ``calls`` that were settled without an answer, such as by a hook's time-out.

    Without ``calls`` the run is over: every request is cancelled except the one that the channel waits for.
    """
    channel = run.channel
    waited_for = None if channel is None or channel.pending is None else channel.pending.question_id
    for asked, for_call in list(run.work.asked.items()):
        if calls is None:
            is_moot = asked != waited_for
        else:
            is_moot = any(is_about(asked, call) or is_about(for_call, call) for call in calls)
        if is_moot:
            del run.work.asked[asked]
            await _end(run, asked)


async def end_left(run: Run) -> None:
    """Cancel pending requests about calls that have results.

    A process that died between writing the results and cancelling the requests leaves such requests behind.
    """
    if run.thread.pending is not None:
        resolved = call_ids(run.thread.messages)
        await run.cancel_where(lambda asked: any(is_about(asked, it) for it in resolved), MOOT)


async def _end(run: Run, question_id: str) -> None:
    if run.channel is not None and run.channel.checkpointer is None:
        with suppress(HitlStaleAnswer, HitlNoPendingRequest):
            await run.channel.cancel(question_id, MOOT)
    else:
        await run.cancel(question_id, MOOT)


def outcome_of(stored: StoredRequest, *, is_found: bool = False) -> Any:
    """A settled request's answer; raises the signal of a request that ended without one.

    ``is_found`` says that the request was settled before this run looked at it, so no wait of this run ended with it.
    """
    match stored.status:
        case "answered":
            return attributed(stored.answer, stored.answered_by, stored.via)
        case "cancelled":
            raise HitlCancelled(stored.reason or "cancelled", answered_by=stored.answered_by, via=stored.via)
        case "timed_out":
            raise HitlTimedOut(stored.request.timeout_seconds)
        case "aborted":
            raise HitlAborted(stored.reason or "aborted")
        case _:  # superseded: another run has continued the thread
            # A newer prompt leaves a reason; a newer question under the same id does not.
            if (
                is_found and stored.reason
            ):  # the call has no result: the process died while the prompt replaced it
                raise HitlAborted(SUPERSEDED.why)
            raise HitlDetached(SUPERSEDED.why if stored.reason else "its question was asked anew elsewhere")
