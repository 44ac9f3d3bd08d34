"""A paused run as a checkpoint, and back again; and people's responses put where the run finds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from assent.agent.checkpoint import (
    CheckpointUsage,
    KeptEffect,
    KeptRequest,
    RunCheckpoint,
    SerializedSession,
)
from assent.agent.fold import is_finished, iterations, usage
from assent.agent.pending import attribution
from assent.agent.people import CHOICES
from assent.agent.run import Thread
from assent.agent.tree import decided_approvals, open_subagents, pending_approvals, walk
from assent.approvals import ApprovalResponse, PendingApproval
from assent.checkpointer.base import StoredEffect
from assent.errors import HitlInvalidAnswer, HitlStaleAnswer, InvalidCheckpoint
from assent.fitting import check_in_time, fit_answer
from assent.ids import new_id
from assent.messages import JsonObject
from assent.permissions.decision import Decision
from assent.requests import (
    ApproveRequest,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    StoredRequest,
    asked_call,
    plain_answer,
    seal_in,
    with_seal,
)

if TYPE_CHECKING:
    from assent.agent.session import Session


def checkpoint_of(session: Session, pending: tuple[PendingApproval, ...]) -> RunCheckpoint:
    """A session, and all that work for it, as a value; what it is made of is valid as it is."""
    messages = session.thread.messages
    children = [each for each in walk(session) if each is not session and each.thread.messages]
    return RunCheckpoint.of_valid(
        spec_id=session.spec.id,
        iteration=iterations(messages),
        usage=CheckpointUsage.of(usage(messages)),
        root_messages=tuple(messages),
        subagent_sessions=tuple(map(_serialized, children)),
        pending=pending,
        checkpoint_id=new_id(),
        thread_id=session.thread_id,
        run_id=session.run_id,
        principal=session.principal,
        stored=session.checkpointer is not None,
        root_requests=_settled(session),
        root_effects=_effects(session),
        seals=_seals(session) or None,
    )


def _seals(session: Session) -> dict[str, str]:
    """The seals of what is pending, by the id of the approval; a store has them itself."""
    if session.checkpointer is not None:
        return {}
    pending = ((approval.id, seal_in(stored.request)) for approval, _, stored in pending_approvals(session))
    return {approval_id: seal for approval_id, seal in pending if seal is not None}


def _serialized(session: Session) -> SerializedSession:
    return SerializedSession.of_valid(
        spec_id=session.spec.id,
        thread_id=session.thread_id,
        agent_path=session.path,
        call_path=session.call_path,
        messages=tuple(session.thread.messages),
        requests=_settled(session),
        effects=_effects(session),
    )


def _settled(session: Session) -> tuple[KeptRequest, ...]:
    """The answers that calls which are still open have got; what is pending is listed as such."""
    known = session.thread.requests.values()
    return tuple(KeptRequest.of(each) for each in known if each.status != "pending")


def _effects(session: Session) -> tuple[KeptEffect, ...]:
    return tuple(
        KeptEffect(
            tool_call_id=it.tool_call_id,
            tool_name=it.tool_name,
            digest=it.digest,
            effect=it.effect,
            attempt=it.attempt,
        )
        for it in session.thread.effects.values()
    )


def restore(session: Session, checkpoint: RunCheckpoint) -> None:
    """Put a checkpoint into a fresh session of the same agent that has no store."""
    _check_spec(session, checkpoint)
    session.thread = Thread(session.thread_id, checkpoint.root_messages)
    session.run_id = checkpoint.run_id
    _fill(session, checkpoint.root_requests, checkpoint.root_effects)
    for kept in sorted(checkpoint.subagent_sessions, key=lambda each: len(each.call_path)):
        child = _child_at(session, kept)
        if child is not None:
            child.thread = Thread(child.thread_id, kept.messages)
            _fill(child, kept.requests, kept.effects)
    owners = {each.call_path: each for each in walk(session)}
    for approval in checkpoint.pending:
        owner = owners.get(approval.call_path)
        if owner is not None:  # else the subagent that asked is none any more, and its call is refused
            effect = owner.thread.effects.get(approval.tool_call.id)
            asked = request_of(approval, owner.thread_id, 1 if effect is None else effect.attempt)
            request = with_seal(asked, (checkpoint.seals or {}).get(approval.id))
            stored = StoredRequest(request, owner.thread_id, None, "pending")
            owner.thread.requests[request.question_id] = stored


def _check_spec(session: Session, checkpoint: RunCheckpoint) -> None:
    if checkpoint.spec_id != session.spec.id:
        raise InvalidCheckpoint(
            [f"the checkpoint is of the agent {checkpoint.spec_id!r}, not of {session.spec.id!r}"]
        )


def _child_at(session: Session, kept: SerializedSession) -> Session | None:
    for call_id in kept.call_path:
        tool = dict(open_subagents(session)).get(call_id)
        if tool is None:
            return None
        session = session.child(tool, call_id)
    if session.spec.id != kept.spec_id:
        raise InvalidCheckpoint(
            [f"the subagent {kept.spec_id!r} of the checkpoint is {session.spec.id!r} here"]
        )
    return session


def _fill(session: Session, requests: Sequence[KeptRequest], effects: Sequence[KeptEffect]) -> None:
    thread = session.thread
    for kept in requests:
        stored = kept.stored(thread.thread_id)
        thread.requests[stored.question_id] = stored
    for it in effects:
        thread.effects[it.tool_call_id] = StoredEffect(
            it.tool_call_id, it.tool_name, it.digest, it.effect, it.attempt
        )


def request_of(approval: PendingApproval, thread_id: str, attempt: int = 1) -> HitlRequest:
    """What was asked, from what was shown: the answer counts for that and nothing else."""
    call = approval.tool_call
    payload: HitlPayload
    if approval.kind == "escalate":
        details: JsonObject = {"tool_name": call.name, "tool_call_id": call.id, "args": call.args}
        details["attempt"] = attempt
        payload = EscalateRequest(prompt=approval.reason or "", choices=list(CHOICES), details=details)
    else:
        why = Decision(False, True, approval.matched_rule_id, approval.reason)
        payload = ApproveRequest(
            tool_name=call.name,
            tool_call_id=call.id,
            args=call.args,
            details=attribution(approval.agent_path, approval.principal, why),
            digest=approval.digest or call.digest,  # version 1 has none
        )
    lasts = None if approval.expires_at is None else approval.expires_at - approval.created_at
    return HitlRequest(
        question_id=approval.question_id,
        thread_id=thread_id,
        payload=payload,
        created_at=approval.created_at,
        timeout_seconds=lasts,
    )


async def answer_all(
    session: Session,
    responses: Sequence[ApprovalResponse],
    by: str | None,
    via: str | None,
    once: Callable[[], None] | None = None,
    shown: Sequence[PendingApproval] | None = None,
) -> None:
    """Settle what the responses decide; if one of them does not fit, `InvalidCheckpoint` and none is settled.

    The same with `HitlStaleAnswer` if one is about something else than is asked now, and with `HitlError` if no run
    could go on with it. ``shown`` is what people were shown, where that is known: then nothing else can be answered.
    ``once`` is called, and may raise, when all is found to fit.
    """
    fitted = _fitted(_waiting(session, shown), responses)
    for owner, stored in fitted:
        if owner.checkpointer is None:  # a store looks at its own clock
            check_in_time(stored.request)
        if is_finished(owner.thread.messages):
            await owner.inbox.check(owner.thread, stored.request)
    if once is not None:
        once()
    for owner, stored in fitted:
        await owner.inbox.settle(owner.thread, replace(stored, answered_by=by, via=via))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked about a call, or was, by whom; and what people were shown of it, where that is known."""

    approval: PendingApproval
    owner: Session
    stored: StoredRequest
    shown: PendingApproval | None = None

    def answered(self, response: ApprovalResponse) -> StoredRequest:
        """The request with this response as its answer; raises `HitlInvalidAnswer` if that does not fit."""
        return _answered(self.owner, self.stored, response)

    def is_meant(self, response: ApprovalResponse) -> bool:
        """Whether the response is about this, and not about what was asked earlier under its id."""
        now, shown = self.approval, self.shown
        if response.digest not in (None, now.digest):
            return False
        if shown is None and response.digest is None and self.stored.round > 1:
            return False  # nothing says which round it is for
        if shown is None or shown.digest is None:  # version 1 has none
            return True
        # Of a call in doubt a later attempt may be asked about, with the same arguments.
        is_same = now.kind == "approve" or now.created_at == shown.created_at
        return is_same and now.digest == shown.digest


