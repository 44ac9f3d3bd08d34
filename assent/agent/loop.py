"""The loop: a fold over the transcript."""

from __future__ import annotations

from assent import tracing
from assent.agent.effects import execute
from assent.agent.fold import has_failed, is_finished, unresolved_calls
from assent.agent.gate import settle
from assent.agent.model_call import ask_model
from assent.agent.run import Run
from assent.events import TurnEndedEvent, TurnStartedEvent


async def advance(run: Run) -> None:
    """Carry a thread on until nothing is left to do, or until the run is aborted.

    What to do next is read off the transcript, every time: calls without a result are settled (all of
    them, before any starts) and executed; where there are none, the model is asked; when it calls nothing,
    or fails, that is the end. The loop remembers nothing, so it can stop anywhere and go on in another
    process from the transcript alone.
    """
    while not (run.aborted or is_finished(run.messages)):
        with tracing.turn_span():
            await run.emit(TurnStartedEvent)
            if not unresolved_calls(run.messages):
                await run.append(await ask_model(run))
            if calls := unresolved_calls(run.messages):
                await execute(run, await settle(run, calls))
            await run.emit(TurnEndedEvent)
        if has_failed(run.messages):
            return
