"""The loop: a fold over the transcript."""

from __future__ import annotations

from collections.abc import Sequence

from assent import tracing
from assent.agent.effects import execute
from assent.agent.fold import has_failed, is_finished, unresolved_calls
from assent.agent.gate import put, settle
from assent.agent.model_call import ask_model
from assent.agent.run import Run
from assent.errors import HitlPaused
from assent.events import TurnEndedEvent, TurnStartedEvent
from assent.messages import AssistantMessage, ToolCall


async def advance(run: Run) -> None:
    """Carry a thread on until nothing is left to do, or until the run is aborted.

    What to do next is read off the transcript, every time: calls without a result are settled (all of
    them, before any starts) and executed; where there are none, the model is asked; when it calls nothing,
    or fails, that is the end. The loop remembers nothing, so it can stop anywhere and go on in another
    process from the transcript alone.
    """
    while not (run.aborted or is_finished(run.messages)):
        with tracing.turn_span() as span:
            if run.emitter.listening:
                await run.emit(TurnStartedEvent)
            calls = unresolved_calls(run.messages)
            if not calls:
                calls = await _said(run, await ask_model(run))
            if calls:
                await _resolve(run, calls)
            if run.emitter.listening:
                await run.emit(TurnEndedEvent)
            if has_failed(run.messages):
                span.fail(run.error_type)
                return


async def _said(run: Run, message: AssistantMessage) -> list[ToolCall]:
    """What the model calls in a message that is in the transcript now; the calls have the ids that they got there."""
    await run.append(message)
    last = run.messages[-1]
    return last.tool_calls if last.role == "assistant" else []


async def _resolve(run: Run, calls: Sequence[ToolCall]) -> None:
    """Settle calls and run what may run; stops the run where a person has to decide who is not here.

    By default nothing starts before all is settled. With ``tool_gate="each"`` what is settled starts while
    the rest waits.
    """
    apart = run.spec.tool_gate == "each"
    for group in [[call] for call in calls] if apart and run.channel is not None else [calls]:
        settled, waiting = await settle(run, group)
        if waiting:
            await put(run, waiting, release=not apart)
            if not apart:
                raise HitlPaused
        await execute(run, settled)
        if waiting:
            raise HitlPaused
