"""Running the bodies of settled calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeGuard

from askfirst import tracing
from askfirst.agent.asking import end_asked, lasting_id
from askfirst.agent.context import Asking
from askfirst.agent.emitter import is_cancelled, logger
from askfirst.agent.gate import Admitted, Settled
from askfirst.agent.question_ids import is_about
from askfirst.agent.run import Bodies, Run
from askfirst.agent.spec import ToolCallContext
from askfirst.agent.subagents import SubagentTool
from askfirst.agent.thread import unresolved_calls
from askfirst.agent.tools import ToolContext, ToolResult, as_result, json_object
from askfirst.agent.verdicts import args_digest, edit_notice, failed, gave_up, refusal_of, said_of, withheld
from askfirst.checkpointer.base import StoredEffect
from askfirst.concurrency import await_chain, continue_chain
from askfirst.errors import HitlCancelled, HitlControlException, HitlError, HitlPaused, HitlTimedOut
from askfirst.events import ToolEndedEvent, ToolStartedEvent
from askfirst.messages import JsonObject, TextPart, ToolResultMessage
from askfirst.visible_text import error_text

_RECORD = frozenset({"decision", "digest", "answered_by", "via"})
_NOBODY_DECIDED = ("timed_out", "cancelled")


async def execute(run: Run, settled: Sequence[Settled]) -> None:
    """Run what was admitted and append a result for every call, in call order.

    Parallel tools that stand next to each other run together; a sequential one runs alone.
    """
    for group in _groups(settled):
        await _execute_group(run, group)


def _groups(settled: Sequence[Settled]) -> list[list[Settled]]:
    groups: list[list[Settled]] = []
    may_join = False
    for item in settled:
        is_alone = isinstance(item, Admitted) and item.tool.execution_mode == "sequential"
        if may_join and not is_alone:
            groups[-1].append(item)
        else:
            groups.append([item])
        may_join = not is_alone
    return groups


async def _execute_group(run: Run, group: list[Settled]) -> None:
    """Run a group and append its results; a call whose body was left by a signal or cancellation gets no result."""
    results: dict[str, ToolResultMessage] = {}
    stopped: list[HitlControlException | Exception] = []

    async def resolve(item: Settled) -> None:
        try:
            await _resolve(run, item, results)
        except (HitlControlException, Exception) as why:
            stopped.append(why)
        if run.work.bodies is not None and await run.work.bodies.done(item.call.id):
            await run.release_callers()

    await _start(run, group, results)
    try:
        await (resolve(group[0]) if len(group) == 1 else _together(resolve, group))
    finally:
        run.work.bodies = None
        run.work.calls = frozenset()  # the next commit writes their results
        if stopped and any(isinstance(why, HitlPaused | Exception) for why in stopped):
            _leave_to_subagents(group, results)
        await run.append(*_in_order(run, group, results))
    if run.unwritten.messages:
        await run.commit_results(wait=bool(stopped or run.work.asked) or run.stop.is_asked)
    if run.work.asked:  # only after the results are written: until then a rerun body would ask again
        await _end_moot(run, group)
    if stopped:
        raise _foremost(stopped)


async def _together(resolve: Callable[[Settled], Awaitable[None]], group: list[Settled]) -> None:
    chain = await_chain()

    async def apart(item: Settled) -> None:
        continue_chain(chain)
        await resolve(item)

    async with asyncio.TaskGroup() as tasks:
        for item in group:
            tasks.create_task(apart(item))


def _foremost(stopped: Sequence[BaseException]) -> BaseException:
    """The exception that stops the run, of those that stopped bodies: `HitlPaused` only if there is no other."""
    return next((why for why in stopped if not isinstance(why, HitlPaused)), stopped[0])


async def _end_moot(run: Run, group: list[Settled]) -> None:
    """Cancel requests of calls of the group that have results now: their bodies stopped waiting."""
    unresolved = {call.id for call in unresolved_calls(run.thread.messages)}
    await end_asked(run, {item.call.id for item in group} - unresolved)


def _leave_to_subagents(group: list[Settled], results: dict[str, ToolResultMessage]) -> None:
    """Drop the results of finished subagents while another body waits; they stay on the subagents' own threads.

    So the transcript has results in the order of the calls, whichever person answers first.
    """
    for item in filter(_is_subagent, group):
        results.pop(item.call.id, None)


def _in_order(
    run: Run, group: list[Settled], results: dict[str, ToolResultMessage]
) -> list[ToolResultMessage]:
    """The group's results in call order; in an aborted run, cancelled bodies get a result that says so.

    A subagent's call gets no result until the subagent itself has been ended.
    """
    found: list[ToolResultMessage] = []
    for item in group:
        if item.call.id in results:
            found.append(results[item.call.id])
        elif run.stop.is_asked and item.call.id in run.thread.effects and not _is_subagent(item):
            found.append(run.interrupted(item.call))
    return found


async def _start(run: Run, group: list[Settled], results: dict[str, ToolResultMessage]) -> None:
    """Write down which bodies are about to start, and note them as under way."""
    run.work.calls = frozenset([item.call.id for item in group if isinstance(item, Admitted)])
    try:
        await _write_starts(run, group)
    except BaseException:
        run.work.calls = frozenset()
        raise
    if run.journal is not None and run.actor.spec.delegates and any(map(_is_subagent, group)):
        run.work.bodies = Bodies(run, {item.call.id: _is_subagent(item) for item in group}, results)


async def _write_starts(run: Run, group: list[Settled]) -> None:
    """Commit the starts of bodies whose effects may not be repeated, before any of them starts."""
    if run.journal is not None:
        starting = [_effect(item, _digest(item)) for item in group if _counts(item)]
        # A subagent is no effect itself but has effects: its call must be stored before them.
        delegates = run.actor.spec.delegates and any(map(_is_subagent, group))
        # An answer outside the store counts only if no other worker has taken the thread: a commit checks the fence.
        unsure = run.work.is_released_unstored and bool(run.work.calls) and not run.journal.lease.holds
        if starting or unsure or (delegates and run.unwritten.messages):
            await run.commit(started=starting)
        elif delegates:
            await run.journal.catch_up()


def _is_subagent(item: Settled) -> bool:
    return isinstance(item, Admitted) and isinstance(item.tool, SubagentTool)


def _counts(item: Settled) -> TypeGuard[Admitted]:
    return isinstance(item, Admitted) and item.tool.effect != "none"


def _digest(item: Admitted) -> str:
    return item.digest or args_digest(item.tool, item.args)


def _effect(item: Admitted, digest: str = "") -> StoredEffect:
    return StoredEffect(
        item.call.id, item.tool.name, digest, item.tool.effect, item.attempt, granted=item.grant
    )


async def _resolve(run: Run, item: Settled, results: dict[str, ToolResultMessage]) -> None:
    """Put the call's result into ``results`` as soon as there is one, so that later failures do not lose it.

    No body starts once the run is aborted. Listeners called just before or after a body ask from the body's place:
    its effect is under way then, so the lease must be kept.
    """
    call = item.call
    place = "safe_point" if _is_subagent(item) else "tool"  # a resumed subagent continues where it was
    with Asking(place, call.id, call.name):
        if isinstance(item, Admitted):
            if run.emitter.listening and not run.stop.is_asked:
                shown = json_object(item.args)
                await run.emit(ToolStartedEvent, tool_call_id=call.id, tool_name=call.name, args=shown)
            if run.stop.is_asked:
                return
            result = await _executed(run, item, results)
        else:
            result = results[call.id] = _message(item, as_result(ToolResult(item.why, is_error=True)))
        await run.emit(ToolEndedEvent, tool_call_id=call.id, tool_name=call.name, is_error=result.is_error)


async def _executed(run: Run, item: Admitted, results: dict[str, ToolResultMessage]) -> ToolResultMessage:
    """Run the body, then the hooks after it."""
    call = item.call
    if run.journal is not None and run.journal.lease.may_have_lapsed and _counts(item):
        await run.journal.confirm(run.run_id)  # the process may have been suspended meanwhile
    run.thread.effects[call.id] = _effect(item)
    if tracing.on:
        result = results[call.id] = await _traced(run, item)
    else:
        result = results[call.id] = _message(item, await _run_body(run, item))
    if run.emitter.has_posted:
        await run.emitter.flush()
    return await _after(run, item, results) if run.actor.spec.onion.after_tool_call else result


async def _traced(run: Run, item: Admitted) -> ToolResultMessage:
    """Run the body in a span."""
    with tracing.tool_span(item.call.name, item.call.id) as span:
        span.set_content("gen_ai.tool.call.arguments", lambda: json_object(item.args))
        result = _message(item, await _run_body(run, item))
        span.set_content("gen_ai.tool.call.result", lambda: result.text)
        if result.is_error:
            span.fail("tool_error")
        return result


async def _run_body(run: Run, item: Admitted) -> ToolResult:
    """The body's result, or an error result if it raised."""
    tool, call = item.tool, item.call
    try:
        return _without_record(item, as_result(await tool.run(item.args, _context(run, item))))
    except Exception as error:
        if isinstance(tool, SubagentTool):
            raise  # a subagent returns its own failures: this is the store's error, and the call stays open
        failure: BaseException = error
    except (HitlTimedOut, HitlCancelled) as signal:
        return as_result(
            ToolResult(gave_up(tool.name, signal), {"hitl": refusal_of(call.name, signal)[1]}, is_error=True)
        )
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        failure = error
    return as_result(ToolResult(failed(tool.name, error_text(failure)), is_error=True))


