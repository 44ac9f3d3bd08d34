"""Answers that come while no run of this process waits for them: their requests found, checked and settled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

from askfirst.agent.inbox import approval_id
from askfirst.agent.question_ids import ambiguous
from askfirst.agent.result import AgentResult
from askfirst.agent.session import Session
from askfirst.agent.thread import is_finished
from askfirst.agent.tree import (
    approvals_to_show,
    asked,
    check_owner,
    decided_requests,
    in_flight,
    load_tree,
    open_request,
    open_requests,
    walk,
)
from askfirst.approvals import ApprovalResponse, PendingApproval, ResponseLike, as_responses
from askfirst.channels import HitlChannel
from askfirst.errors import HitlInvalidAnswer, HitlStaleAnswer, InvalidCheckpoint
from askfirst.keeper import MemoryKeeper
from askfirst.requests import (
    Answer,
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
        if session.live.checkpointer is None:  # the answers are on the thread, and nobody else has it
            return await session.go_on()
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
    settled: list[tuple[MemoryKeeper[str], StoredRequest]] = []
    for it, answer in fitted:
        live, request, key = it.owner.live, it.stored.request, it.stored.request.question_id
        if live.checkpointer is None:  # a store makes these checks itself
            keeper = MemoryKeeper(live.thread.requests)
            ended = keeper.answered(key, key, answer, by=by, via=via, digest=request.digest, fit=None)
            settled.append((keeper, ended))
        if is_finished(live.thread.messages):
            await it.owner.inbox.check(live.thread, request)
    if once is not None:
        once()
    for keeper, ended in settled:
        keeper.put(ended.request.question_id, ended)
    for it, answer in fitted:
        store, request = it.owner.live.checkpointer, it.stored.request
        if store is not None:
            await store.settle(
                it.owner.thread_id,
                request.question_id,
                answer,
                by=by,
                via=via,
                digest=request.digest,
                round=it.stored.round,
            )


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request about a call and the session that asks; and what people were shown, if that is known."""

    owner: Session
    stored: StoredRequest
    shown: PendingApproval | None = None

    @property
    def id(self) -> str:
        """The id of its `PendingApproval`."""
        return approval_id(self.owner.actor, self.stored.request)

    def fit(self, response: ApprovalResponse) -> Answer:
        """The response as an answer to the request; raises `HitlInvalidAnswer` if it does not fit."""
        request, owner = self.stored.request, self.owner
        call = request.payload.call
        check = None if call is None else owner.inbox.args_check(call.tool_name, owner.live.thread, call)
        return fit_answer(request, response.answer_to(request.payload.kind), check)

    def is_meant(self, response: ApprovalResponse) -> bool:
        """Whether the response is for this version of the request, and not for an earlier one under the same id."""
        request, shown = self.stored.request, self.shown
        is_about_call = request.payload.call is not None
        digest = request.digest if is_about_call else None
        if response.digest not in (None, digest):
            return False
        if shown is None and response.digest is None and self.stored.round > 1:
            return False  # the response does not say which round it is for
        if shown is None or shown.digest is None:  # version 1 has none
            return True
        # A later attempt of a call in doubt may be asked about with the same arguments.
        is_in_doubt = is_about_call and request.payload.kind == "escalate"
        return digest == shown.digest and (not is_in_doubt or request.created_at == shown.created_at)


def _waiting(session: Session, shown: Sequence[PendingApproval] | None) -> dict[str, _Asked]:
    """The pending requests that can be answered, by approval id."""
    waiting = {it.id: it for it in starmap(_Asked, open_requests(session))}
    if shown is None:
        return waiting
    return {each.id: replace(waiting[each.id], shown=each) for each in shown if each.id in waiting}


def _fitted(
    waiting: Mapping[str, _Asked], responses: Sequence[ApprovalResponse]
) -> list[tuple[_Asked, Answer]]:
    """The requests and their answers; raises if any response is wrong."""
    problems: list[str] = []
    stale: list[str] = []
    fitted: list[tuple[_Asked, Answer]] = []
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
                fitted.append((asked, asked.fit(response)))
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
    decided = {it.id: replace(it, shown=seen.get(it.id)) for it in starmap(_Asked, decided_requests(session))}
    return [each for each in responses if not _is_on_record(decided.get(each.id), each)]


def _is_on_record(known: _Asked | None, response: ApprovalResponse) -> bool:
    if known is None or not known.is_meant(response):
        return False
    try:
        return _words(known.stored.answer) == _words(known.fit(response))
    except HitlInvalidAnswer:
        return False


def _words(answer: Answer | None) -> object:
    """An answer as plain JSON, without who gave it and where."""
    said = plain_answer(answer) if answer is not None else None
    if isinstance(said, dict):
        return {name: value for name, value in said.items() if name not in ("answered_by", "via")}  # pyright: ignore[reportUnknownVariableType]
    return said
