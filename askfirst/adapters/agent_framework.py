"""Microsoft Agent Framework: the gate before an agent's tools as function middleware, and runs that are stored.

The middleware answers a call with the framework's own approval request while a person decides. The approval response
decides nothing: the gate reads the decision from its store, and pauses again after an early or forged response.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportGeneralTypeIssues=false
# pyright: reportArgumentType=false, reportUntypedBaseClass=false
# (the framework is installed in the environment of this adapter's tests only, and this module has its name)

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from askfirst.adapters.framework import instance_from, needs
from askfirst.adapters.gated_call import Done, GatedCall, GatedTools, NotRun, Start, ToolsGiven, with_defaults
from askfirst.adapters.kept_state import KeptRun, kept_resumer
from askfirst.errors import HitlError, Pending
from askfirst.gate.gate import Gate
from askfirst.workers.resumers import Resumer

with needs("agent-framework"):
    from agent_framework import (
        AgentSession,
        BaseAgent,
        Content,
        FunctionMiddleware,
        Message,
        UserInputRequiredException,
    )

RESUMER = "agent-framework"
"""The name under which a worker knows `agent_framework_resumer`, unless another is given."""
_OURS = "askfirst"
"""The property that marks the gate's approval requests, and the field of a stored session with the gate's data."""
_BOUND = "_approved_function_arguments"
"""The metadata that binds a call to its approved arguments; removed if a person edited them at the gate."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that ended before, perhaps in another process. ``text`` is what the agent said last."""

    text: str
    user_input_requests: tuple[()] = ()


class AskfirstMiddleware(FunctionMiddleware):
    """The gate before the tools of an agent: ``Agent(…, middleware=[AskfirstMiddleware(gate)])``, run with `run`.

    ``tools`` are the names of the tools that a person decides on, or a mapping from names to options of
    `Gate.guarded`. The gate's policy decides on all other tools. Without ``tools`` and without a policy, a person
    decides on every call. An agent that is not run with `run` needs a session, which your own code then has to store.
    """

    def __init__(self, gate: Gate, tools: ToolsGiven = None, *, resumer: str = RESUMER) -> None:
        super().__init__()
        self._gated = GatedTools.of(gate, RESUMER, tools, resumer, (UserInputRequiredException,))

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        """Put a call to the gate; the framework calls this."""
        if not self._gated.has(context.function.name):
            await call_next()
            return
        call = self._call(context)
        is_new = context.session.state.get(_OURS) and "approval_response" not in context.metadata
        if is_new and await self._gated.gate.asks(call.action):
            self._pause(
                context, None
            )  # `run` stores the session, then resumes it; only then is a person asked
            return
        match await call.enter():
            case Pending() as pending:
                self._pause(context, pending)
            case Start() as start:
                await self._run(context, call_next, call, start)
            case NotRun(text):
                context.result = text
            case Done(value, note):
                context.result = _with_note([Content.from_dict(it) for it in value], note)

    async def _run(self, context: Any, call_next: Any, call: GatedCall, start: Start) -> None:
        if start.args != call.action.args:
            context.arguments = start.args
            context.metadata.pop(_BOUND, None)
        try:
            await call_next()
        except BaseException as error:
            await call.stop(start, error)
            raise
        result = context.result if isinstance(context.result, list) else [context.result]
        result = [it if isinstance(it, Content) else Content.from_text(str(it)) for it in result]
        await call.finish(start, to_jsonable_python([it.to_dict() for it in result], fallback=str))
        context.result = _with_note(result, start.note)

    def _call(self, context: Any) -> GatedCall:
        if context.session is None:
            raise HitlError("the gate needs a session: run the agent with run(…) of this adapter")
        schema: dict[str, Any] = context.function.parameters()
        args, thread = with_defaults(dict(context.arguments), schema), context.session.session_id
        name, call_id = context.function.name, _call_id(context)
        return self._gated.call(name, args, thread=thread, call_id=call_id, schema=schema)

    def _pause(self, context: Any, pending: Pending | None) -> None:
        unique, name = _call_id(context), context.function.name
        args = {"call_id": context.metadata["call_id"], "arguments": dict(context.arguments)}
        call = Content.from_function_call(name=name, id=unique, **args)
        about = {} if pending is None else {"case": pending.case, "key": pending.key, "link": pending.link}
        context.result = Content.from_function_approval_request(
            id=unique, function_call=call, additional_properties={_OURS: about}
        )


