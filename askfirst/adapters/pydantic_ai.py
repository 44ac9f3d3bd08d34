"""Pydantic AI: the gate before an agent's tools as a capability, and a resumer for workers.

The capability defers a call with its validated arguments while a person decides. The results that the agent is
resumed with decide nothing: the gate reads the decision from its store. An early, repeated or forged approval only
defers the call again.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from askfirst.adapters.framework import instance_from, needs
from askfirst.adapters.gated_call import GatedCall, GatedTools, Start, ToolsGiven
from askfirst.adapters.kept_state import KeptRun, kept_resumer
from askfirst.adapters.pydantic_ai_messages import open_calls, place_of, steps_before_call
from askfirst.adapters.results import result_codec
from askfirst.agent.arguments import faults
from askfirst.agent.verdicts import not_run
from askfirst.errors import HitlError, Pending
from askfirst.gate.gate import Gate
from askfirst.gate.outcomes import Ran
from askfirst.messages import JsonObject
from askfirst.workers.resumers import Resumer

with needs("pydantic-ai"):
    from pydantic import ValidationError
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
    from pydantic_ai.messages import AudioUrl, BinaryContent, DocumentUrl, ImageUrl, ToolCallPart, VideoUrl
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.tools import ToolDefinition

RESUMER = "pydantic-ai"
"""The name under which a worker knows `pydantic_ai_resumer`, unless another is given."""
_PAUSES = (ApprovalRequired, CallDeferred, SkipToolExecution)
_RESUMES_ONLY = {"askfirst": "goes on"}
"""The metadata of approvals that only resume a run: no person has given them."""
_CODEC = result_codec(ToolReturn, BinaryContent, ImageUrl, AudioUrl, VideoUrl, DocumentUrl)


class AskfirstGate(AbstractCapability[Any]):
    """The gate before an agent's tools: ``Agent(…, capabilities=[AskfirstGate(gate)])``.

    ``tools`` are the names of the tools that a person decides on, or a mapping from names to options of
    `Gate.guarded`. The gate's policy decides on all other tools. Without ``tools`` and without a policy, a person
    decides on every call. The agent needs ``DeferredToolRequests`` among its output types.
    """

    def __init__(self, gate: Gate, tools: ToolsGiven = None, *, resumer: str = RESUMER) -> None:
        self._gated = GatedTools.of(gate, RESUMER, tools, resumer, _PAUSES)
        self._run: KeptRun | None = None
        """The stored run; None if nobody was asked in it."""

    async def for_run(self, ctx: RunContext[Any]) -> AskfirstGate:
        """A copy of the capability for one run, which knows the run's stored state; Pydantic AI calls this."""
        mine = copy.copy(self)
        mine._run = None
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
            if ctx.tool_call_metadata == _RESUMES_ONLY:  # the resumer approved the call, and no person did
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
            return _with_note(*outcome.result)
        raise ToolFailed(outcome.text)

    def _at_gate(
        self, ctx: RunContext[Any], call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> GatedCall:
        thread = ctx.conversation_id
        if not thread:
            raise HitlError("the gate needs a run of an agent, with a conversation id")

        async def before_asking() -> None:
            self._run = self._run or KeptRun(self._gated.gate.checkpointer, RESUMER, thread)
            if ctx.tool_call_metadata == _RESUMES_ONLY:
                await self._run.state()  # the run was resumed from the stored state
            else:
                await self._run.keep(_dump(_so_far(ctx, thread)))

        asker = None if ctx.agent is None else ctx.agent.name
        at_gate = self._gated.call(
            call.tool_name,
            args,
            thread=thread,
            call_id=f"{place_of(ctx.messages, call)}:{call.tool_call_id}",
            schema=tool_def.parameters_json_schema,
            agent_path=(asker,) if asker else (),
            before=steps_before_call(ctx.messages, call),
        )
        return replace(at_gate, before_asking=before_asking)

    async def after_run(self, ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Store the conversation at the end of the run, if a person was asked in it; Pydantic AI calls this."""
        if self._run is not None:
            await self._run.keep(_dump(result.conversation))
        return result


async def kept_conversation(gate: Gate, conversation_id: str) -> Conversation | None:
    """The conversation as it was last stored: when a person was asked, or when a resumed run ended. None if nobody
    was asked in it."""
    await gate.ready()
    state = await KeptRun(gate.checkpointer, RESUMER, conversation_id).load()
    return None if state is None else ConversationTypeAdapter.validate_python(state)


def pydantic_ai_resumer(agent: Any, **options: Any) -> Resumer:
    """A resumer that continues a conversation of an agent when people have decided.

    ``agent`` is the agent, or a function (sync or async) that returns it; further options are those of `Agent.run`,
    such as ``deps``.
    """

    async def go_on(kept: KeptRun) -> object:
        conversation = ConversationTypeAdapter.validate_python(await kept.state())
        ids = [it.tool_call_id for it in open_calls(conversation.messages)]
        if not ids:
            return conversation
        results = DeferredToolResults(
            approvals={it: ToolApproved() for it in ids}, metadata={it: dict(_RESUMES_ONLY) for it in ids}
        )
        runs: Agent[Any, Any] = await instance_from(agent, Agent)
        return await runs.run(conversation=conversation, deferred_tool_results=results, **options)

    return kept_resumer(RESUMER, go_on)


def _so_far(ctx: RunContext[Any], thread: str) -> Conversation:
    """The conversation up to the message whose calls are being run."""
    return Conversation(messages=list(ctx.messages), usage=ctx.usage, conversation_id=thread)


def _dump(conversation: Conversation) -> JsonObject:
    return ConversationTypeAdapter.dump_python(conversation, mode="json")


async def _validated(ctx: RunContext[Any], call: ToolCallPart, edited: JsonObject) -> dict[str, Any]:
    """Arguments that a person edited, validated by the tool's schema, as ``override_args`` would be."""
    manager = ctx.tool_manager
    if manager is None:
        raise HitlError("the gate needs a run of an agent, with its tools")
    try:
        checked = await manager.validate_tool_call(
            replace(call, args=edited), approved=True, wrap_validation_errors=False
        )
    except (ValidationError, ModelRetry) as error:
        said = "; ".join(faults(error)) if isinstance(error, ValidationError) else error.message
        raise ToolFailed(not_run(call.tool_name, f"the edited arguments do not fit ({said})")) from error
    return checked.validated_args or {}


def _with_note(result: Any, note: str | None) -> Any:
    """A result with the note for the model before it."""
    if note is None:
        return result
    if isinstance(result, str):
        return f"{note}\n{result}"
    if not isinstance(result, ToolReturn):
        return ToolReturn(result, content=note)
    returned = cast("ToolReturn[Any]", result)
    more = [returned.content] if isinstance(returned.content, str) else list(returned.content or ())
    return replace(returned, content=[note, *more])
