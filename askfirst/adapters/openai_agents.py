"""OpenAI Agents SDK: the gate before an agent's function tools, stored runs, and a resumer for workers.

The SDK interrupts a run for calls that a person has to decide on, and its RunState is stored in the gate's store
before anybody is asked. An approval in a RunState decides nothing: the tool reads the decision from that store.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_jsonable_python

from askfirst.adapters.framework import instance_from, needs
from askfirst.adapters.gated_call import GatedTools, NotRun, ToolsGiven
from askfirst.adapters.kept_state import KeptRun, kept_resumer
from askfirst.adapters.openai_tools import GatedTool, arguments_in, with_gate
from askfirst.adapters.run_key import using_run_key
from askfirst.errors import Pending
from askfirst.gate.gate import Gate
from askfirst.messages import JsonObject
from askfirst.workers.resumers import Resumer

with needs("openai-agents"):
    from agents import Agent, Runner, RunResult, RunState, Tool
    from agents.items import ToolApprovalItem

RESUMER = "openai-agents"
"""The name under which a worker knows `openai_agents_resumer`, unless another is given."""
_OURS = "askfirst"
"""The only field of the stored state of a run that has ended."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that ended before, perhaps in another process. ``final_output`` is its output as JSON."""

    final_output: Any
    interruptions: tuple[()] = ()


def gated(gate: Gate, tools: Sequence[Tool], ask: ToolsGiven = None, *, resumer: str = RESUMER) -> list[Tool]:
    """The tools with the gate before them: ``Agent(…, tools=gated(gate, [refund]))``; run the agent with `run`.

    ``ask`` are the names of the tools that a person decides on, or a mapping from names to options of `Gate.guarded`.
    The gate's policy decides on all other tools. Without ``ask`` and without a policy, a person decides on every
    call. Tools that the SDK does not run itself, and agents as tools, cannot be gated: gate the tools of the inner
    agent.
    """
    given = GatedTools.of(gate, RESUMER, ask, resumer)
    return [with_gate(given, tool) for tool in tools]


async def run(agent: Agent[Any], input: Any, *, gate: Gate, key: str, **options: Any) -> RunResult | Ended:
    """Run an agent until it ends, or pauses because people have to decide: then the result has ``interruptions``.

    ``key`` names the run in the gate's store. Another call with the same key continues the stored run and ignores its
    own ``input``; it returns `Ended` if the run has ended. Options are those of `Runner.run`. Raises `Pending` if a
    call is in doubt and a person has to decide whether it runs again.
    """
    await gate.ready()
    context = options.pop("context", None)
    this = _Run(agent, KeptRun(gate.checkpointer, RESUMER, key), options)
    if await this.kept.load() is None:
        return await this.start(input, context)
    return await this.go_on(context)


async def kept_run(gate: Gate, key: str) -> Ended | None:
    """A run that has ended, in any process; None while it has not ended, or if there is no run with this key."""
    await gate.ready()
    return _ended(await KeptRun(gate.checkpointer, RESUMER, key).load())


def openai_agents_resumer(agent: Any, *, context: Any = None, **options: Any) -> Resumer:
    """A resumer that continues a run of an agent when people have decided.

    ``agent`` is the agent that the run began with, or a function (sync or async) that returns it. ``context`` is for
    runs whose own context cannot be stored as JSON; further options are those of `Runner.run`.
    """

    async def go_on(kept: KeptRun) -> object:
        try:
            return await _Run(await instance_from(agent, Agent), kept, options).go_on(context)
        except Pending as pending:
            return pending  # a person is asked about a call in doubt; the answer makes the continuation due again

    return kept_resumer(RESUMER, go_on)


@dataclass(frozen=True)
class _Run:
    """One run of an agent, in this process."""

    agent: Agent[Any]
    kept: KeptRun
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    async def start(self, input: Any, context: Any) -> RunResult | Ended:
        return await self._store_and_ask(await self._runner(input, context=context))

    async def go_on(self, context: Any = None) -> RunResult | Ended:
        """Continue the stored run."""
        kept = await self.kept.state()
        if (ended := _ended(kept)) is not None:
            return ended
        state = await RunState.from_json(self.agent, copy.deepcopy(kept or {}), context_override=context)
        await self._decide(state)
        return await self._store_and_ask(await self._runner(state))

    async def _store_and_ask(self, result: RunResult) -> RunResult | Ended:
        """Store the run's state, then have people asked; continue until the run ends or waits for people."""
        while True:
            state = result.to_state() if result.interruptions else None
            if not await self.kept.keep(_ended_state(result) if state is None else state.to_json()):
                await self.kept.load()  # another process has continued the run: continue from what it stored
                return await self.go_on()
            if state is None or not await self._decide(state):
                return result
            result = await self._runner(state)

    async def _runner(self, input: Any, **more: Any) -> RunResult:
        with using_run_key(self.kept.run):
            return await Runner.run(self.agent, input, **self.options, **more)

    async def _decide(self, state: RunState[Any, Any]) -> int:
        """Have people asked about the calls that the run waits for, and write their decisions into its state; returns
        the number of decisions."""
        count = 0
        for item in state.get_interruptions():
            tool = _gated_tool(item)
            if tool is None:
                continue  # an approval of the SDK's own
            args = arguments_in(item.arguments)
            decided = await tool.call(self.kept.run, item.agent.name, item.call_id or "", args).decided()
            if isinstance(decided, NotRun):
                state.reject(item, rejection_message=decided.text)
            elif decided is not None:
                state.approve(item)
            count += decided is not None
        return count


def _ended_state(result: RunResult) -> JsonObject:
    """The state to store for a run that has ended: only its output is needed."""
    return {_OURS: {"output": to_jsonable_python(result.final_output, fallback=str)}}


def _ended(state: JsonObject | None) -> Ended | None:
    ended: Any = (state or {}).get(_OURS)
    return None if ended is None else Ended(ended["output"])


def _gated_tool(item: ToolApprovalItem) -> GatedTool | None:
    for tool in item.agent.tools:
        invoker = getattr(tool, "on_invoke_tool", None)
        if tool.name == item.name and isinstance(invoker, GatedTool):
            return invoker
    return None