def _without_record(item: Admitted, result: ToolResult) -> ToolResult:
    """A body's result without claims about a person's decision in its details: only the gate records decisions.

    A body that asked a person itself, such as ``ask_user``, may record a time-out or a cancellation, unless there was
    a decision at the gate.
    """
    details: JsonObject = dict(result.details or {})
    said = details.get("hitl")
    if not isinstance(said, dict) or _RECORD.isdisjoint(said):
        return result
    kept = {name: value for name, value in said.items() if name not in _RECORD}
    if item.trace is None and said.get("decision") in _NOBODY_DECIDED:
        kept["decision"] = said["decision"]
    return replace(result, details={**details, "hitl": kept})


async def _after(run: Run, item: Admitted, results: dict[str, ToolResultMessage]) -> ToolResultMessage:
    """Pass a result through the ``after_tool_call`` hooks, and keep it in ``results``.

    If a hook asked a person and got no approval, for whatever reason, the result is withheld from the model, which
    is told only that the tool ran.
    """
    call = item.call
    ctx = ToolCallContext(
        call,
        item.tool,
        item.args,
        tuple(run.thread.messages),
        run.thread.thread_id,
        run.run_id,
        run.stop.event,
    )
    with Asking("tool", f"{call.id}:after", call.name) as asking:
        for hook in run.actor.spec.onion.after_tool_call:
            result = results[call.id]
            try:
                results[call.id] = _same_call(await hook(replace(ctx, result=result)) or result, item)
            except Exception as error:
                withholds = bool(asking.asked) or isinstance(error, HitlError)
                what = "is withheld" if withholds else "stands"
                logger.exception("after_tool_call raised on %s; its result %s", item.tool.name, what)
                if withholds:
                    results[call.id] = _withheld(item, f"a check of it failed ({type(error).__name__})")
                    break
            except (HitlTimedOut, HitlCancelled) as signal:
                results[call.id] = _withheld(item, said_of(signal))
                break
            except BaseException:
                if asking.asked:
                    results[call.id] = _withheld(item, "a person was asked about it, and has not answered")
                    if not is_cancelled():  # a cancelled task leaves the requests to the run that resumes
                        await run.cancel_where(
                            lambda asked: is_about(asked, asking.tool_call_id), "its call ended without it"
                        )
                raise
    return results[call.id]


