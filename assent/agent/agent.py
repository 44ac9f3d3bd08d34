"""The live agent: a thread, its listeners, and the right to run it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from assent.agent.emitter import Emitter, Listener
from assent.agent.fold import is_finished
from assent.agent.loop import advance
from assent.agent.middleware import Middleware
from assent.agent.result import AgentResult, result_of
from assent.agent.run import Run, Thread
from assent.agent.spec import AgentSpec
from assent.agent.tools import Tool
from assent.events import AgentEvent, RunEndedEvent, RunStartedEvent
from assent.messages import Input, Message, UserMessage
from assent.models.base import Model, ModelSettings


class Agent:
    """An agent with one conversation.

    It takes the fields of `AgentSpec` by keyword (or a spec, with `from_spec`), the ``thread_id`` of its
    conversation, and the ``messages`` to begin with. One run goes on at a time; others wait their turn.
    """

    __slots__ = ("_emitter", "_run_id", "_run_lock", "_running", "_thread", "spec")

    def __init__(
        self,
        *,
        model: Model | str,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        instructions: str = "",
        id: str = "agent",
        middleware: Sequence[Middleware] = (),
        settings: ModelSettings | None = None,
        max_iterations: int = 50,
        thread_id: str | None = None,
        messages: Sequence[Message] = (),
    ) -> None:
        spec = AgentSpec(
            id, model, tools, instructions, middleware, settings or ModelSettings(), max_iterations
        )
        self._open(spec, thread_id, messages)

    @classmethod
    def from_spec(
        cls, spec: AgentSpec, *, thread_id: str | None = None, messages: Sequence[Message] = ()
    ) -> Agent:
        """An agent as the spec defines it."""
        agent = cls.__new__(cls)
        agent._open(spec, thread_id, messages)
        return agent

    def _open(self, spec: AgentSpec, thread_id: str | None, messages: Sequence[Message]) -> None:
        self.spec = spec
        self._thread = Thread(thread_id or secrets.token_hex(16), messages)
        self._emitter = Emitter(self._thread.thread_id, spec.onion.on_event)
        self._run_lock = asyncio.Lock()
        self._run_id: str | None = None
        self._running: tuple[Run, asyncio.Timeout] | None = None

    @property
    def thread_id(self) -> str:
        """The id of this agent's conversation."""
        return self._thread.thread_id

    @property
    def messages(self) -> tuple[Message, ...]:
        """The transcript so far."""
        return tuple(self._thread.messages)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` (sync or async) with every event from now on; returns a function that stops it.

        A listener that raises is logged and harms nobody.
        """
        return self._emitter.subscribe(listener)

    async def prompt(self, content: Input) -> AgentResult:
        """Say something to the agent and let it work until it is done, fails or is aborted.

        While another run goes on, this one waits its turn.
        """
        return await self._prompt(UserMessage(content), secrets.token_hex(16))

    async def resume(self) -> AgentResult:
        """Go on from whatever the transcript says: run open calls, or ask the model (again, if it failed)."""
        async with self._run_lock:
            return await self._work(self._run_id or secrets.token_hex(16), None)

    async def stream(self, content: Input) -> AsyncIterator[AgentEvent]:
        """Like `prompt`, yielding this run's events as they happen; leaving the loop aborts the run."""
        message, run_id = UserMessage(content), secrets.token_hex(16)
        queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        unsubscribe = self.subscribe(
            lambda event: queue.put_nowait(event) if event.run_id == run_id else None
        )
        task = asyncio.create_task(self._prompt(message, run_id))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            unsubscribe()
            if not task.done() and not self._abort(run_id):
                task.cancel()  # it still waits its turn
            await asyncio.wait([task])
        await task

    def abort(self) -> None:
        """Stop the run that is going on, if any: its model call and its tools are cancelled.

        The transcript keeps all it has; open calls get a result that says what is known of them.
        """
        if self._running is not None:
            self._abort(self._running[0].run_id)

    def _abort(self, run_id: str) -> bool:
        if self._running is None or self._running[0].run_id != run_id:
            return False
        run, scope = self._running
        if not run.signal.is_set():
            run.signal.set()
            scope.reschedule(asyncio.get_running_loop().time())
        return True

    async def _prompt(self, message: UserMessage, run_id: str) -> AgentResult:
        async with self._run_lock:
            return await self._work(run_id, message)

    async def _work(self, run_id: str, message: UserMessage | None) -> AgentResult:
        """One passage of the loop, from a new message or from where the transcript stands."""
        self._run_id = run_id
        run, scope = Run(self.spec, self._thread, self._emitter, run_id), asyncio.timeout(None)
        try:
            async with scope:
                self._running = run, scope
                await run.emit(RunStartedEvent, agent_id=self.spec.id, resumed=message is None)
                if message is not None:
                    await run.resolve_open_calls("Not run: the conversation went on without it.")
                    await run.append(message)
                await advance(run)
        except BaseException as error:
            if not scope.expired():  # not `abort`, the only one who ever sets a deadline
                self._emitter.post(RunEndedEvent, run_id, status="suspended", reason=type(error).__name__)
                raise
        finally:
            self._running = None
        if run.signal.is_set() and not is_finished(run.messages):
            await run.close()
        return await self._end(run)

    async def _end(self, run: Run) -> AgentResult:
        result = result_of(run.messages, self.thread_id, run.run_id)
        await run.emit(
            RunEndedEvent, status=result.status, text=result.text, reason=result.reason, usage=result.usage
        )
        return result