async def run(agent: Any, messages: Any, *, gate: Gate, key: str, **options: Any) -> Any:
    """Run an agent until it ends, or pauses for people to decide: then the result has ``user_input_requests``.

    ``key`` names the run in the gate's store. Another call with the same key continues the stored run and ignores its
    own ``messages``; it returns `Ended` if the run has ended. Options are those of the agent's own ``run``.
    """
    await gate.ready()
    this = _Run(agent, KeptRun(gate.checkpointer, RESUMER, key), options)
    session, ended, requests = await this.read()
    if ended is not None or requests:
        return await this.go_on()
    return await this.store_and_ask(session, await this.agent_run(messages, session))


def agent_framework_resumer(agent: Any, **options: Any) -> Resumer:
    """A resumer that continues a run of an agent when people have decided.

    ``agent`` is the agent that the run began with, or a function (sync or async) that returns it.
    """

    async def go_on(kept: KeptRun) -> object:
        return await _Run(await instance_from(agent, BaseAgent), kept, options).go_on()

    return kept_resumer(RESUMER, go_on)


@dataclass(frozen=True)
class _Run:
    """One run of an agent, in this process."""

    agent: Any
    kept: KeptRun
    options: dict[str, Any]

    async def read(self) -> tuple[Any, Ended | None, list[Any]]:
        """The stored run: its session, its end if it has ended, and the gate's approval requests that are open."""
        state: dict[str, Any] = dict(await self.kept.state() or {"session_id": self.kept.run})
        ours: dict[str, Any] = state.pop(_OURS, None) or {"ended": None, "requests": []}
        session = AgentSession.from_dict(copy.deepcopy(state))
        session.state[_OURS] = True
        ended = None if ours["ended"] is None else Ended(ours["ended"])
        return session, ended, [Content.from_dict(it) for it in ours["requests"]]

    async def go_on(self) -> Any:
        """Continue the run. The framework's own approvals only make it run the calls, which then enter the gate."""
        session, ended, requests = await self.read()
        if ended is not None:
            return ended
        return await self.store_and_ask(session, await self.agent_run(_approvals_of(requests), session))

    async def store_and_ask(self, session: Any, response: Any) -> Any:
        """Store the run's state, then have people asked; continue until the run ends or waits for people."""
        while True:
            asked = response.user_input_requests
            requests = [it for it in asked if _OURS in (it.additional_properties or {})]
            ended = None if asked else response.text
            ours = {"ended": ended, "requests": [it.to_dict() for it in requests]}
            if not await self.kept.keep(to_jsonable_python({**session.to_dict(), _OURS: ours})):
                await self.kept.load()  # another process has continued the run: continue from what it stored
                return await self.go_on()
            if all(it.additional_properties[_OURS] for it in requests):
                return response
            response = await self.agent_run(_approvals_of(requests), session)

    async def agent_run(self, messages: Any, session: Any) -> Any:
        return await self.agent.run(messages, session=session, **self.options)


def _approvals_of(requests: list[Any]) -> list[Any]:
    return [Message(role="user", contents=[it.to_function_approval_response(True) for it in requests])]


def _call_id(context: Any) -> str:
    return context.metadata.get("function_call_occurrence_id") or context.metadata["call_id"]


def _with_note(result: list[Any], note: str | None) -> list[Any]:
    return result if note is None else [Content.from_text(note), *result]