def _withheld(item: Admitted, why: str) -> ToolResultMessage:
    said = withheld(item.tool.name, why)
    return _message(item, as_result(ToolResult(said, {"hitl": {"withheld": why}}, is_error=True)))


def _same_call(result: ToolResultMessage, item: Admitted) -> ToolResultMessage:
    """The result that a hook returned; raises if it is not this call's, because the call would be run again."""
    if not isinstance(result, ToolResultMessage) or result.tool_call_id != item.call.id:
        raise TypeError(f"after_tool_call returned {result!r}, which is not a result of {item.call.id}")
    return result


def _context(run: Run, item: Admitted) -> ToolContext:
    call, loop = item.call, asyncio.get_running_loop()
    return ToolContext(
        run.thread.thread_id,
        run.run_id,
        call.id,
        call.name,
        item.attempt,
        run.stop.event,
        run.emitter,
        loop,
        lasting_id(run),
    )


def _message(item: Settled, result: ToolResult) -> ToolResultMessage:
    """The transcript's message: the call's result, and the record of a person's decision."""
    details: JsonObject = dict(result.details or {})
    content = result.content
    if item.trace is not None:
        said = details.get("hitl")
        details["hitl"] = {**json_object(item.trace), **(said if isinstance(said, dict) else {})}
        if isinstance(item, Admitted) and (notice := edit_notice(item.args, item.trace)):
            content = (TextPart(f"{notice}\n"), *content)
    call = item.call
    return ToolResultMessage.of_valid(
        tool_call_id=call.id,
        tool_name=call.name,
        content=content,
        is_error=result.is_error,
        details=details or None,
    )
