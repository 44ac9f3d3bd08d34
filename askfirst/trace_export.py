"""Tracers: listeners that turn an agent's events into trace events and export them.

A trace event says that something happened, and where, but nothing of what was said: it has names, ids, phases and
times, and no argument, answer or message.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from askfirst.errors import MissingExtra
from askfirst.events import AgentEvent, ApprovalEvent

Attribute = str | bool | int


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """What a tracer exports: ``name`` is the event's type, ``phase`` the phase of an ``approval`` event.

    ``at`` is seconds since 1970 (UTC), ``agent_path`` the ids of the agents from the root to the one that it is
    about.
    """

    name: str
    phase: str | None
    at: float
    thread_id: str
    run_id: str
    agent_path: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: dict[str, Attribute]())

    def to_json(self) -> dict[str, Any]:
        """The event as an object that JSON can hold."""
        return {**asdict(self), "agent_path": list(self.agent_path), "attributes": dict(self.attributes)}


class Tracer:
    """A listener that exports trace events: ``agent.subscribe(Tracer(print))``, or ``run_agent(..., tracer=)``.

    ``export`` is called with each `TraceEvent`; it may be async. The last ``keep`` of them stay in ``events``, for
    a chat to render: an ``approval`` has the phase ``requested`` while a person is awaited, and ``resolved`` once
    they have decided.
    """

    def __init__(self, export: Callable[[TraceEvent], Any] | None = None, *, keep: int = 1000) -> None:
        self._export = export
        self._events: deque[TraceEvent] = deque(maxlen=keep)

    @property
    def events(self) -> list[TraceEvent]:
        """The last exported events, oldest first."""
        return list(self._events)

    def __call__(self, event: AgentEvent) -> Any:
        """Handle an event of the agent. Await the result if ``export`` is async."""
        traced = trace_event(event)
        if traced is None:
            return None
        self._events.append(traced)
        return self.export(traced)

    def export(self, event: TraceEvent) -> Any:
        """Export a trace event by calling the function that was given; subclasses override this."""
        return None if self._export is None else self._export(event)


class OTelTracer(Tracer):
    """A `Tracer` that exports each approval as an OpenTelemetry span named ``approval``.

    Its attribute ``approval.phase`` is ``requested`` or ``resolved``. It is a child of the span around it, if there
    is one. ``tracer_provider`` is the provider to use; without one, the provider that is set for the process. Raises
    `MissingExtra` without the ``tracing`` extra.
    """

    def __init__(self, tracer_provider: Any = None, *, keep: int = 1000) -> None:
        super().__init__(keep=keep)
        try:
            trace: Any = importlib.import_module("opentelemetry.trace")
        except ImportError:
            raise MissingExtra("OTelTracer", "tracing") from None
        self._tracer: Any = trace.get_tracer("askfirst", tracer_provider=tracer_provider)

    def export(self, event: TraceEvent) -> None:
        """Export an approval. Other events are not exported: `askfirst.tracing` makes spans for them."""
        if event.name == "approval":
            at = round(event.at * 1e9)
            attributes = {**event.attributes, "gen_ai.conversation.id": event.thread_id}
            self._tracer.start_span(event.name, attributes=attributes, start_time=at).end(at)


_FIELDS: Mapping[str, Mapping[str, str]] = {
    "run_started": {"agent_id": "gen_ai.agent.id", "resumed": "askfirst.resumed"},
    "run_ended": {"status": "askfirst.status"},
    "turn_started": {},
    "turn_ended": {},
    "tool_started": {"tool_name": "gen_ai.tool.name", "tool_call_id": "gen_ai.tool.call.id"},
    "tool_ended": {
        "tool_name": "gen_ai.tool.name",
        "tool_call_id": "gen_ai.tool.call.id",
        "is_error": "askfirst.is_error",
    },
    "hitl_answer": {
        "question_id": "hitl.question_id",
        "cancelled": "hitl.cancelled",
        "timed_out": "hitl.timed_out",
    },
    "agent_suspended": {},
    "agent_aborted": {},
}
"""For each type of event: the fields that its trace event takes over, and the attributes they become."""


def trace_event(event: AgentEvent) -> TraceEvent | None:
    """The trace event for an agent's event; None for messages, their deltas and progress, which are not traced."""
    phase: str | None = None
    if isinstance(event, ApprovalEvent):
        phase, attributes = event.phase, _of_approval(event)
    elif event.type == "hitl_request":
        asked = event.request
        attributes = {"hitl.question_id": asked.question_id, "hitl.kind": asked.payload.kind}
    elif event.type in _FIELDS:
        named = {traced: getattr(event, name) for name, traced in _FIELDS[event.type].items()}
        attributes = {name: value for name, value in named.items() if value is not None}
    else:
        return None
    return TraceEvent(
        event.type, phase, event.at, event.thread_id, event.run_id, tuple(event.agent_path), attributes
    )


def _of_approval(event: ApprovalEvent) -> dict[str, Attribute]:
    approval = event.approval
    known = {
        "approval.phase": event.phase,
        "approval.id": approval.id,
        "approval.decision": event.decision,
        "gen_ai.tool.name": approval.tool_call.name,
        "gen_ai.tool.call.id": approval.tool_call.id,
        "askfirst.agent_path": "/".join(approval.agent_path),
        "askfirst.matched_rule_id": approval.matched_rule_id,
    }
    return {name: value for name, value in known.items() if value is not None}
