"""Haystack: the gate before an agent's tools, as a confirmation strategy and a hook that records how calls ended.

Haystack waits in place while a person decides, and does not store runs. So a run has a key: an agent that is run
again with the same key, in any process, gets the stored decisions and results, and no effect happens twice.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# (Haystack is installed in the environment of this adapter's tests only)

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from pydantic_core import to_json

from askfirst.adapters.framework import needs
from askfirst.adapters.gated_call import Done, GatedCall, GatedTools, NotRun, Start, ToolsGiven, with_defaults
from askfirst.errors import HitlError, Pending
from askfirst.gate.gate import Gate
from askfirst.ids import new_id
from askfirst.messages import call_digest

with needs("haystack"):
    from haystack.hooks.human_in_the_loop import ConfirmationHook, ToolExecutionDecision

KEY = "key"
"""The field of an agent's ``hook_context`` that names the run."""


def hooks(
    gate: Gate, tools: ToolsGiven = None, *, wait: float | None = None, resumer: str | None = None
) -> dict[str, list[Any]]:
    """The gate as hooks of an agent: ``Agent(…, hooks=hooks(gate))``, run with ``hook_context={"key": "order-7"}``.

    ``tools`` are the names of the tools that a person decides on, or a mapping from names to options of
    `Gate.guarded`. The gate's policy decides on all other tools. Without ``tools`` and without a policy, a person
    decides on every call. The agent waits in place, for ``wait`` seconds at most. Then it raises `Pending`: run it
    again later with the same key. ``resumer`` names a resumer of your own that does so. `Agent.run` needs a gate that
    was made with its store's URL; `Agent.run_async` does not.
    """
    hook = AskfirstHook(GatedTools.of(gate, "haystack", tools, resumer), wait)
    return {"before_tool": [hook], "after_tool": [hook]}


class AskfirstStrategy:
    """A confirmation strategy for the calls of one message: puts each call to the gate, and waits for decisions."""

    def __init__(self, gate: Gate, calls: dict[str | None, GatedCall], wait: float | None) -> None:
        self._gate, self._calls, self._wait = gate, calls, wait
        self.running: dict[str | None, tuple[GatedCall, Start]] = {}
        """By call id: the calls that the gate has granted and whose end is not recorded yet."""

    def run(self, *, tool_name: str, tool_params: dict[str, Any], tool_call_id: str | None, **_: Any) -> Any:
        """Decide on a call; Haystack calls this."""
        if (call := self._calls.get(tool_call_id)) is None:
            return ToolExecutionDecision(tool_name, True, tool_call_id, None, tool_params)
        entered = self._gate.portal.run(lambda gate: self._enter(replace(call, gate=gate)))
        return self._decision(call, entered, tool_params, tool_call_id)

    async def run_async(
        self, *, tool_name: str, tool_params: dict[str, Any], tool_call_id: str | None, **_: Any
    ) -> Any:
        """`run` for an agent that runs in an event loop."""
        if (call := self._calls.get(tool_call_id)) is None:
            return ToolExecutionDecision(tool_name, True, tool_call_id, None, tool_params)
        return self._decision(call, await self._enter(call), tool_params, tool_call_id)

    async def _enter(self, call: GatedCall) -> Start | Done | NotRun:
        entered = await call.enter_within(self._wait)
        if isinstance(entered, Pending):
            raise entered
        return entered

    def _decision(
        self, call: GatedCall, entered: Start | Done | NotRun, params: dict[str, Any], call_id: str | None
    ) -> Any:
        name = call.action.tool
        match entered:
            case Start(args, note):
                self.running[call_id] = call, entered
                final = params if args == call.action.args else args
                return ToolExecutionDecision(name, True, call_id, note, final)
            case NotRun(text):
                return ToolExecutionDecision(name, False, call_id, text)
            case Done(value, note):
                text = f"{name} ran before. Its result: {value}"
                return ToolExecutionDecision(name, False, call_id, text if note is None else f"{note} {text}")


class AskfirstHook:
    """Puts calls to the gate before the tools run, and records afterwards how the calls ended."""

    allowed_hook_points = ("before_tool", "after_tool")

    def __init__(self, gated: GatedTools, wait: float | None) -> None:
        self._gated, self._wait = gated, wait
        self._strategies: WeakKeyDictionary[Any, AskfirstStrategy] = WeakKeyDictionary()
        """By the state of a run: the strategy for the calls of its last message."""

    def run(self, state: Any) -> None:
        """Haystack calls this before and after tools run."""
        portal = self._gated.gate.portal
        if (strategy := self._new_strategy(state)) is None:
            portal.run(lambda gate: self._record(gate, state))
            return
        try:
            ConfirmationHook({"*": strategy}).run(state)
        except BaseException:
            portal.run(lambda gate: _release(gate, strategy))
            raise

    async def run_async(self, state: Any) -> None:
        """`run` for an agent that runs in an event loop."""
        if (strategy := self._new_strategy(state)) is None:
            await self._record(self._gated.gate, state)
            return
        try:
            await ConfirmationHook({"*": strategy}).run_async(state)
        except BaseException:
            await _release(self._gated.gate, strategy)
            raise

    def _new_strategy(self, state: Any) -> AskfirstStrategy | None:
        """A strategy for the calls of the last message; None if it has no calls, as after the tools ran. The calls'
        keys stay the same when the agent is run again."""
        messages: list[Any] = state.data.get("messages") or []
        if not messages or not messages[-1].tool_calls:
            return None
        *before, last = messages
        thread = (state.data.get("hook_context") or {}).get(KEY) or new_id()
        schemas: dict[str, Any] = {it.name: it.parameters for it in state.data.get("tools") or []}
        seen = [call_digest(it.tool_name, it.arguments) for message in before for it in message.tool_calls]
        calls: dict[str | None, GatedCall] = {}
        for it in last.tool_calls:
            name, digest = it.tool_name, call_digest(it.tool_name, it.arguments)
            if name in schemas and self._gated.has(name):
                args = with_defaults(it.arguments, schemas[name])
                call_id = f"{name}:{digest}:{seen.count(digest)}"
                calls[it.id] = self._gated.call(
                    name, args, thread=thread, call_id=call_id, schema=schemas[name]
                )
            seen.append(digest)
        strategy = self._strategies[state] = AskfirstStrategy(self._gated.gate, calls, self._wait)
        return strategy

    async def _record(self, gate: Gate, state: Any) -> None:
        """Record the ends of the bodies whose results are in the messages now."""
        running = self._strategies.pop(state).running if state in self._strategies else {}
        for it in [result for message in state.data["messages"] for result in message.tool_call_results]:
            call, start = running.pop(it.origin.id, (None, None))
            if call is not None and start is not None:
                value = it.result if isinstance(it.result, str) else to_json(it.result, fallback=str).decode()
                here = replace(call, gate=gate)
                await (here.fail(start, value) if it.error else here.finish(start, value))

    def to_dict(self) -> NoReturn:
        """Raise `HitlError`: a gate cannot be serialized."""
        raise HitlError("an agent with the gate cannot be serialized: put hooks(gate) on it where it is made")


async def _release(gate: Gate, strategy: AskfirstStrategy) -> None:
    """Release the grants of calls that will not run now because the agent stops; the next run can begin them."""
    for call, start in strategy.running.values():
        if start.is_recorded:
            await gate.pause(call.key)
