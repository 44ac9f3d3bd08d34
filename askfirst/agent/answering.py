"""Answers that come while no run of this process waits for them: their requests found, checked and settled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from askfirst.agent.question_ids import ambiguous
from askfirst.agent.result import AgentResult
from askfirst.agent.session import Session
from askfirst.agent.thread import is_finished
from askfirst.agent.tree import (
    approvals_to_show,
    asked,
    check_owner,
    decided_approvals,
    in_flight,
    load_tree,
    open_request,
    pending_approvals,
    walk,
)
from askfirst.approvals import ApprovalResponse, PendingApproval, ResponseLike, as_responses
from askfirst.channels import HitlChannel
from askfirst.errors import HitlInvalidAnswer, HitlStaleAnswer, InvalidCheckpoint
from askfirst.keeper import MemoryKeeper
from askfirst.requests import (
    HitlRequest,
    StoredRequest,
    check_seen,
    fit_answer,
    plain_answer,
)


async def look(session: Session) -> HitlRequest | None:
    """An open request of the agent or one of its subagents, as the store has it now."""
    request = await session.inbox.look()
    if request is None and session.live.checkpointer is None and session.live.thread.pending is not None:
        request = session.live.thread.pending.request
    if request is None and session.actor.spec.delegates:
        known = session.apart()
        await _load(known)
        request = await open_request(known)
    return request


async def pending(session: Session) -> tuple[PendingApproval, ...]:
    """What people are asked by the agent and its subagents, as values; as the store says now, without a change."""
    known = session.apart()
    await _load(known)
    return approvals_to_show(known, in_flight(session))


async def respond(
    session: Session,
    question_id: str | None,
    answer: Any,
    by: str | None,
    via: str | None,
    digest: str | None = None,
) -> AgentResult:
    """Answer an open request of the agent or one of its subagents, and resume the run."""
    owner = session
    known = session.apart()
    await _load(known)
    await check_owner(known)
    if session.actor.spec.delegates or question_id is None:
        owner, question_id = await _meant(known, question_id, digest)
    await owner.inbox.answer(owner.live.thread, question_id, answer, by, via, digest)
    return await session.resume()


async def answer_here(
    session: Session,
    asked_here: Sequence[tuple[HitlChannel, HitlRequest]],
    question_id: str | None,
    answer: Any,
    by: str | None,
    via: str | None,
    digest: str | None,
) -> None:
    """Answer while a run of this process waits for people: a request of ``asked_here``, or the one with the id."""
    named = [it for it in asked_here if question_id in (None, it[1].question_id)]
    meant = [it for it in named if digest in (None, it[1].digest)] or named
    if len(meant) > 1:
        raise ambiguous(question_id, [request.question_id for _, request in meant])
    channel, waiting = (meant or asked_here)[0]
    if digest is None or question_id in (None, waiting.question_id):
        if digest is not None:
            check_seen(waiting, digest)
        await channel.answer(question_id or waiting.question_id, answer, by=by, via=via, digest=digest)
        return
    # The channel does not wait for this request, so its digest can only be checked in a store.
    for owner in walk(session):
        store = owner.live.checkpointer
        if store is not None and await store.request(owner.thread_id, question_id) is not None:
            await owner.inbox.answer(owner.live.thread, question_id, answer, by, via, digest)
            return
    raise HitlStaleAnswer(question_id)


async def _meant(known: Session, question_id: str | None, digest: str | None) -> tuple[Session, str | None]:
    """The session that asks, and the id of its request; raises `HitlStaleAnswer` if only others are open.

    Call ids are unique in one thread only. If several requests fit the id, or no id is given, ``digest`` has to tell
    which of them was shown.
    """
    asking = await asked(known)
    meant = [(owner, it) for owner, it in asking if question_id in (None, it.question_id)]
    if len(meant) > 1:
        shown = [(owner, it) for owner, it in meant if digest in (None, it.digest)]
        if len(shown) > 1:
            raise ambiguous(question_id, [it.question_id for _, it in shown])
        meant = shown or meant
    if meant:
        return meant[0][0], meant[0][1].question_id
    for owner in walk(known):
        if question_id in owner.live.thread.requests:  # it is settled: its owner raises with the status
            return owner, question_id
    if question_id is not None and asking:
        raise HitlStaleAnswer(question_id)
    return known, question_id


async def resume_with(
    session: Session,
    responses: Sequence[ResponseLike],
    by: str | None = None,
    via: str | None = None,
    *,
    once: Callable[[], None] | None = None,
    again: bool = False,
    shown: Sequence[PendingApproval] | None = None,
) -> AgentResult:
    """Settle the requests that the responses answer, and resume the run.

    ``once`` is called, and may raise, before anything is settled. ``again`` says that an earlier worker may have
    settled some of them and died. ``shown`` is what people were shown, if it is known.
    """
    given = as_responses(responses)
    async with session.lock:
        await _load(session)
        await check_owner(session)
        left = unsaid(session, given, shown) if again else given
        await answer_all(session, left, by, via, once, shown)
        return await session.resume_held()


async def _load(session: Session) -> None:
    await session.load(fresh=True)
    await load_tree(session)


async def answer_all(
    session: Session,
    responses: Sequence[ApprovalResponse],
    by: str | None,
    via: str | None,
    once: Callable[[], None] | None = None,
    shown: Sequence[PendingApproval] | None = None,
) -> None:
    """Settle the requests that the responses answer: all of them, or none if it raises.

    Raises `InvalidCheckpoint` if a response does not fit, `HitlStaleAnswer` if one is for an earlier version of its
    request, and `HitlError` if no run could use it. ``shown`` is what people were shown, if it is known: then only
    that can be answered. ``once`` is called, and may raise, when all responses were found to fit.
    """
    fitted = _fitted(_waiting(session, shown), responses)
    for owner, stored in fitted:
        if owner.live.checkpointer is None:  # a store checks the deadline itself
            MemoryKeeper(owner.live.thread.requests).pending(stored.question_id, stored.question_id)
        if is_finished(owner.live.thread.messages):
            await owner.inbox.check(owner.live.thread, stored.request)
    if once is not None:
        once()
    for owner, stored in fitted:
        request = stored.request
        await owner.inbox.settle(
            owner.live.thread,
            request,
            stored.answer,
            by=by,
            via=via,
            digest=request.digest,
            round=stored.round,
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request about a call, its portable form and the session that asks; and what people were shown, if known."""

    approval: PendingApproval
    owner: Session
    stored: StoredRequest
    shown: PendingApproval | None = None

    def answered(self, response: ApprovalResponse) -> StoredRequest:
        """The request with this response as its answer; raises `HitlInvalidAnswer` if that does not fit."""
        return _answered(self.owner, self.stored, response)

    def is_meant(self, response: ApprovalResponse) -> bool:
        """Whether the response is for this version of the request, and not for an earlier one under the same id."""
        now, shown = self.approval, self.shown
        if response.digest not in (None, now.digest):
            return False
        if shown is None and response.digest is None and self.stored.round > 1:
            return False  # the response does not say which round it is for
        if shown is None or shown.digest is None:  # version 1 has none
            return True
        # A later attempt of a call in doubt may be asked about with the same arguments.
        is_same = now.kind == "approve" or now.created_at == shown.created_at
        return is_same and now.digest == shown.digest


