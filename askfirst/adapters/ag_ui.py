"""AG-UI: requests of the gate as interrupts of a run, and a front end's resume entries as answers to them.

A run that waits for people ends with an interrupt outcome. The next run on the thread brings resume entries. An entry
for an interrupt that this thread was not shown, or that is settled, changes nothing. While a request is open, the run
ends with the interrupts again.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
# (the SDK is installed in the environment of this adapter's tests only)

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from askfirst.adapters.framework import needs
from askfirst.adapters.response_schemas import response_schema
from askfirst.adapters.shown_requests import ABANDONED, Shown, ShownRequests, WaitingGiven
from askfirst.errors import HitlInvalidAnswer, Pending
from askfirst.gate.gate import Gate

with needs("ag-ui"):
    from ag_ui.core import (
        Interrupt,
        RunAgentInput,
        RunErrorEvent,
        RunFinishedEvent,
        RunFinishedInterruptOutcome,
        RunFinishedSuccessOutcome,
        RunStartedEvent,
    )

PROTOCOL = "ag-ui"
"""The ``via`` of answers that come through AG-UI."""
INVALID = "askfirst:invalid_answer"
"""The code of a `RunErrorEvent` for a payload that does not fit its interrupt's schema."""
_REASONS = {"confirm": "confirmation", "ask": "input_required"}


class AgUiBridge:
    """Shows the open requests of a gate to AG-UI front ends, and settles them with their answers.

    Pass as ``by`` only a user that your server has verified, and that may see this thread. A user's name in a payload
    or in metadata is not read.
    """

    def __init__(self, gate: Gate) -> None:
        self._requests = ShownRequests(gate, PROTOCOL)

    async def run(
        self, given: RunAgentInput, body: Callable[[RunAgentInput], AsyncIterator[Any]], *, by: str
    ) -> AsyncIterator[Any]:
        """The events of one run. ``body`` yields the events of your agent, without the run's start and end.

        Resume entries are settled first. The body runs if no request of the thread is open then. If the body raises
        `Pending`, the run ends with an interrupt.
        """
        yield RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id)
        ended = await self.resume(given, by=by)
        if ended is None:
            try:
                async for event in body(given):
                    yield event
                ended = _finished(given, RunFinishedSuccessOutcome())
            except Pending as pending:
                ended = await self.interrupted(given, [pending])
        yield ended

    async def resume(self, given: RunAgentInput, *, by: str) -> RunFinishedEvent | RunErrorEvent | None:
        """Settle requests with an input's resume entries. Returns the event that ends the run; None to go on.

        The run ends if a request of this thread is still open. A payload that does not fit ends the run with an
        error, and then none of the entries counts.
        """
        payloads = {
            it.interrupt_id: ABANDONED if it.status == "cancelled" else it.payload
            for it in given.resume or ()
        }
        try:
            await self._requests.settle(given.thread_id, payloads, by=by)
        except HitlInvalidAnswer as error:
            return RunErrorEvent(message=str(error), code=INVALID)
        still_open = await self._requests.open(given.thread_id)
        return _interrupted(given, still_open) if still_open else None

    async def interrupted(self, given: RunAgentInput, waiting: WaitingGiven) -> RunFinishedEvent:
        """The event that ends a run that waits for people; ``waiting`` has what the gate raised or returned.

        As a mapping, its keys are the ids of the tool calls in your run's events, so that a front end shows each
        request with its call.
        """
        return _interrupted(given, await self._requests.show(given.thread_id, waiting))


def _interrupted(given: RunAgentInput, shown: Sequence[Shown]) -> RunFinishedEvent:
    return _finished(given, RunFinishedInterruptOutcome(interrupts=[_interrupt(it) for it in shown]))


def _finished(given: RunAgentInput, outcome: Any) -> RunFinishedEvent:
    return RunFinishedEvent(thread_id=given.thread_id, run_id=given.run_id, outcome=outcome)


def _interrupt(shown: Shown) -> Interrupt:
    request = shown.stored.request
    kind, expires = request.payload.kind, request.expires_at
    is_call = shown.call_id is not None and kind == "approve"
    return Interrupt(
        id=shown.case,
        reason="tool_call" if is_call else _REASONS.get(kind, f"askfirst:{kind}"),
        message=shown.message,
        tool_call_id=shown.call_id,
        response_schema=response_schema(request),
        expires_at=None if expires is None else datetime.fromtimestamp(expires, UTC).isoformat(),
        metadata={"askfirst": shown.facts},
    )
