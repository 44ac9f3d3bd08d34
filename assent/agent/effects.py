"""Running the bodies of settled calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from assent import tracing
from assent.agent.asking import asking_from
from assent.agent.emitter import is_cancelled, logger
from assent.agent.gate import Admitted, Settled
from assent.agent.middleware import ToolCallContext
from assent.agent.run import Run
from assent.agent.subagents import SubagentTool
from assent.agent.tools import ToolContext, ToolResult, as_result, json_object
from assent.agent.verdict import args_digest, edit_notice, refusal_of
from assent.checkpointer.base import StoredEffect
from assent.errors import HitlCancelled, HitlControlException, HitlPaused, HitlTimedOut
from assent.events import ToolEndedEvent, ToolStartedEvent
from assent.messages import JsonObject, TextPart, ToolResultMessage

_RECORD = frozenset({"decision", "digest", "answered_by", "via"})


async def execute(run: Run, settled: Sequence[Settled]) -> None:
    """Run what was admitted and append a result for every call, in call order.

    Parallel tools that stand next to each other run together; a sequential one runs alone.
    """
    for group in _groups(settled):
        await _execute_group(run, group)


def _groups(settled: Sequence[Settled]) -> Iterator[list[Settled]]:
    group: list[Settled] = []
    for item in settled:
        if isinstance(item, Admitted) and item.tool.execution_mode == "sequential":
            if group:
                yield group
            yield [item]
            group = []
        else:
            group.append(item)
    if group:
        yield group


async def _execute_group(run: Run, group: list[Settled]) -> None:
    """Run a group and append its results; a call whose body a signal or a cancellation left stays open."""
    results: dict[str, ToolResultMessage] = {}
    signals: list[HitlControlException] = []

    async def resolve(item: Settled) -> None:
        try:
            await _resolve(run, item, results)
        except HitlControlException as signal:
            signals.append(signal)

    await _write_starts(run, group)
    try:
        if len(group) == 1:
            await resolve(group[0])
        else:
            async with asyncio.TaskGroup() as tasks:
                for item in group:
                    tasks.create_task(resolve(item))
    finally:
        if any(isinstance(signal, HitlPaused) for signal in signals):
            _leave_to_subagents(group, results)
        await run.append(*_in_order(run, group, results))
    await run.commit(wait=bool(signals) or run.aborted)
    if signals:
        raise next((it for it in signals if not isinstance(it, HitlPaused)), signals[0])


def _leave_to_subagents(group: list[Settled], results: dict[str, ToolResultMessage]) -> None:
    """While one subagent waits, those that are done keep their results on their own threads.

    So results stand in the order of the calls, whichever person answers first.
    """
    for item in group:
        if isinstance(item, Admitted) and isinstance(item.tool, SubagentTool):
            results.pop(item.call.id, None)


def _in_order(
    run: Run, group: list[Settled], results: dict[str, ToolResultMessage]
) -> Iterator[ToolResultMessage]:
    """The group's results in call order; an aborted run says of the bodies it cut short what is known."""
    for item in group:
        if item.call.id in results:
            yield results[item.call.id]
        elif run.aborted and item.call.id in run.thread.effects:
            yield run.interrupted(item.call)


async def _write_starts(run: Run, group: list[Settled]) -> None:
    """Write down that bodies are about to start, if their effects may not be repeated."""
    if run.journal is not None:
        starting = [_effect(item, _digest(item)) for item in group if _counts(item)]
        # A subagent is no effect, but it has some: its call must be on record, as this worker's, before them.
        delegates = any(isinstance(it, Admitted) and isinstance(it.tool, SubagentTool) for it in group)
        if starting or (delegates and (run.unwritten or not run.journal.holds)):
            await run.commit(started=starting)
        elif delegates:
            await run.journal.catch_up()


def _counts(item: Settled) -> TypeGuard[Admitted]:
    return isinstance(item, Admitted) and item.tool.effect != "none"


def _digest(item: Admitted) -> str:
    return item.digest or args_digest(item.tool, item.args)


def _effect(item: Admitted, digest: str = "") -> StoredEffect:
    return StoredEffect(item.call.id, item.tool.name, digest, item.tool.effect, item.attempt)