def _waiting(session: Session, shown: Sequence[PendingApproval] | None) -> dict[str, _Asked]:
    """The pending requests that can be answered, by approval id."""
    waiting = {
        approval.id: _Asked(approval, owner, stored) for approval, owner, stored in pending_approvals(session)
    }
    if shown is None:
        return waiting
    return {each.id: replace(waiting[each.id], shown=each) for each in shown if each.id in waiting}


def _fitted(
    waiting: Mapping[str, _Asked], responses: Sequence[ApprovalResponse]
) -> list[tuple[Session, StoredRequest]]:
    """The requests with the responses as their answers; raises if any response is wrong."""
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
        elif not asked.is_meant(response):  # checked first: an edit of another version need not fit
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
    """The responses that are not recorded yet: those recorded with the same answer are left out."""
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
    """The answer as plain JSON, without who gave it and where."""
    said = plain_answer(answered.answer) if answered.answer is not None else None
    if isinstance(said, dict):
        return {name: value for name, value in said.items() if name not in ("answered_by", "via")}  # pyright: ignore[reportUnknownVariableType]
    return said


def _answered(owner: Session, stored: StoredRequest, response: ApprovalResponse) -> StoredRequest:
    said = response.answer_to(stored.request.payload.kind)
    call = stored.request.payload.call
    check = None if call is None else owner.host.args_check(call.tool_name, call)
    return replace(stored, status="answered", answer=fit_answer(stored.request, said, check))
