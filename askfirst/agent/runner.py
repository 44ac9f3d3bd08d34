"""Runs without a live agent: a query in, a result or a checkpoint out."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

from askfirst.agent.agent import tell_unheard
from askfirst.agent.answering import resume_with
from askfirst.agent.emitter import Listener
from askfirst.agent.live_thread import LiveThread
from askfirst.agent.result import AgentResult, RunCheckpoint
from askfirst.agent.session import Session
from askfirst.agent.spec import Actor, AgentSpec
from askfirst.agent.thread import Thread
from askfirst.agent.tree import restore
from askfirst.approvals import PendingApproval, ResponseLike
from askfirst.errors import InvalidCheckpoint
from askfirst.events import AgentEvent
from askfirst.ids import new_id
from askfirst.messages import Input, Message, UserMessage

_REMEMBERED = 100_000
_resumed: OrderedDict[str, None] = OrderedDict()
"""The checkpoints that were resumed in this process, latest last."""


@dataclass(frozen=True, slots=True)
class StreamEnvelope:
    """One item of a stream: an ``event``; ``paused``, with the pending approvals; or, at last, the ``result``."""

    type: Literal["event", "paused", "result"]
    event: AgentEvent | None = None
    pending: tuple[PendingApproval, ...] = ()
    checkpoint: RunCheckpoint | None = None
    result: AgentResult | None = None


async def run_agent(
    spec: AgentSpec,
    query: Input,
    *,
    prefix_messages: Sequence[Message] | None = None,
    thread_id: str | None = None,
    principal: str = "*",
    signal: asyncio.Event | None = None,
    tracer: Listener | None = None,
) -> AgentResult:
    """Run an agent on a query until it is done, or until people have to decide.

    Then the result's ``status`` is ``"paused"`` and its ``checkpoint`` is what `run_agent_resume` goes on
    from. ``prefix_messages`` is what was said before; setting ``signal`` aborts the run. ``tracer`` hears of every
    event, as whoever subscribes to an agent does: see `askfirst.Tracer`.
    """
    session = _session(spec, thread_id, principal, prefix_messages, tracer)
    return await _until(signal, session, partial(session.prompt, UserMessage(query), new_id(), "raise"))


async def run_agent_resume(
    spec: AgentSpec,
    checkpoint: RunCheckpoint,
    responses: Sequence[ResponseLike],
    *,
    signal: asyncio.Event | None = None,
    tracer: Listener | None = None,
) -> AgentResult:
    """Go on from a checkpoint with people's decisions; what is not decided stays pending.

    A response is an `ApprovalResponse`, or a plain dict: ``{"id": "c1", "decision": "approve"}``.

    Raises `InvalidCheckpoint`, before anything is run, if the checkpoint is another agent's, is kept in a store,
    was resumed in this process before, or if a response does not fit. Only a store can tell that another
    process has resumed it: see `askfirst.checkpoints.RunCheckpointStore`.
    """
    session = _restored(spec, checkpoint, tracer)
    return await _until(
        signal, session, partial(resume_with, session, responses, once=partial(_take, checkpoint))
    )


async def run_agent_stream(
    spec: AgentSpec,
    query: Input,
    *,
    prefix_messages: Sequence[Message] | None = None,
    thread_id: str | None = None,
    principal: str = "*",
    signal: asyncio.Event | None = None,
    tracer: Listener | None = None,
) -> AsyncIterator[StreamEnvelope]:
    """Like `run_agent`, telling what happens as it does; leaving the loop stops the run."""
    session = _session(spec, thread_id, principal, prefix_messages, tracer)
    async with aclosing(
        _stream(session, signal, partial(session.prompt, UserMessage(query), new_id(), "raise"))
    ) as envelopes:
        async for envelope in envelopes:
            yield envelope


async def run_agent_resume_stream(
    spec: AgentSpec,
    checkpoint: RunCheckpoint,
    responses: Sequence[ResponseLike],
    *,
    signal: asyncio.Event | None = None,
    tracer: Listener | None = None,
) -> AsyncIterator[StreamEnvelope]:
    """Like `run_agent_resume`, telling what happens as it does; leaving the loop stops the run."""
    session = _restored(spec, checkpoint, tracer)
    async with aclosing(
        _stream(session, signal, partial(resume_with, session, responses, once=partial(_take, checkpoint)))
    ) as envelopes:
        async for envelope in envelopes:
            yield envelope


def _session(
    spec: AgentSpec,
    thread_id: str | None,
    principal: str,
    messages: Sequence[Message] | None,
    tracer: Listener | None,
) -> Session:
    thread = Thread(thread_id or new_id(), messages or ())
    session = Session(Actor.root(spec, principal), LiveThread(thread, None, is_new=True), None)
    if tracer is not None:
        session.emitter.subscribe(tracer)
    return session


def _restored(spec: AgentSpec, checkpoint: RunCheckpoint, tracer: Listener | None) -> Session:
    if not isinstance(checkpoint, RunCheckpoint):
        given = type(checkpoint).__name__
        problem = f"a run goes on from a RunCheckpoint, such as result.checkpoint, not from {given}"
        raise InvalidCheckpoint([f"{problem}; RunCheckpoint.from_json makes one of JSON"])
    if checkpoint.stored:
        problem = (
            "this run is kept in a store, where others may go on with it: resume it there, with "
            "Agent(checkpointer=..., thread_id=...).resume_with(...)"
        )
        raise InvalidCheckpoint([problem])
    session = _session(spec, checkpoint.thread_id, checkpoint.principal, checkpoint.root_messages, tracer)
    restore(session, checkpoint)
    return session


def _take(checkpoint: RunCheckpoint) -> None:
    """Mark a checkpoint as resumed in this process; raises if it was before."""
    checkpoint_id = checkpoint.checkpoint_id
    if checkpoint_id is None:
        return
    if checkpoint_id in _resumed:
        problem = f"checkpoint {checkpoint_id!r} was resumed before; go on from the result of that"
        raise InvalidCheckpoint([problem])
    _resumed[checkpoint_id] = None
    while len(_resumed) > _REMEMBERED:
        _resumed.popitem(last=False)


async def _until(
    signal: asyncio.Event | None, session: Session, work: Callable[[], Awaitable[AgentResult]]
) -> AgentResult:
    """Do the work, and abort it when the signal is set."""
    if signal is None:
        return await work()
    if signal.is_set():  # a run that never waits would end before the watcher task starts
        session.abort_soon()
    watcher = asyncio.create_task(_watch(signal, session))
    try:
        return await work()
    finally:
        watcher.cancel()
        await asyncio.wait({watcher})


async def _watch(signal: asyncio.Event, session: Session) -> None:
    await signal.wait()
    session.abort_soon()


async def _stream(
    session: Session, signal: asyncio.Event | None, work: Callable[[], Awaitable[AgentResult]]
) -> AsyncGenerator[StreamEnvelope]:
    queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
    unsubscribe = session.emitter.subscribe(queue.put_nowait)
    task = asyncio.ensure_future(_until(signal, session, work))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield StreamEnvelope("event", event=event)
    except BaseException:
        tell_unheard(task, session.thread_id)
        if not task.done():
            session.abort_soon()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise
    finally:
        unsubscribe()
    result = await task
    if result.status == "paused":
        yield StreamEnvelope("paused", pending=result.pending_approvals, checkpoint=result.checkpoint)
    yield StreamEnvelope("result", result=result)
