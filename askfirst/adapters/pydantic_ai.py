"""Pydantic AI: the gate before an agent's tools as a capability, and going on by a worker.

The capability defers a call with its validated arguments while a person decides. Whatever results the agent is
resumed with, the gate asks its store again; so an early, repeated or forged approval only defers again.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from askfirst.adapters import kept_state
from askfirst.adapters.gated_call import Codec, GatedCall, GatedTools, Start, ToolsGiven
from askfirst.adapters.kept_state import KeptState
from askfirst.adapters.missing import needs
from askfirst.agent.verdicts import not_run
from askfirst.checkpointer.base import Checkpointer
from askfirst.errors import HitlError, Pending, ResumeFailed
from askfirst.gate.gate import Gate
from askfirst.gate.outcomes import Ran
from askfirst.messages import JsonObject
from askfirst.workers.continuations import Continuation
from askfirst.workers.resumers import Resumer

with needs("pydantic-ai"):
    from pydantic import TypeAdapter, ValidationError
    from pydantic_ai import Agent, DeferredToolResults, RunContext, ToolApproved, ToolReturn
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
    from pydantic_ai.exceptions import (
        ApprovalRequired,
        CallDeferred,
        ModelRetry,
        SkipToolExecution,
        ToolFailed,
    )
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        ToolCallPart,
        ToolReturnPart,
        tool_return_ta,
    )
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.tools import ToolDefinition

RESUMER = "pydantic-ai"
"""The name under which a worker knows `pydantic_ai_resumer`, unless another is given."""
_PAUSES = (ApprovalRequired, CallDeferred, SkipToolExecution)
_NOBODY = {"askfirst": "goes on"}
"""Marks approvals by which a run goes on, and by which nobody has approved anything."""
_RETURN: TypeAdapter[Any] = TypeAdapter(ToolReturn)


@dataclass
class _Run:
    """What one run of an agent has kept so far."""

    known: KeptState | None = None
    is_behind: bool = False
    """Whether another process has gone on with the conversation, which this run then leaves alone."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def know(self, store: Checkpointer, conversation_id: str) -> KeptState:
        if self.known is None:
            self.known = await kept_state.load(store, RESUMER, conversation_id)
        return self.known

    async def keep(self, store: Checkpointer, conversation: Conversation) -> None:
        async with self.lock:
            known = await self.know(store, conversation.conversation_id)
            if not self.is_behind:
                state: JsonObject = ConversationTypeAdapter.dump_python(conversation, mode="json")
                self.known = await kept_state.keep(store, known, state) or known
                self.is_behind = self.known is known and known.state != state


