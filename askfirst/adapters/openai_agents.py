"""OpenAI Agents SDK: the gate before an agent's function tools, runs that are kept, and going on by a worker.

The SDK interrupts a run for the calls that a person has to decide on, and its RunState is kept in the gate's store
before anybody is asked. Whatever somebody approves in a RunState, the tool asks that store again before it runs.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic_core import to_jsonable_python

from askfirst.adapters import kept_state
from askfirst.adapters.gated_call import Codec, GatedCall, GatedTools, Start, Told, ToolsGiven
from askfirst.adapters.kept_state import KeptState
from askfirst.adapters.missing import needs
from askfirst.agent.context import Context, current
from askfirst.agent.verdicts import not_run
from askfirst.checkpointer.base import Checkpointer
from askfirst.errors import HitlError, Pending, ResumeFailed
from askfirst.gate.gate import Gate
from askfirst.gate.outcomes import Ran
from askfirst.messages import JsonObject
from askfirst.workers.continuations import Continuation
from askfirst.workers.resumers import Resumer

with needs("openai-agents"):
    from agents import Agent, FunctionTool, Runner, RunResult, RunState, Tool
    from agents.items import ToolApprovalItem
    from agents.run_context import RunContextWrapper
    from agents.tool import (
        ToolOutputText,
        ValidToolOutputPydanticModels,
        ValidToolOutputPydanticModelsTypeAdapter,
    )
    from agents.tool_context import ToolContext

RESUMER = "openai-agents"
"""The name under which a worker knows `openai_agents_resumer`, unless another is given."""
_OURS = "askfirst"
"""The field of a kept state that the SDK does not read."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that ended before, perhaps in another process. ``final_output`` is what it put out, as JSON."""

    final_output: Any
    interruptions: tuple[()] = ()


def gated(gate: Gate, tools: Sequence[Tool], ask: ToolsGiven = None, *, resumer: str = RESUMER) -> list[Tool]:
    """The tools with the gate before them: ``Agent(…, tools=gated(gate, [refund]))``; run the agent with `run`.

    ``ask`` names those that a person decides on, with options of `Gate.guarded` where it is a mapping; all others are
    put to the gate's policy. Without either a person decides on every call. Tools that the SDK does not run itself,
    and agents as tools, cannot be gated: gate the tools of the inner agent.
    """
    given = GatedTools.of(gate, RESUMER, ask, resumer)
    return [_with_gate(given, tool) for tool in tools]


async def run(agent: Agent[Any], input: Any, *, gate: Gate, key: str, **options: Any) -> RunResult | Ended:
    """Run an agent until it ends, or pauses because people have to decide: then it has ``interruptions``.

    ``key`` names the run in the gate's store. Whoever runs again with it goes on where the run is, whatever the
    input, and gets `Ended` if it has ended. Options are those of `Runner.run`. Raises `Pending` where it is in doubt
    whether a call has run before.
    """
    await gate.ready()
    known = await kept_state.load(gate.checkpointer, RESUMER, key)
    if known.state is not None:
        context = options.pop("context", None)
        return await _go_on(agent, gate.checkpointer, known, key, context, options)
    with _named(key):
        result = await Runner.run(agent, input, **options)
    options.pop("context", None)  # the state has it
    return await _settle(agent, gate.checkpointer, known, key, result, options)


async def kept_run(gate: Gate, key: str) -> Ended | None:
    """A run that has ended, in whatever process; None while it is under way, or if nobody was asked in it."""
    await gate.ready()
    return _ended(await kept_state.load(gate.checkpointer, RESUMER, key))


def openai_agents_resumer(agent: Any, *, context: Any = None, **options: Any) -> Resumer:
    """A resumer that goes on with a run of an agent when people have decided.

    ``agent`` is the agent that the run began with, or a function (async if need be) that gives it. ``context`` is for
    runs whose own context has no JSON form; further options are those of `Runner.run`.
    """

    async def resume(continuation: Continuation) -> Any:
        store, key = continuation.checkpointer, continuation.thread_id
        if store is None:
            raise ResumeFailed("the continuation is of no store")
        known = await kept_state.load(store, RESUMER, key)
        if known.state is None:
            raise ResumeFailed(f"nothing is kept of the run {key!r}")
        made: Any = cast(Any, agent) if isinstance(agent, Agent) else agent()
        runs: Agent[Any] = await made if inspect.isawaitable(made) else made
        try:
            return await _go_on(runs, store, known, key, context, options)
        except Pending as pending:
            return pending  # a person is asked what became of a call; the answer makes the run due again

    return resume


async def _go_on(
    agent: Agent[Any], store: Checkpointer, known: KeptState, key: str, context: Any, options: dict[str, Any]
) -> RunResult | Ended:
    """Go on with a run as it is kept."""
    if (ended := _ended(known)) is not None:
        return ended
    kept = {name: value for name, value in (known.state or {}).items() if name != _OURS}
    state = await RunState.from_json(agent, copy.deepcopy(kept), context_override=context)
    await _decide(state, key)
    with _named(key):
        result = await Runner.run(agent, state, **options)
    return await _settle(agent, store, known, key, result, options)


