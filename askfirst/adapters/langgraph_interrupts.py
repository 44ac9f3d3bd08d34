"""InterruptRelay: people answer the interrupts of an unchanged LangGraph graph.

For graphs with LangChain's `HumanInTheLoopMiddleware`, a bare ``interrupt()`` or Agent Inbox's ``HumanInterrupt``.
Each interrupt becomes a request at the gate. A worker resumes the graph with the answer, by the interrupt's id. The
decision is made once. The effect may happen twice, because LangGraph runs the tool without the gate.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
# (LangGraph's types are known in the environment of this adapter's tests only)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askfirst.adapters.framework import instance_from, needs
from askfirst.adapters.langgraph_questions import Call, InterruptRequests, PartAnswer, requests_in
from askfirst.adapters.schema_form import Form
from askfirst.errors import HitlError, Pending, ResumeFailed
from askfirst.gate.action import Action
from askfirst.gate.gate import Gate
from askfirst.gate.outcomes import Refused
from askfirst.requests import AskRequest, StoredRequest
from askfirst.workers.continuations import Continuation
from askfirst.workers.resumers import Resumer

with needs("langgraph"):
    from langchain_core.runnables import Runnable
    from langgraph.types import Command, Interrupt

RESUMER = "langgraph-interrupts"
"""The name under which a worker knows `InterruptRelay.resumer`, unless another is given."""
_OURS = "askfirst"
"""The ``type`` of interrupts of `AskfirstMiddleware`, which opens its requests itself."""
_PENDING = object()
"""The answer to a part of an interrupt while nobody has given one."""


@dataclass(frozen=True)
class InterruptRelay:
    """Opens a request for each interrupt of a graph: ``await InterruptRelay(gate).open(graph, config)``."""

    gate: Gate
    name: str = RESUMER
    """The name of the resumer that continues the graph."""

    async def open(self, graph: Any, config: Mapping[str, Any]) -> list[Pending]:
        """Open a request for each interrupt of a thread, once; returns those that are still pending.

        Call it after the graph was invoked. Another call, in any process, opens no request twice.
        """
        state = await graph.aget_state(config)
        return await self._open(self.gate, _thread(config), state.interrupts)

    def open_here(self, graph: Any, config: Mapping[str, Any]) -> list[Pending]:
        """`open` for code without an event loop. The gate has to be made with its store's URL."""
        thread, interrupts = _thread(config), graph.get_state(config).interrupts
        return self.gate.portal.run(lambda gate: self._open(gate, thread, interrupts))

    def resumer(self, graph: Any, config: Mapping[str, Any] | None = None) -> Resumer:
        """A resumer for workers: ``{"langgraph-interrupts": relay.resumer(graph)}``.

        ``graph`` is the compiled graph, or a function (sync or async) that returns it; ``config`` is merged into the
        configuration that the graph is called with. Requests are opened for new interrupts of the resumed graph, too.
        """

        async def resume(continuation: Continuation) -> Any:
            compiled, thread = await instance_from(graph, Runnable), continuation.thread_id
            given = dict(config or {})
            run = {**given, "configurable": {**given.get("configurable", {}), "thread_id": thread}}
            state = await compiled.aget_state(run)
            if not state.created_at:
                raise ResumeFailed(f"the graph's checkpointer has no thread {thread!r}")
            while (answer := await self._answer(thread, state.interrupts)) is not None:
                await compiled.ainvoke(
                    Command(resume=answer), run
                )  # one at a time, as LangChain's per_call needs
                state = await compiled.aget_state(run)
            await self._open(self.gate, thread, state.interrupts)
            return state

        return resume

    async def _open(self, gate: Gate, thread: str, interrupts: Sequence[Interrupt[Any]]) -> list[Pending]:
        found: list[Pending] = []
        for interrupt, asked in _foreign_interrupts(interrupts):
            for place in range(len(asked.parts)):
                await self._part_answer(gate, thread, interrupt, asked, place)
                waits = await gate.waiting(_key(self.name, thread, interrupt, place))
                found += [] if waits is None else [waits]
        return found

    async def _answer(self, thread: str, interrupts: Sequence[Interrupt[Any]]) -> dict[str, Any] | None:
        """The resume value of the first interrupt whose parts are all answered, by its id; None if there is none."""
        for interrupt, asked in _foreign_interrupts(interrupts):
            said = [
                await self._part_answer(self.gate, thread, interrupt, asked, place)
                for place in range(len(asked.parts))
            ]
            is_left = not asked.can_deny and any(isinstance(it, Refused) for it in said)
            if _PENDING not in said and not is_left:
                return {interrupt.id: asked.resume(said)}
        return None

    async def _part_answer(
        self, gate: Gate, thread: str, interrupt: Interrupt[Any], asked: InterruptRequests, place: int
    ) -> PartAnswer:
        """The answer to a part of an interrupt; `_PENDING` while it is pending. Opens the part's request if need
        be."""
        key, part = _key(self.name, thread, interrupt, place), asked.parts[place]
        if isinstance(part, Form):
            return await self._form_answer(gate, key, thread, part)
        action = self._action(part, thread)
        decided = await gate.open(key, action)
        return _PENDING if decided is None else decided

    def _action(self, call: Call, thread: str) -> Action:
        return Action(
            tool=call.tool, args=call.args, args_schema=call.schema, resumer=self.name, resumes=thread
        )

    async def _form_answer(self, gate: Gate, key: str, thread: str, form: Form) -> PartAnswer:
        """The value that a form was answered with. If an answer does not fit, the form is asked again with the
        fault."""
        problem, number = None, 1
        while True:
            known = await self._open_form(gate, key, thread, form, number, problem)
            if known.status == "pending":
                return _PENDING
            if known.status != "answered":
                return Refused(known.reason or f"the question was {known.status.replace('_', ' ')}")
            try:
                return form.read(known.answer)
            except ValueError as error:
                problem, number = str(error), number + 1

    async def _open_form(
        self, gate: Gate, key: str, thread: str, form: Form, number: int, problem: str | None
    ) -> StoredRequest:
        payload = form.payload
        if problem is not None and isinstance(payload, AskRequest):
            first = payload.questions[0]
            prompt = f"{first.prompt}\n\nThe last answer did not fit: {problem}"
            questions = [first.model_copy(update={"prompt": prompt}), *payload.questions[1:]]
            payload = payload.model_copy(update={"questions": questions})
        question_id = "ask" if number == 1 else f"ask~{number}"
        return await gate.question(key, question_id, payload, {}, resumer=self.name, resumes=thread)


def _foreign_interrupts(
    interrupts: Sequence[Interrupt[Any]],
) -> list[tuple[Interrupt[Any], InterruptRequests]]:
    """The interrupts that are not the gate's own, each with what it asks people."""
    return [
        (it, requests_in(it.value, it.response_schema if isinstance(it.response_schema, dict) else None))
        for it in interrupts
        if not (isinstance(it.value, dict) and it.value.get("type") == _OURS)
    ]


def _key(name: str, thread: str, interrupt: Interrupt[Any], place: int) -> str:
    return f"{name}:{thread}:{interrupt.id}:{place}"


def _thread(config: Mapping[str, Any]) -> str:
    thread = config.get("configurable", {}).get("thread_id")
    if not thread:
        raise HitlError("the relay needs a thread: give the graph's configuration a thread_id")
    return str(thread)
