"""The gate: what must be settled for a call before its body may start."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from assent.agent.emitter import logger
from assent.agent.middleware import ToolCallContext
from assent.agent.run import Run
from assent.agent.tools import Tool
from assent.messages import JsonObject, ToolCall


@dataclass(frozen=True, slots=True)
class Admitted:
    """A call that may run, with the arguments that it runs with."""

    call: ToolCall
    tool: Tool
    args: BaseModel
    trace: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that does not run, and what the model is told instead."""

    call: ToolCall
    why: str
    trace: JsonObject | None = None


Settled = Admitted | Refused

_APPROVED = ("human_approve", "human_edit")


async def settle(run: Run, calls: Sequence[ToolCall]) -> list[Settled]:
    """Settle every call of a message, in order, before any of them starts."""
    return [await _settle(run, call) for call in calls]


async def _settle(run: Run, call: ToolCall) -> Settled:
    """Arguments first, then middleware from the outside in; whatever goes wrong refuses."""
    tool = run.spec.tools_by_name.get(call.name)
    if tool is None:
        return Refused(call, _unknown(call.name, list(run.spec.tools_by_name)))
    if call.malformed is not None:
        return Refused(call, f"The arguments of {tool.name} were not a JSON object. {_expected(tool)}")
    try:
        args = tool.parameters.model_validate(call.args)
    except ValidationError as error:
        return Refused(call, _invalid(tool, error))
    if not run.spec.onion.before_tool_call:
        return _approved(Admitted(call, tool, args))
    return await _through_middleware(run, Admitted(call, tool, args))


async def _through_middleware(run: Run, admitted: Admitted) -> Settled:
    call, tool, args, trace = admitted.call, admitted.tool, admitted.args, admitted.trace
    for hook in run.spec.onion.before_tool_call:
        ctx = ToolCallContext(
            call, tool, args, tuple(run.messages), run.thread.thread_id, run.run_id, run.signal
        )
        try:
            decision = await hook(ctx)
        except Exception as error:
            logger.exception("before_tool_call raised on %s; the call is refused", tool.name)
            return Refused(
                call, f"{tool.name} was not run: a check before it failed ({type(error).__name__})."
            )
        if decision is None:
            continue
        if decision.hitl_trace is not None:
            trace = {**(trace or {}), **decision.hitl_trace}
        if decision.block:
            return Refused(call, decision.reason or f"{tool.name} was not allowed to run.", trace)
        if decision.edited_args is not None:
            try:
                args = tool.parameters.model_validate(dict(decision.edited_args))
            except ValidationError as error:
                return Refused(
                    call, f"{tool.name} was not run: the edited arguments do not fit. {_faults(error)}"
                )
    return _approved(Admitted(call, tool, args, trace))


def _approved(admitted: Admitted) -> Settled:
    """Fail closed: a tool that requires approval runs only if a person's is on record."""
    decision = (admitted.trace or {}).get("decision")
    if admitted.tool.requires_approval and decision not in _APPROVED:
        why = (
            f"{admitted.tool.name} was not run: it requires a person's approval, and there is nobody to ask."
        )
        return Refused(admitted.call, why, admitted.trace)
    return admitted


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"There is no tool called {name}.{hint} Available tools: {', '.join(known) or 'none'}."


def _invalid(tool: Tool, error: ValidationError) -> str:
    return f"The arguments of {tool.name} are invalid, so it was not run. {_faults(error)} {_expected(tool)}"


def _faults(error: ValidationError) -> str:
    faults = [
        f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "; ".join(faults) + "."


def _expected(tool: Tool) -> str:
    properties = tool.schema.parameters.get("properties")
    required = tool.schema.parameters.get("required")
    names = [str(name) for name in properties] if isinstance(properties, Mapping) else []
    needed: list[Any] = required if isinstance(required, list) else []
    if not names:
        return "It takes no arguments: send {}."
    listed = ", ".join(name if name in needed else f"{name} (optional)" for name in names)
    return f"It takes a JSON object with: {listed}."