def _waiting(session: Session, shown: Sequence[PendingApproval] | None) -> dict[str, _Asked]:
    """What can be answered, by its id."""
    waiting = {
        approval.id: _Asked(approval, owner, stored) for approval, owner, stored in pending_approvals(session)
    }
    if shown is None:
        return waiting
    return {each.id: replace(waiting[each.id], shown=each) for each in shown if each.id in waiting}


def _fitted(
    waiting: Mapping[str, _Asked], responses: Sequence[ApprovalResponse]
) -> list[tuple[Session, StoredRequest]]:
    """The requests as the responses answer them; raises if there is anything wrong with any of these."""
    problems: list[str] = []
    stale: list[str] = []
    fitted: list[tuple[Session, StoredRequest]] = []
    seen: set[str] = set()
    for response in responses:
        asked = waiting.get(response.id)
        if response.id in seen:
            problems.append(f"there are two responses to {response.id!r}")
        elif asked is None:
            known = ", ".join(waiting) or "nothing"
            problems.append(f"{response.id!r} is not pending here; what is: {known}")
        elif not asked.is_meant(response):  # looked at first: an edit of something else need not fit
            stale.append(asked.stored.question_id)
        else:
            try:
                fitted.append((asked.owner, asked.answered(response)))
            except HitlInvalidAnswer as error:
                problems.append(f"the response to {response.id!r} does not fit: {'; '.join(error.faults)}")
        seen.add(response.id)
    if problems:
        raise InvalidCheckpoint(problems)
    if stale:
        raise HitlStaleAnswer(stale[0], "superseded")
    return fitted