class AskfirstGate(AbstractCapability[Any]):
    """The gate before an agent's tools: ``Agent(…, capabilities=[AskfirstGate(gate)])``.

    ``tools`` names those that a person decides on, with options of `Gate.guarded` where it is a mapping; all others
    are put to the gate's policy. Without either a person decides on every call. The agent needs
    ``DeferredToolRequests`` among its output types.
    """

    def __init__(self, gate: Gate, tools: ToolsGiven = None, *, resumer: str = RESUMER) -> None:
        self._gated = GatedTools.of(gate, RESUMER, tools, resumer, _PAUSES)
        self._run = _Run()

    async def for_run(self, ctx: RunContext[Any]) -> AskfirstGate:
        """A capability for one run, which knows what the run has kept; Pydantic AI calls this."""
        mine = copy.copy(self)
        mine._run = _Run()
        return mine

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        """Put a call to the gate, with its validated arguments; Pydantic AI calls this."""
        if not self._gated.has(call.tool_name):
            if ctx.tool_call_metadata == _NOBODY:  # `pydantic_ai_resumer` goes on; nobody approved this call
                ctx.tool_call_approved = False
                if tool_def.kind == "unapproved":
                    raise ApprovalRequired
            return await handler(args)

        async def body(start: Start) -> Any:
            if start.note is None:
                return await handler(args)
            return await handler(await _validated(ctx, call, start.args))

        outcome = await self._at_gate(ctx, call, tool_def, args).run(body, _CODEC)
        if isinstance(outcome, Pending):
            raise ApprovalRequired(metadata={"askfirst": {"case": outcome.case, "key": outcome.key}})
        if isinstance(outcome, Ran):
            return _noted(*outcome.result)
        raise ToolFailed(outcome.text)

    def _at_gate(
        self, ctx: RunContext[Any], call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> GatedCall:
        thread, gate = ctx.conversation_id, self._gated.gate
        if not thread:
            raise HitlError("the gate needs a run of an agent, with a conversation id")

        async def before_asking() -> None:
            if ctx.tool_call_metadata == _NOBODY:
                await self._run.know(gate.checkpointer, thread)  # the run goes on from what is kept
            else:
                await self._run.keep(gate.checkpointer, _conversation(ctx))

        at_gate = self._gated.call(
            call.tool_name,
            args,
            thread=thread,
            call_id=f"{_place(ctx.messages, call)}:{call.tool_call_id}",
            schema=tool_def.parameters_json_schema,
        )
        return replace(at_gate, before_asking=before_asking)

    async def after_run(self, ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Keep how the run ended, if a person was asked in it; Pydantic AI calls this."""
        if self._run.known is not None:
            await self._run.keep(self._gated.gate.checkpointer, result.conversation)
        return result


async def kept_conversation(gate: Gate, conversation_id: str) -> Conversation | None:
    """A conversation as the last process left it that asked a person or went on; None if nobody was asked in it."""
    await gate.ready()
    return _read(await kept_state.load(gate.checkpointer, RESUMER, conversation_id))


def pydantic_ai_resumer(agent: Any, **options: Any) -> Resumer:
    """A resumer that goes on with a conversation of an agent when people have decided.

    ``agent`` is the agent, or a function (async if need be) that gives it; further options are those of `Agent.run`,
    such as ``deps``.
    """

    async def resume(continuation: Continuation) -> Any:
        store, thread = continuation.checkpointer, continuation.thread_id
        if store is None:
            raise ResumeFailed("the continuation is of no store")
        conversation = _read(await kept_state.load(store, RESUMER, thread))
        if conversation is None:
            raise ResumeFailed(f"nothing is kept of the conversation {thread!r}")
        calls = _open_calls(conversation.messages)
        if not calls:
            return conversation
        made: Any = cast(Any, agent) if isinstance(agent, Agent) else agent()
        runs: Agent[Any, Any] = await made if inspect.isawaitable(made) else made
        ids = [it.tool_call_id for it in calls]
        results = DeferredToolResults(
            approvals={it: ToolApproved() for it in ids}, metadata={it: dict(_NOBODY) for it in ids}
        )
        return await runs.run(conversation=conversation, deferred_tool_results=results, **options)

    return resume


def _read(known: KeptState) -> Conversation | None:
    return None if known.state is None else ConversationTypeAdapter.validate_python(known.state)


def _conversation(ctx: RunContext[Any]) -> Conversation:
    """The conversation up to the message whose calls are under way."""
    return Conversation(
        messages=list(ctx.messages), usage=ctx.usage, conversation_id=cast(str, ctx.conversation_id)
    )


def _open_calls(messages: Sequence[ModelMessage]) -> list[ToolCallPart]:
    """The calls of the last response that have no result."""
    done: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return [it for it in message.tool_calls if it.tool_call_id not in done]
        done |= _results_in(message)
    return []


def _results_in(message: ModelRequest) -> set[str]:
    return {it.tool_call_id for it in message.parts if isinstance(it, ToolReturnPart)}


def _place(messages: Sequence[ModelMessage], call: ToolCallPart) -> str:
    """Which message makes the call: ids of calls may come again in later messages."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, ModelResponse) and any(
            it.tool_call_id == call.tool_call_id for it in message.tool_calls
        ):
            return f"{place}.{int(message.timestamp.timestamp() * 1000)}"
    return ""


async def _validated(ctx: RunContext[Any], call: ToolCallPart, edited: JsonObject) -> dict[str, Any]:
    """Arguments that a person edited, as the tool takes them: what ``override_args`` does."""
    manager = ctx.tool_manager
    if manager is None:
        raise HitlError("the gate needs a run of an agent, with its tools")
    try:
        checked = await manager.validate_tool_call(
            replace(call, args=edited), approved=True, wrap_validation_errors=False
        )
    except (ValidationError, ModelRetry) as error:
        said = _faults(error) if isinstance(error, ValidationError) else error.message
        raise ToolFailed(not_run(call.tool_name, f"the edited arguments do not fit ({said})")) from error
    return checked.validated_args or {}


def _faults(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, it['loc']))}: {it['msg']}" for it in faults)


def _noted(result: Any, note: str | None) -> Any:
    """A result with what the model is told before it."""
    if note is None:
        return result
    if isinstance(result, str):
        return f"{note}\n{result}"
    if not isinstance(result, ToolReturn):
        return ToolReturn(result, content=note)
    returned = cast("ToolReturn[Any]", result)
    more = [returned.content] if isinstance(returned.content, str) else list(returned.content or ())
    return replace(returned, content=[note, *more])


def _encode(result: Any) -> JsonObject:
    if isinstance(result, ToolReturn):
        return {"return": _RETURN.dump_python(result, mode="json")}
    return {"value": tool_return_ta.dump_python(result, mode="json", by_alias=True)}


def _decode(stored: Any) -> Any:
    return _RETURN.validate_python(stored["return"]) if "return" in stored else stored["value"]


_CODEC: Codec[Any] = Codec(_encode, _decode)
