"""The span around a wait for a person."""

from __future__ import annotations

import time
from typing import Any, Self

from assent import tracing
from assent.agent.host import hosting
from assent.errors import HitlAborted, HitlCancelled, HitlDetached, HitlTimedOut
from assent.requests import ApproveAnswer, ApproveRequest, EscalateAnswer, HitlRequest, StoredRequest

_ANSWERED = {"approve": "approved", "deny": "denied", "edit": "edited"}
_SIGNALS: dict[type[BaseException], str] = {
    HitlCancelled: "cancelled",
    HitlTimedOut: "timed_out",
    HitlAborted: "aborted",
    HitlDetached: "detached",
}


class hitl_span:  # noqa: N801  (used like a function)
    """Trace a wait: ``hitl.approve`` and its siblings, with the outcome and how long it took.

    Nothing is traced or measured unless it is told to ``begin``.
    """

    __slots__ = ("_args", "_began", "_begun", "_kind", "_outcome", "_span", "_took", "from_resume")

    def __init__(self, request: HitlRequest) -> None:
        payload = request.payload
        attributes: dict[str, Any] = {"hitl.question_id": request.question_id}
        self._args = payload.args if isinstance(payload, ApproveRequest) else None
        if isinstance(payload, ApproveRequest):
            attributes |= {"hitl.tool_name": payload.tool_name, "hitl.tool_call_id": payload.tool_call_id}
        self._kind = payload.kind
        self._span = tracing.span(f"hitl.{payload.kind}", attributes)
        self._began = time.monotonic()
        self._begun = False
        self._took: float | None = None
        self._outcome = "detached"
        self.from_resume = False

    def begin(self) -> None:
        """Trace from now on; once is enough."""
        if self._begun:
            return
        self._begun = True
        self._span.__enter__()
        if self._args is not None:
            self._span.set_content("hitl.args", lambda: self._args)
        tracing.request_opened(self._kind)

    def settled(self, stored: StoredRequest) -> None:
        """Note how long the person took, who may have answered while nobody waited."""
        if stored.settled_at is not None:
            self._took = max(0.0, stored.settled_at / 1000 - stored.request.created_at)

    def outcome(self, answer: Any) -> Any:
        """Note what was answered, and hand it on."""
        self._outcome = _ANSWERED[answer.decision] if isinstance(answer, ApproveAnswer) else "answered"
        self._span.set_content("hitl.answer", lambda: _content(answer))
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if not self._begun:
            return
        seconds = time.monotonic() - self._began
        outcome = self._outcome if kind is None else _SIGNALS.get(kind) or _left()
        if kind is not None and issubclass(kind, Exception):
            self._span.fail(kind.__name__)
        else:
            self._span.set("hitl.outcome", outcome)
        self._span.set("hitl.duration_seconds", seconds)
        if self._kind == "approve":
            self._span.set("hitl.from_resume", self.from_resume)
        tracing.request_left(self._kind)
        if kind is None:
            tracing.request_answered(self._kind, outcome, seconds if self._took is None else self._took)
        self._span.__exit__(kind, *error)


def _left() -> str:
    """Why nobody waits any more where no signal says so: the run was aborted, or its task cancelled."""
    host = hosting.get()
    run = None if host is None else host.top.current_run  # for a tree is aborted at its top
    return "aborted" if run is not None and run.aborted else "detached"


def _content(answer: Any) -> Any:
    """An answer for the record; arguments a person typed are left out, for they may hold what the tool masks."""
    if isinstance(answer, ApproveAnswer | EscalateAnswer):
        return answer.model_dump(exclude={"edited_args", "modified_params"}, exclude_none=True)
    return answer
