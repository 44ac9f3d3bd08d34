"""Answers that come while no run waits for them in this process: found, put where the run finds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assent.agent.asking import ambiguous
from assent.agent.ownership import check_owner
from assent.agent.pausing import answer_all, unsaid
from assent.agent.result import AgentResult
from assent.agent.session import Session
from assent.agent.tree import asked, load_tree, open_request, walk
from assent.approvals import PendingApproval, ResponseLike, as_responses
from assent.channels import HitlChannel
from assent.errors import HitlStaleAnswer
from assent.fitting import check_seen
from assent.requests import HitlRequest, shown_digest


async def look(session: Session) -> HitlRequest | None:
    """What is asked, by the agent or one of its subagents, as the store says now."""
    request = await session.inbox.look()
    if request is None and session.checkpointer is None and session.thread.pending is not None:
        request = session.thread.pending.request
    if request is None and session.spec.delegates:
        known = session.apart()
        await _load(known)
        request = await open_request(known)
    return request


async def respond(
    session: Session,
    question_id: str | None,
    answer: Any,
    by: str | None,
    via: str | None,
    digest: str | None = None,
) -> AgentResult:
    """Settle what is asked, by the agent or one of its subagents, and go on."""
    owner = session
    known = session.apart()
    await _load(known)
    await check_owner(known)
    if session.spec.delegates or question_id is None:
        owner, question_id = await _meant(known, question_id, digest)
    await owner.inbox.answer(owner.thread, question_id, answer, by, via, digest)
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
    """Answer while a run of this process waits for people: what it waits for, at any channel, or what is named."""
    named = [it for it in asked_here if question_id in (None, it[1].question_id)]
    meant = [it for it in named if digest in (None, shown_digest(it[1].payload))] or named
    if len(meant) > 1:
        raise ambiguous(question_id, [request.question_id for _, request in meant])
    channel, waiting = (meant or asked_here)[0]
    if digest is None or question_id in (None, waiting.question_id):
        if digest is not None:
            check_seen(waiting, digest)
        await channel.answer(question_id or waiting.question_id, answer, by=by, via=via, digest=digest)
        return
    # Of what a channel does not wait for, only a store can tell what is asked.
    for owner in walk(session):
        store = owner.checkpointer
        if store is not None and await store.request(owner.thread_id, question_id) is not None:
            await owner.inbox.answer(owner.thread, question_id, answer, by, via, digest)
            return
    raise HitlStaleAnswer(question_id)


async def _meant(known: Session, question_id: str | None, digest: str | None) -> tuple[Session, str | None]:
    """Who asks this, or anything at all, and under which id; raises `HitlStaleAnswer` if something else is asked.

    Call ids are a thread's own. If several ask under one id, ``digest`` has to tell which of them was shown; the
    same if several are asked and none is named.
    """
    asking = await asked(known)
    meant = [(owner, it) for owner, it in asking if question_id in (None, it.question_id)]
    if len(meant) > 1:
        shown = [(owner, it) for owner, it in meant if digest in (None, shown_digest(it.payload))]
        if len(shown) > 1:
            raise ambiguous(question_id, [it.question_id for _, it in shown])
        meant = shown or meant
    if meant:
        return meant[0][0], meant[0][1].question_id
    for owner in walk(known):
        if question_id in owner.thread.requests:  # it is settled, and that is where to find out how
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
    """Settle what the responses decide, and go on; ``once`` is called, and may raise, before that.

    ``again`` says that a worker before this one may have settled some of them, and died. ``shown`` is what people
    were shown, where that is known.
    """
    given = as_responses(responses)
    async with session.lock:
        await _load(session)
        await check_owner(session)
        left = unsaid(session, given, shown) if again else given
        await answer_all(session, left, by, via, once, shown)
    return await session.resume()


async def _load(session: Session) -> None:
    await session.load(fresh=True)
    await load_tree(session)
