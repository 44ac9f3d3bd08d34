"""Strands Agents: the gate before an agent's tools as a plugin, and a resumer for workers.

The plugin wraps the stage that executes a tool, and interrupts the agent while a person decides. The response that
the agent is resumed with decides nothing: the gate reads the decision from its store. An early, repeated or forged
response interrupts again.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# (Strands is installed in the environment of this adapter's tests only)

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from askfirst.adapters.framework import instance_from, needs
from askfirst.adapters.gated_call import Done, GatedCall, GatedTools, NotRun, Start, ToolsGiven
from askfirst.errors import HitlError, Pending
from askfirst.gate.gate import Gate
from askfirst.messages import JsonObject
from askfirst.workers.continuations import Continuation
from askfirst.workers.resumers import Resumer

with needs("strands"):
    from strands import Agent
    from strands.interrupt import InterruptException
    from strands.middleware import ExecuteToolStage
    from strands.plugins import Plugin
    from strands.types._events import ToolInterruptEvent, ToolResultEvent

RESUMER = "strands"
"""The name under which a worker knows `strands_resumer`, unless another is given."""
INTERRUPT = "askfirst:"
"""The prefix of the names of the gate's interrupts."""


class AskfirstPlugin(Plugin):
    """The gate before the tools of an agent: ``Agent(model, tools=[…], plugins=[AskfirstPlugin(gate)])``.

    ``tools`` are the names of the tools that a person decides on, or a mapping from names to options of
    `Gate.guarded`. The gate's policy decides on all other tools. Without ``tools`` and without a policy, a person
    decides on every call. The agent needs a session manager. ``thread`` is what a worker resumes, by default the
    session's id.
    """

    name = "askfirst"

    def __init__(
        self, gate: Gate, tools: ToolsGiven = None, *, thread: str | None = None, resumer: str = RESUMER
    ) -> None:
        super().__init__()
        self._gated = GatedTools.of(gate, "strands", tools, resumer, (InterruptException,))
        self._thread = thread

    def init_agent(self, agent: Any) -> None:
        """Put the gate before the agent's tools; Strands calls this."""
        agent.add_middleware(ExecuteToolStage, self._execute)

    async def _execute(self, context: Any, next_fn: Callable[[Any], Any]) -> Any:
        use = context.tool_use
        if not self._gated.has(use["name"]) or context.tool is None:
            async for event in next_fn(context):
                yield event
            return
        call, asked = self._call(context), 0
        while isinstance(entered := await call.enter(), Pending):
            asked += 1  # an interrupt with a response but no decision is followed by another interrupt
            context.interrupt(f"{INTERRUPT}{asked}", reason={"case": entered.case, "key": entered.key})
        if not isinstance(entered, Start):
            yield ToolResultEvent(_result(use["toolUseId"], entered))
            return
        result: Any = None
        try:
            async for event in next_fn(context.replace(tool_use={**use, "input": entered.args})):
                if isinstance(event, ToolInterruptEvent):
                    raise InterruptException(event.interrupts[0])  # the tool itself has interrupted
                if isinstance(event, ToolResultEvent):
                    result = event
                else:
                    yield event
            if result is None:
                raise HitlError(f"{use['name']} ended without a result")
        except BaseException as error:
            await call.stop(entered, error)
            raise
        await call.finish(entered, {"status": result.tool_result["status"], "content": _content(result)})
        yield ToolResultEvent(_with_note(result.tool_result, entered.note), exception=result.exception)

    def _call(self, context: Any) -> GatedCall:
        agent, use = context.agent, context.tool_use
        thread = self._thread or getattr(getattr(agent, "_session_manager", None), "session_id", None)
        if not thread:
            raise HitlError(
                "the gate needs a thread: give the agent a session manager, or the plugin a thread"
            )
        return self._gated.call(
            use["name"],
            cast(JsonObject, use["input"]),
            thread=str(thread),
            call_id=f"{_message_id(agent, use['toolUseId'])}:{use['toolUseId']}",
            schema=context.tool.tool_spec["inputSchema"].get("json"),
            agent_path=(agent.agent_id,) if agent.agent_id != "default" else (),
        )


def strands_resumer(make_agent: Callable[[str], Any]) -> Resumer:
    """A resumer that continues an agent when people have decided.

    ``make_agent`` is a function (sync or async) that is given the thread, by default the session's id. It returns the
    agent with its session manager and its plugin.
    """

    async def resume(continuation: Continuation) -> Any:
        agent: Any = await instance_from(make_agent, Agent, continuation.thread_id)
        state = agent._interrupt_state
        if state.activated:
            waiting = [it for it in state.interrupts.values() if it.name.startswith(INTERRUPT)]
            return await agent.invoke_async(
                [{"interruptResponse": {"interruptId": it.id, "response": True}} for it in waiting]
            )
        if agent.messages and any("toolResult" in it for it in agent.messages[-1]["content"]):
            return await agent.invoke_async()  # a process died between the tool and the model
        return None

    return resume


def _message_id(agent: Any, tool_use_id: str) -> str:
    """The id of the message with the call, because a call's id may be used again in a later message."""
    for message in reversed(agent.messages):
        if any(it.get("toolUse", {}).get("toolUseId") == tool_use_id for it in message["content"]):
            return str(message.get("tracking_id", ""))
    return ""


def _content(event: Any) -> Any:
    return event.tool_result["content"]


def _result(tool_use_id: str, outcome: NotRun | Done) -> Any:
    if isinstance(outcome, NotRun):
        return {"toolUseId": tool_use_id, "status": "error", "content": [{"text": outcome.text}]}
    return _with_note({"toolUseId": tool_use_id, **outcome.value}, outcome.note)


def _with_note(result: Any, note: str | None) -> Any:
    """A result with the note for the model before it."""
    return result if note is None else {**result, "content": [{"text": note}, *result["content"]]}