def unsaid(
    session: Session,
    responses: Sequence[ApprovalResponse],
    shown: Sequence[PendingApproval] | None = None,
) -> list[ApprovalResponse]:
    """The responses without those that are on record already, word for word, about calls that are still open."""
    seen = {each.id: each for each in shown or ()}
    decided = {
        approval.id: _Asked(approval, owner, stored, seen.get(approval.id))
        for approval, owner, stored in decided_approvals(session)
    }
    return [each for each in responses if not _is_on_record(decided.get(each.id), each)]


def _is_on_record(known: _Asked | None, response: ApprovalResponse) -> bool:
    if known is None or not known.is_meant(response):
        return False
    try:
        return _words(known.stored) == _words(known.answered(response))
    except HitlInvalidAnswer:
        return False


def _words(answered: StoredRequest) -> object:
    """What was answered, without who answered."""
    said = plain_answer(answered.answer) if answered.answer is not None else None
    if isinstance(said, dict):
        return {name: value for name, value in said.items() if name not in ("answered_by", "via")}  # pyright: ignore[reportUnknownVariableType]
    return said


def _answered(owner: Session, stored: StoredRequest, response: ApprovalResponse) -> StoredRequest:
    said = response.answer_to(stored.request.payload.kind)
    call = asked_call(stored.request.payload)
    check = None if call is None else owner.args_check(call.tool_name, call)
    return replace(stored, status="answered", answer=fit_answer(stored.request, said, check))
