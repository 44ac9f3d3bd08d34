"""Agent: the live door to a thread, with its listeners, its store and its channel."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from askfirst.agent import answering
from askfirst.agent.emitter import Listener, logger
from askfirst.agent.foreign_channel import OwnChannel, whole_channel
from askfirst.agent.live_thread import LiveThread
from askfirst.agent.result import AgentResult
from askfirst.agent.session import OnPending, Session
from askfirst.agent.spec import Actor, AgentSpec, Middleware, ToolGate
from askfirst.agent.thread import Thread
from askfirst.agent.tools import Tool
from askfirst.agent.tree import in_flight, request_in_flight
from askfirst.approvals import PendingApproval, ResponseLike
from askfirst.channels import HitlChannel, LeastChannel
from askfirst.checkpointer.base import Checkpointer
from askfirst.concurrency import LoopLock
from askfirst.errors import HitlError, HitlNoPendingRequest, InvalidAgent
from askfirst.events import AgentEvent
from askfirst.ids import new_id
from askfirst.messages import Input, Message, UserMessage
from askfirst.models.base import Model, ModelSettings
from askfirst.permissions.decision import PermissionPolicy
from askfirst.permissions.guardrails import Guardrail
from askfirst.requests import HitlRequest, check_reason

if TYPE_CHECKING:
    from askfirst.checkpointer.sql import SqlCheckpointer


# A run whose stream was left: nobody awaits it any more.


_unheard: set[asyncio.Future[Any]] = set()
"""Those that go on; an event loop alone would not keep them."""


def tell_unheard(run: asyncio.Future[Any], thread_id: str) -> None:
    """Keep a run whose stream was left until it ends, and log its failure: nobody awaits the run."""
    _unheard.add(run)
    run.add_done_callback(_unheard.discard)
    run.add_done_callback(lambda run: _log(run, thread_id))


def _log(run: asyncio.Future[Any], thread_id: str) -> None:
    if not run.cancelled() and (error := run.exception()) is not None:
        logger.error("thread %s: a run failed after its stream was left", thread_id, exc_info=error)


# A checkpointer that an agent was given by its URL: opened when it is first needed, closed with the event
# loop.


_lives: set[AsyncGenerator[None]] = set()
"""The checkpointers that are open: an event loop that ends closes its async generators, if they are still there."""
_closing: set[asyncio.Task[None]] = set()
"""Tasks that close unreferenced checkpointers; kept here because an event loop keeps no strong reference."""


class OwnStore:
    """A checkpointer that an agent made from a URL, and its lifetime.

    It is closed by `close`, when its event loop ends (as by ``asyncio.run``), or when it is garbage-collected. `open`
    opens it again, on another loop too.
    """

    def __init__(self, url: str) -> None:
        from askfirst.checkpointer.connect import checkpointer_from_url  # brings a database's library

        self.checkpointer: SqlCheckpointer = checkpointer_from_url(url)
        self._opening = LoopLock()
        self._life: AsyncGenerator[None] | None = None

    async def open(self) -> None:
        """Open the checkpointer, unless it is open on this event loop already."""
        if self.checkpointer.is_open:
            return
        async with self._opening:
            if not self.checkpointer.is_open:
                self._life = life = _life(self.checkpointer)
                _lives.add(life)
                weakref.finalize(self, _end, asyncio.get_running_loop(), life).atexit = False
                try:
                    await anext(life)
                except BaseException:
                    _lives.discard(life)
                    raise

    async def close(self) -> None:
        """Close it, if it is open."""
        life, self._life = self._life, None
        if life is not None:
            try:
                await life.aclose()
            finally:
                _lives.discard(life)


async def _life(checkpointer: SqlCheckpointer) -> AsyncGenerator[None]:
    async with checkpointer:
        yield


def _end(loop: asyncio.AbstractEventLoop, life: AsyncGenerator[None]) -> None:
    """Close an unreferenced checkpointer on its own loop; the last reference may go in another thread."""
    if life not in _lives:
        return
    with suppress(RuntimeError):  # the loop is closed, and has closed this too
        loop.call_soon_threadsafe(_close_soon, loop, life)


def _close_soon(loop: asyncio.AbstractEventLoop, life: AsyncGenerator[None]) -> None:
    task = loop.create_task(_close(life))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def _close(life: AsyncGenerator[None]) -> None:
    try:
        await life.aclose()
    finally:
        _lives.discard(life)


class Agent:
    """An agent with one conversation.

    It takes the fields of `AgentSpec` by keyword (or a spec, with `from_spec`), the ``thread_id`` of its
    conversation, and the ``messages`` to begin with. One run goes on at a time; others wait their turn.

    ``channel`` is how it asks people; without one a run that needs a person stops as ``"paused"``, and
    `resume_with` goes on. With a ``checkpointer`` the conversation is stored as it goes, and any process with
    the same ``thread_id`` can go on with it. ``principal`` is on whose behalf it works; policies see it.

    The checkpointer may be a URL, such as ``"sqlite:///threads.db"``: then the agent opens it when it first needs it.
    It is closed at the end of ``async with agent:``, by `aclose`, or with the event loop.

    ``resumer`` names who goes on when a person has answered and nobody waits: a worker that knows a resumer of that
    name (see `askfirst.workers`).
    """

    __slots__ = ("_session", "_store")

    def __init__(
        self,
        *,
        model: Model | str,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        instructions: str = "",
        id: str = "agent",
        policy: PermissionPolicy | None = None,
        guardrails: Sequence[Guardrail] = (),
        middleware: Sequence[Middleware] = (),
        subagents: Sequence[AgentSpec] = (),
        max_iterations: int = 50,
        settings: ModelSettings | None = None,
        tool_gate: ToolGate = "batch",
        approval_timeout: float | str | None = None,
        principal: str = "*",
        channel: LeastChannel | None = None,
        checkpointer: Checkpointer | str | None = None,
        thread_id: str | None = None,
        messages: Sequence[Message] = (),
        resumer: str | None = None,
    ) -> None:
        spec = AgentSpec(
            id,
            model,
            tools,
            instructions,
            policy=policy,
            guardrails=guardrails,
            middleware=middleware,
            subagents=subagents,
            max_iterations=max_iterations,
            settings=settings or ModelSettings(),
            tool_gate=tool_gate,
            approval_timeout=approval_timeout,
        )
        self._open(spec, channel, checkpointer, thread_id, messages, principal, resumer)

    @classmethod
    def from_spec(
        cls,
        spec: AgentSpec,
        *,
        principal: str = "*",
        channel: LeastChannel | None = None,
        checkpointer: Checkpointer | str | None = None,
        thread_id: str | None = None,
        messages: Sequence[Message] = (),
        resumer: str | None = None,
    ) -> Agent:
        """An agent as the spec defines it."""
        agent = cls.__new__(cls)
        agent._open(spec, channel, checkpointer, thread_id, messages, principal, resumer)
        return agent

    def _open(
        self,
        spec: AgentSpec,
        channel: LeastChannel | None,
        checkpointer: Checkpointer | str | None,
        thread_id: str | None,
        messages: Sequence[Message],
        principal: str,
        resumer: str | None,
    ) -> None:
        if thread_id is not None and not (isinstance(thread_id, str) and thread_id):
            raise InvalidAgent(f"thread_id is a text, not {thread_id!r}; without one a new thread begins")
        self._store = own = OwnStore(checkpointer) if isinstance(checkpointer, str) else None
        given = None if isinstance(checkpointer, str) else checkpointer
        store: Checkpointer | None = given if own is None else own.checkpointer
        whole = None if channel is None else whole_channel(channel)
        if whole is not None:
            store = store or whole.checkpointer
            thread_id = thread_id or whole.thread_id
            if whole.checkpointer not in (None, store):
                raise InvalidAgent("the channel and the agent have two checkpointers; give both the same")
        if store is not None and messages:
            raise InvalidAgent(
                "a stored thread begins with what is stored; messages= is for agents without a store"
            )
        thread = Thread(thread_id or new_id(), messages)
        if resumer is not None and store is None:
            raise InvalidAgent("a resumer goes on with a stored thread: give the agent a checkpointer, too")
        live = LiveThread(thread, store, is_new=thread_id is None)
        actor = Actor.root(spec, principal, thread.thread_id, resumer)
        self._session = Session(actor, live, whole)
        if whole is not None:
            whole.bind(self._session.host)

    async def __aenter__(self) -> Self:
        await self._ready()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the checkpointer that was given as a URL; another use of the agent opens it again.

        One that was given as an object is its owner's to close.
        """
        if self._store is not None:
            await self._store.close()

    async def _ready(self) -> None:
        """Open the checkpointer, if it was given as a URL."""
        if self._store is not None:
            await self._store.open()

    def goes_on_by(self, resumer: str) -> None:
        """Name the resumer with which a worker resumes the thread when a request of this agent is settled."""
        session = self._session
        session.actor = replace(session.actor, resumer=resumer)

    # What it is.

    @property
    def spec(self) -> AgentSpec:
        """What the agent is made of."""
        return self._session.actor.spec

    @property
    def _run_lock(self) -> asyncio.Lock:
        """Held while a run goes on: `prompt`, `resume` and `respond` take turns."""
        return self._session.lock

    @property
    def thread_id(self) -> str:
        """The id of this agent's conversation."""
        return self._session.thread_id

    @property
    def channel(self) -> HitlChannel | None:
        """How it asks people, if it can."""
        channel = self._session.channel
        return channel.channel if isinstance(channel, OwnChannel) else channel

    @property
    def messages(self) -> tuple[Message, ...]:
        """The transcript so far, as far as this process knows it; `load` brings it up to date."""
        return tuple(self._session.live.thread.messages)

    async def load(self) -> tuple[Message, ...]:
        """The transcript as it is stored."""
        await self._ready()
        async with self._session.lock:
            await self._session.load(fresh=True)
        return self.messages

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` (sync or async) with every event from now on; returns a function that stops it.

        A listener that raises is logged and harms nobody.
        """
        return self._session.emitter.subscribe(listener)

    # Running it.

    async def prompt(
        self, content: Input, *, on_pending: OnPending = "raise", run_id: str | None = None
    ) -> AgentResult:
        """Give the agent a message, and run it until it is done, pauses, fails, is aborted or detached.

        While another run is under way, this one waits its turn. While a request is open, it raises
        `HitlRequestPending`; with ``on_pending="supersede"`` the request is settled as superseded instead, and its
        calls are not run.

        ``run_id`` names the run; by default it is a new id. The message is appended at each call. A caller to whom
        the same message may be delivered twice, such as by a queue, derives the id from the message's. If the
        thread's latest run (`StoredThread.run`) has this id already, it calls `resume` instead.
        """
        await self._ready()
        return await self._session.prompt(UserMessage(content), run_id or new_id(), on_pending)

    async def resume(self) -> AgentResult:
        """Resume from the transcript: run the calls without a result, or ask the model (again, if it failed).

        While a request is open, it waits for the person through the channel; without a channel the result's
        status is ``"paused"``. It is ``"suspended"`` if another worker has the thread.
        """
        await self._ready()
        return await self._session.resume()

    async def resume_with(
        self, responses: Sequence[ResponseLike], *, by: str | None = None, via: str | None = None
    ) -> AgentResult:
        """Decide on pending approvals, some or all, and go on; those that are left stay pending.

        A response is an `ApprovalResponse`, or a plain dict: ``{"id": "c1", "decision": "approve"}``.

        Raises `InvalidCheckpoint` if a response is for nothing that is pending or does not fit, and
        `HitlStaleAnswer` if somebody else decided first, or if a response has the ``digest`` of what was asked
        before under its id; nothing is run then. As with `respond`, it is a `HitlError` if the transcript does not
        hold the call, and all requests stay open.
        """
        await self._ready()
        return await answering.resume_with(self._session, responses, by, via)

    async def stream(
        self, content: Input, *, on_pending: OnPending = "raise", abort_on_leave: bool = False
    ) -> AsyncIterator[AgentEvent]:
        """Like `prompt`, yielding this run's events as they happen.

        Leaving the loop does not stop the run: whoever reads may only have lost the line. With ``abort_on_leave`` it
        does, except while a person is being asked: then the run leaves its wait, the request stays open, and
        `respond` or `resume` goes on.
        """
        message, run_id = UserMessage(content), new_id()

        def prompt(_: Callable[[], None]) -> Coroutine[Any, Any, AgentResult]:
            return self._session.prompt(message, run_id, on_pending)

        async with aclosing(self._streamed(prompt, run_id, abort_on_leave)) as events:
            async for event in events:
                yield event

    async def resume_stream(
        self,
        responses: Sequence[ResponseLike] | None = None,
        *,
        by: str | None = None,
        via: str | None = None,
        abort_on_leave: bool = False,
    ) -> AsyncIterator[AgentEvent]:
        """Like `resume`, or with ``responses`` like `resume_with`, yielding the run's events as they happen.

        Leaving the loop does not stop the run, unless ``abort_on_leave`` is set: see `stream`.
        """

        async def resume(begins: Callable[[], None]) -> AgentResult:
            if responses is not None:
                return await answering.resume_with(self._session, responses, by, via, once=begins)
            async with self._session.lock:
                begins()
                return await self._session.resume_held()

        async with aclosing(self._streamed(resume, None, abort_on_leave)) as events:
            async for event in events:
                yield event

    async def _streamed(
        self,
        work: Callable[[Callable[[], None]], Coroutine[Any, Any, AgentResult]],
        run_id: str | None,
        abort_on_leave: bool,
    ) -> AsyncGenerator[AgentEvent]:
        """The events of a run in a task of its own, and those of its subagents.

        ``run_id`` is the run's id, if it is known; else the run's events are those since ``work`` has called the
        function that it is given, which it does when it has the session's lock.
        """
        session = self._session
        session.lock.check()  # the run goes on in a task of its own, and is waited for here
        await self._ready()
        queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        begun, depth = asyncio.Event(), len(session.actor.path)

        def hear(event: AgentEvent) -> None:
            if begun.is_set() or (
                run_id is not None and (event.run_id == run_id or len(event.agent_path) > depth)
            ):
                queue.put_nowait(event)

        unsubscribe = self.subscribe(hear)
        task = asyncio.create_task(work(begun.set))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
        except BaseException:
            tell_unheard(task, self.thread_id)
            if abort_on_leave:
                await self._stop_left(task, run_id, is_begun=begun.is_set())
            raise
        finally:
            unsubscribe()
        await task

    async def _stop_left(
        self, task: asyncio.Task[AgentResult], run_id: str | None, *, is_begun: bool
    ) -> None:
        """Abort the run whose stream was left, or cancel its wait: for a person, or for its turn."""
        session = self._session
        if run_id is None and is_begun and session.run is not None:
            run_id = session.run.run_id
        asks = request_in_flight(session) is not None
        if not task.done() and (asks or run_id is None or not session.abort_run(run_id)):
            task.cancel()
        await asyncio.wait([task])

    def abort(self) -> None:
        """Stop the run that is going on, if any: its model call and its tools are cancelled.

        The transcript keeps all it has; open calls get a result that says what is known of them. May be
        called from any thread.
        """
        self._session.abort()

    # The people it asks.

    @property
    def in_flight_hitl_request(self) -> HitlRequest | None:
        """What a person is being asked through the channel just now. Raises `HitlError` without a channel."""
        if self.channel is None:
            raise HitlError(_NO_CHANNEL)
        return self.channel.pending

    async def load_pending_hitl_request(self) -> HitlRequest | None:
        """What a person is being asked, also after a detach or in a fresh process."""
        await self._ready()
        return await answering.look(self._session)

    async def pending_approvals(self) -> tuple[PendingApproval, ...]:
        """The open requests of this agent and its subagents, as portable values; nothing is run or changed.

        The store is read, so that another process's requests are there too; those past their deadline are left out.
        Answer one by its ``id``, with `resume_with` or `resume_stream`. A request that is not about a call (a
        question, a confirmation) has its kind as the ``tool_call``'s name; `respond` answers it.
        """
        await self._ready()
        return await answering.pending(self._session)

    async def detach(self) -> None:
        """Stop waiting for a person; the request stays open, and the waiting `prompt` returns ``"suspended"``.

        Listeners hear `AgentSuspendedEvent` first, then the run gets `HitlDetached`. An answer that comes in
        between is kept: `respond` or `resume` goes on, here or in another process. Raises
        `HitlNoPendingRequest` if nobody is being asked.
        """
        await self._ready()
        asked = in_flight(self._session)
        if not asked and self.channel is None:
            raise HitlError(_NO_CHANNEL)
        if not await self._session.host.leave(asked):
            raise HitlNoPendingRequest(self.thread_id)

    async def respond(
        self,
        *,
        answer: Any,
        question_id: str | None = None,
        by: str | None = None,
        via: str | None = None,
        digest: str | None = None,
    ) -> AgentResult | None:
        """Answer the open request and go on with the run that waits for it; if several are open, name one.

        If that run waits in this agent just now, it goes on by itself and this returns None. Raises
        `HitlNoPendingRequest` if there is no request, `HitlStaleAnswer` if it is another or settled already, and
        `HitlInvalidAnswer` if the answer does not fit; nothing is changed then.

        ``digest`` is that of the call that the person was shown: if something else is asked by now under the
        same id, the answer is stale. An answer that could be for several requests raises `HitlError`. So does one
        about a call that the agent's transcript does not hold, for no run could go on with it; all stay open.
        """
        await self._ready()
        waiting = in_flight(self._session)
        if waiting:
            await answering.answer_here(self._session, waiting, question_id, answer, by, via, digest)
            return None
        return await answering.respond(self._session, question_id, answer, by, via, digest)

    async def abort_pending(self, reason: str = "aborted") -> None:
        """Close the conversation where it waits for a person.

        The request is settled as aborted, its calls get results that say they were not run, and the
        transcript ends with an aborted message. Raises `HitlNoPendingRequest` if nobody is being asked, and
        `HitlStaleAnswer` if the answer came first.
        """
        check_reason(reason)  # before a run that waits hears of it
        await self._ready()
        await self._session.close(reason or "aborted")


_NO_CHANNEL = "this agent has no channel; give it one: Agent(..., channel=...)"
