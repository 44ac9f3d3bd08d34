"""The span around a wait for a person."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from assent import tracing
from assent.errors import HitlAborted, HitlCancelled, HitlDetached, HitlTimedOut
from assent.requests import ApproveAnswer, ApproveRequest, HitlRequest

_ANSWERED = {"approve": "approved", "deny": "denied", "edit": "edited"}
_SIGNALS: dict[type[BaseException], str] = {
    HitlCancelled: "cancelled",
    HitlTimedOut: "timed_out",
    HitlAborted: "aborted",
    HitlDetached: "detached",
}


class HitlSpan:
    """What is known of a wait while it lasts."""

    __slots__ = ("_outcome", "from_resume")

    def __init__(self) -> None:
        self.from_resume = False
        self._outcome: str | None = None

    def outcome(self, answer: Any) -> Any:
        """Note what was answered, and hand it on."""
        self._outcome = _ANSWERED[answer.decision] if isinstance(answer, ApproveAnswer) else "answered"
        return answer

    def ended(self, error: BaseException | None) -> str:
        """How the wait ended, in the words of the documentation."""
        if error is None and self._outcome is not None:
            return self._outcome
        return next((word for kind, word in _SIGNALS.items() if isinstance(error, kind)), "detached")


@contextmanager
def hitl_span(request: HitlRequest) -> Generator[HitlSpan]:
    """Trace a wait: ``hitl.approve`` and its siblings, with the outcome and how long it took."""
    payload, began, state = request.payload, time.monotonic(), HitlSpan()
    attributes: dict[str, Any] = {"hitl.question_id": request.question_id}
    if isinstance(payload, ApproveRequest):
        attributes |= {"hitl.tool_name": payload.tool_name, "hitl.tool_call_id": payload.tool_call_id}
    with tracing.span(f"hitl.{payload.kind}", attributes) as span:
        tracing.request_opened(payload.kind)
        error: BaseException | None = None
        try:
            yield state
        except BaseException as raised:
            error = raised
            raise
        finally:
            outcome, seconds = state.ended(error), time.monotonic() - began
            span.set("hitl.outcome", outcome)
            span.set("hitl.duration_seconds", seconds)
            if payload.kind == "approve":
                span.set("hitl.from_resume", state.from_resume)
            tracing.request_left(payload.kind)
            if error is None:
                tracing.request_answered(payload.kind, outcome, seconds)
