"""OpenTelemetry spans and metrics. They need the ``tracing`` extra; spans also need a tracer provider.

Spans, each nested in the one before: ``invoke_agent ID`` (a run), ``turn``, ``chat MODEL`` (a model call) and
``execute_tool NAME`` (a tool's body), with the attribute names of OpenTelemetry's GenAI conventions; and
``hitl.approve``, ``hitl.confirm``, ``hitl.ask``, ``hitl.escalate`` (a wait for a person). A run that pauses or
goes on with a person's decision has a span event ``approval``. A span whose work failed has the status error and an
``error.type``, the exception's name; control-flow signals, `LeaseHeld` and `LeaseLost` are not errors. Metrics:
``askfirst.hitl.open_requests`` and ``askfirst.hitl.time_to_answer``. No argument, answer or message is in any of
them unless `record_content` is switched on, and then what pydantic masks (a ``SecretStr``) stays masked.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Self

from askfirst.errors import LeaseHeld, LeaseLost

record_content = False
"""Whether arguments and answers may go into spans; off unless a developer switches it on."""

_otel: Any = None
"""OpenTelemetry's trace and metrics modules as a pair; False if they are not installed, None before the first use."""
on = False
"""Whether spans are recorded: a tracer provider was set when the latest run began."""
_instruments: dict[str, Any] = {}


class Span:
    """A span, as a context manager. This base class records nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def set(self, name: str, value: Any) -> None:
        """Set an attribute; None leaves it out."""

    def set_content(self, name: str, value: Callable[[], Any]) -> None:
        """Set an attribute with arguments or answers; only if `record_content` is on."""

    def fail(self, kind: str) -> None:
        """Set the status to error; ``kind`` is the type of the failure, without its text."""


class _Recording(Span):
    __slots__ = ("_manager", "_span")

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._span: Any = None

    def __enter__(self) -> Self:
        self._span = self._manager.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        kind = error[0] if error else None
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, _NO_ERRORS):
            self.fail(kind.__name__)
        self._manager.__exit__(*error)

    def set(self, name: str, value: Any) -> None:
        if value is not None:
            self._span.set_attribute(name, value)

    def set_content(self, name: str, value: Callable[[], Any]) -> None:
        if record_content:
            self._span.set_attribute(name, json.dumps(value(), default=str))

    def fail(self, kind: str) -> None:
        trace, _ = _load()
        self._span.set_attribute("error.type", kind)
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, kind))


_NO_SPAN = Span()
_NO_ERRORS = (LeaseHeld, LeaseLost)
"""The exceptions for a thread that another worker has taken; a span does not count them as errors."""


def _load() -> Any:
    global _otel
    if _otel is None:
        try:
            names = ("opentelemetry.trace", "opentelemetry.metrics")
            _otel = tuple(importlib.import_module(name) for name in names)
        except ImportError:
            _otel = False
    return _otel


def is_set_up() -> bool:
    """Whether a tracer provider is set; looked up at the start of a run, and valid for the whole run.

    A program that has set a provider has imported OpenTelemetry. So OpenTelemetry is not imported here only to find
    out that no provider is set.
    """
    global on
    otel = _load() if _otel is None and "opentelemetry.trace" in sys.modules else _otel
    on = bool(otel) and otel[0].get_tracer_provider().__class__ is not otel[0].ProxyTracerProvider
    return on


def span(name: str, attributes: Mapping[str, Any]) -> Span:
    """Trace a ``with`` block, as a child of the current span."""
    if not is_set_up():
        return _NO_SPAN
    known = {key: value for key, value in attributes.items() if value is not None}
    manager = (
        _load()[0]
        .get_tracer("askfirst")
        .start_as_current_span(name, attributes=known, record_exception=False, set_status_on_exception=False)
    )
    return _Recording(manager)


def run_span(agent_id: str, thread_id: str) -> Span:
    """Trace a run."""
    return _operation(
        "invoke_agent", agent_id, {"gen_ai.agent.id": agent_id, "gen_ai.conversation.id": thread_id}
    )


def turn_span() -> Span:
    """Trace a turn: a model call and its tools."""
    return span("turn", {}) if on else _NO_SPAN


def model_span(model: str) -> Span:
    """Trace a model call."""
    return _operation("chat", model, {"gen_ai.request.model": model}) if on else _NO_SPAN


def tool_span(tool_name: str, tool_call_id: str) -> Span:
    """Trace a tool's body."""
    if not on:
        return _NO_SPAN
    return _operation(
        "execute_tool", tool_name, {"gen_ai.tool.name": tool_name, "gen_ai.tool.call.id": tool_call_id}
    )


def _operation(operation: str, name: str, attributes: Mapping[str, Any]) -> Span:
    return span(f"{operation} {name}", {"gen_ai.operation.name": operation, **attributes})


def add_event(name: str, attributes: Mapping[str, Any]) -> None:
    """Add a span event to the current span."""
    if on:
        known = {key: value for key, value in attributes.items() if value is not None}
        _load()[0].get_current_span().add_event(name, known)


def request_opened(kind: str) -> None:
    """Count a request as open."""
    _count(1, kind)


def request_left(kind: str) -> None:
    """Count a request as no longer open in this process."""
    _count(-1, kind)


def request_answered(kind: str, outcome: str, seconds: float) -> None:
    """Record the time from a request to its answer."""
    if _load():
        if "time_to_answer" not in _instruments:
            _instruments["time_to_answer"] = _meter().create_histogram(
                "askfirst.hitl.time_to_answer", unit="s", description="From asking a person to the answer"
            )
        _instruments["time_to_answer"].record(seconds, {"hitl.kind": kind, "hitl.outcome": outcome})


def _count(change: int, kind: str) -> None:
    if _load():
        if "open_requests" not in _instruments:
            _instruments["open_requests"] = _meter().create_up_down_counter(
                "askfirst.hitl.open_requests", description="Requests that are waited for in this process"
            )
        _instruments["open_requests"].add(change, {"hitl.kind": kind})


def _meter() -> Any:
    return _load()[1].get_meter("askfirst")
