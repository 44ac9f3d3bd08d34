"""Running the bodies of settled calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from assent.agent.emitter import logger
from assent.agent.gate import Admitted, Settled
from assent.agent.middleware import ToolCallContext
from assent.agent.run import Run, unrun
from assent.agent.tools import ToolContext, ToolResult, as_result
from assent.errors import HitlControlException
from assent.events import ToolEndedEvent, ToolStartedEvent
from assent.messages import JsonObject, ToolResultMessage

_INTERRUPTED = "Interrupted while it ran: whether it took effect is unknown. Check before trying again."


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
    """Run a group and append its results; a call whose body a control signal left stays unresolved."""
    results: dict[str, ToolResultMessage] = {}
    started: set[str] = set()
    signals: list[HitlControlException] = []

    async def resolve(item: Settled) -> None:
        started.add(item.call.id)
        try:
            await _resolve(run, item, results)
        except HitlControlException as signal:
            started.discard(item.call.id)
            signals.append(signal)

    try:
        if len(group) == 1:
            await resolve(group[0])
        else:
            async with asyncio.TaskGroup() as tasks:
                for item in group:
                    tasks.create_task(resolve(item))
    finally:
        for item in group:
            if item.call.id in started and item.call.id not in results:
                results[item.call.id] = unrun(item.call.id, item.call.name, _INTERRUPTED)
        await run.append(*(results[item.call.id] for item in group if item.call.id in results))
    if signals:
        raise signals[0]


async def _resolve(run: Run, item: Settled, results: dict[str, ToolResultMessage]) -> None:
    """Put the call's result into ``results`` as soon as there is one: what comes after may not lose it."""
    call = item.call
    if isinstance(item, Admitted):
        if run.emitter.listening:
            shown = item.args.model_dump(mode="json", by_alias=True)
            await run.emit(ToolStartedEvent, tool_call_id=call.id, tool_name=call.name, args=shown)
        result = results[call.id] = _message(item, await _run_body(run, item))
        await run.emitter.flush()
        if run.spec.onion.after_tool_call:
            result = results[call.id] = await _after(run, item, result)
    else:
        result = results[call.id] = _message(item, ToolResult(item.why, is_error=True))
    await run.emit(ToolEndedEvent, tool_call_id=call.id, tool_name=call.name, is_error=result.is_error)


async def _run_body(run: Run, item: Admitted) -> ToolResult:
    """What the body returned, or how it failed."""
    try:
        return as_result(await item.tool.run(item.args, _context(run, item)))
    except Exception as error:
        failure: BaseException = error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        failure = error  # the body's own doing: nobody cancelled this task
    said = f": {failure}" if str(failure) else ""
    return as_result(ToolResult(f"{item.tool.name} failed: {type(failure).__name__}{said}", is_error=True))


async def _after(run: Run, item: Admitted, result: ToolResultMessage) -> ToolResultMessage:
    ctx = ToolCallContext(
        item.call, item.tool, item.args, tuple(run.messages), run.thread.thread_id, run.run_id, run.signal
    )
    for hook in run.spec.onion.after_tool_call:
        try:
            result = await hook(replace(ctx, result=result)) or result
        except Exception:
            logger.exception("after_tool_call raised on %s; its result stands", item.tool.name)
    return result


def _context(run: Run, item: Admitted) -> ToolContext:
    call, loop = item.call, asyncio.get_running_loop()
    return ToolContext(run.thread.thread_id, run.run_id, call.id, call.name, run.signal, run.emitter, loop)


def _message(item: Settled, result: ToolResult) -> ToolResultMessage:
    """The transcript's entry: what came of the call, and how a person decided on it."""
    details: JsonObject = dict(result.details or {})
    if item.trace is not None:
        details["hitl"] = item.trace
    return ToolResultMessage(
        item.call.id, item.call.name, result.content, is_error=result.is_error, details=details or None
    )