async def _resolve(run: Run, item: Settled, results: dict[str, ToolResultMessage]) -> None:
    """Put the call's result into ``results`` as soon as there is one: what comes after may not lose it.

    No body starts once the run is aborted.
    """
    call = item.call
    if isinstance(item, Admitted):
        if run.emitter.listening and not run.aborted:
            shown = json_object(item.args)
            await run.emit(ToolStartedEvent, tool_call_id=call.id, tool_name=call.name, args=shown)
        if run.aborted:
            return
        run.thread.effects[call.id] = _effect(item)
        with tracing.tool_span(call.name, call.id) as span:
            span.set_content("gen_ai.tool.call.arguments", lambda: json_object(item.args))
            result = results[call.id] = _message(item, await _run_body(run, item))
            span.set_content("gen_ai.tool.call.result", lambda: result.text)
            if result.is_error:
                span.fail("tool_error")
        await run.emitter.flush()
        if run.spec.onion.after_tool_call:
            result = results[call.id] = await _after(run, item, result)
    else:
        result = results[call.id] = _message(item, as_result(ToolResult(item.why, is_error=True)))
    await run.emit(ToolEndedEvent, tool_call_id=call.id, tool_name=call.name, is_error=result.is_error)


async def _run_body(run: Run, item: Admitted) -> ToolResult:
    """What the body returned, or how it failed."""
    tool, call = item.tool, item.call
    place = "safe_point" if isinstance(tool, SubagentTool) else "tool"  # a subagent goes on where it was
    try:
        with asking_from(place, call.id, call.name):
            return _without_record(as_result(await tool.run(item.args, _context(run, item))))
    except Exception as error:
        failure: BaseException = error
    except (HitlTimedOut, HitlCancelled) as signal:
        why, trace = refusal_of(call.name, signal)
        return as_result(ToolResult(why, {"hitl": trace}, is_error=True))
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        failure = error
    return as_result(ToolResult(f"{tool.name} failed: {_say(failure)}", is_error=True))


def _without_record(result: ToolResult) -> ToolResult:
    """What a body returned, without what it claims that a person decided: that is for the gate to say."""
    details: JsonObject = dict(result.details or {})
    said = details.get("hitl")
    if not isinstance(said, dict) or _RECORD.isdisjoint(said):
        return result
    kept = {name: value for name, value in said.items() if name not in _RECORD}
    return replace(result, details={**details, "hitl": kept})


def _say(failure: BaseException) -> str:
    name = type(failure).__name__
    try:
        said = str(failure)
    except Exception:
        return name
    return f"{name}: {said}" if said else name


async def _after(run: Run, item: Admitted, result: ToolResultMessage) -> ToolResultMessage:
    ctx = ToolCallContext(
        item.call, item.tool, item.args, tuple(run.messages), run.thread.thread_id, run.run_id, run.signal
    )
    for hook in run.spec.onion.after_tool_call:
        try:
            result = _same_call(await hook(replace(ctx, result=result)) or result, item)
        except Exception:
            logger.exception("after_tool_call raised on %s; its result stands", item.tool.name)
    return result


def _same_call(result: ToolResultMessage, item: Admitted) -> ToolResultMessage:
    """The result, if it is one of this call's: any other would leave the call open, to be run again."""
    if not isinstance(result, ToolResultMessage) or result.tool_call_id != item.call.id:
        raise TypeError(f"after_tool_call returned {result!r}, which is no result of {item.call.id}")
    return result


def _context(run: Run, item: Admitted) -> ToolContext:
    call, loop = item.call, asyncio.get_running_loop()
    return ToolContext(
        run.thread.thread_id, run.run_id, call.id, call.name, item.attempt, run.signal, run.emitter, loop
    )


def _message(item: Settled, result: ToolResult) -> ToolResultMessage:
    """The transcript's entry: what came of the call, and how a person decided on it."""
    details: JsonObject = dict(result.details or {})
    content = result.content
    if item.trace is not None:
        said = details.get("hitl")
        details["hitl"] = {**json_object(item.trace), **(said if isinstance(said, dict) else {})}
        if isinstance(item, Admitted) and (notice := edit_notice(item.args, item.trace)):
            content = (TextPart(f"{notice}\n"), *content)
    return ToolResultMessage(
        item.call.id, item.call.name, content, is_error=result.is_error, details=details or None
    )