async def _settle(
    agent: Agent[Any],
    store: Checkpointer,
    known: KeptState,
    key: str,
    result: RunResult,
    options: dict[str, Any],
) -> RunResult | Ended:
    """Keep what a run has come to, then have people asked; go on with what is decided by then."""
    while True:
        state = result.to_state()
        ended = (
            None
            if result.interruptions
            else {"output": to_jsonable_python(result.final_output, fallback=str)}
        )
        kept = await kept_state.keep(store, known, {**state.to_json(), _OURS: ended})
        if kept is None:  # another process has gone on with the run: so does this one
            known = await kept_state.load(store, RESUMER, key)
            return await _go_on(agent, store, known, key, None, options)
        known = kept
        if not result.interruptions or not await _decide(state, key):
            return result
        with _named(key):
            result = await Runner.run(agent, state, **options)


def _ended(known: KeptState) -> Ended | None:
    ended: Any = (known.state or {}).get(_OURS)
    return None if ended is None else Ended(ended["output"])


async def _decide(state: RunState[Any, Any], key: str) -> int:
    """Have people asked about the calls that a run waits for, and put into its state what they decided."""
    count = 0
    for item in state.get_interruptions():
        tool = _gated_tool(item)
        if tool is None:
            continue  # of the SDK's own approvals
        decided = await tool.call(key, item.agent.name, item.call_id or "", _args(item.arguments)).decided()
        if isinstance(decided, Told):
            state.reject(item, rejection_message=decided.text)
        elif decided is not None:
            state.approve(item)
        count += decided is not None
    return count


@dataclass(frozen=True)
class _GatedTool:
    """Invokes a tool through the gate; stands in the place of its ``on_invoke_tool``."""

    given: GatedTools
    tool: FunctionTool

    def call(self, key: str, agent: str, call_id: str, args: JsonObject | None) -> GatedCall:
        schema = self.tool.params_json_schema
        fields: Mapping[str, Any] = schema.get("properties", {})
        defaults = {name: it["default"] for name, it in fields.items() if "default" in it}
        return self.given.call(
            self.tool.name,
            {**defaults, **(args or {})},
            thread=key,
            call_id=f"{agent}:{call_id}",
            schema=schema,
        )

    async def needs_approval(self, ctx: RunContextWrapper[Any], params: dict[str, Any], call_id: str) -> bool:
        return await self.given.gate.asks(self.call(_key(), "", call_id, params).action)

    async def __call__(self, ctx: ToolContext[Any], arguments: str) -> Any:
        args = _args(arguments)
        if args is None:
            return not_run(self.tool.name, "its arguments are no JSON object")

        async def body(start: Start) -> Any:
            return await self.tool.on_invoke_tool(ctx, json.dumps(start.args))

        name = "" if ctx.agent is None else ctx.agent.name
        outcome = await self.call(_key(), name, ctx.tool_call_id, args).run(body, _CODEC)
        if isinstance(outcome, Pending):
            raise outcome  # nobody has decided: the run stops, and what is kept of it still waits
        return _noted(*outcome.result) if isinstance(outcome, Ran) else outcome.text


def _with_gate(given: GatedTools, tool: Tool) -> Tool:
    is_agent = getattr(tool, "_is_agent_tool", False)
    if not isinstance(tool, FunctionTool) or is_agent:
        if given.tools is not None and tool.name in given.tools:
            raise HitlError(
                f"{tool.name} cannot be gated: only function tools can, also those of inner agents"
            )
        return tool
    if not given.has(tool.name):
        return tool
    invoker = _GatedTool(given, tool)
    return replace(tool, on_invoke_tool=invoker, needs_approval=invoker.needs_approval)


def _gated_tool(item: ToolApprovalItem) -> _GatedTool | None:
    for tool in item.agent.tools:
        invoker = getattr(tool, "on_invoke_tool", None)
        if tool.name == item.name and isinstance(invoker, _GatedTool):
            return invoker
    return None


@contextmanager
def _named(key: str) -> Generator[None]:
    at = current.get()
    token = current.set(Context(at.session, at.turns, at.turn_at, at.asking, at.hearing, key))
    try:
        yield
    finally:
        current.reset(token)


def _key() -> str:
    key = current.get().framework_run
    if key is None:
        raise HitlError(
            "the run has no key: run the agent with askfirst.adapters.openai_agents.run(agent, input, gate=…, key=…)"
        )
    return key


def _args(arguments: str | None) -> JsonObject | None:
    try:
        read: Any = json.loads(arguments or "{}")
    except ValueError:
        return None
    return cast(JsonObject, read) if isinstance(read, dict) else None


def _noted(result: Any, note: str | None) -> Any:
    """A result with what the model is told before it."""
    if note is None:
        return result
    if isinstance(result, list):
        return [ToolOutputText(text=note), *cast("list[Any]", result)]
    if isinstance(result, ValidToolOutputPydanticModels):
        return [ToolOutputText(text=note), result]
    return f"{note}\n{result}"


def _encode(result: Any) -> JsonObject:
    parts = cast("list[Any]", result) if isinstance(result, list) else [result]
    if parts and all(isinstance(it, ValidToolOutputPydanticModels) for it in parts):
        return {"parts": [it.model_dump(mode="json") for it in parts], "is_list": isinstance(result, list)}
    return {"value": to_jsonable_python(result, fallback=str)}


def _decode(stored: Any) -> Any:
    if "parts" not in stored:
        return stored["value"]
    parts = [ValidToolOutputPydanticModelsTypeAdapter.validate_python(it) for it in stored["parts"]]
    return parts if stored["is_list"] else parts[0]


_CODEC: Codec[Any] = Codec(_encode, _decode)
