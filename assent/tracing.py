"""OpenTelemetry spans and metrics, and nothing at all without the ``tracing`` extra.

Spans: ``invoke_agent ID`` (a run), ``chat MODEL`` (a model call), ``execute_tool NAME`` (a tool's body), and
``hitl.approve``, ``hitl.confirm``, ``hitl.ask``, ``hitl.escalate`` (a wait for a person). Metrics:
``assent.hitl.open_requests`` and ``assent.hitl.time_to_answer``. No argument, answer or message is in any of
them unless `record_content` is switched on, and never one that is marked sensitive.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

record_content = False
"""Whether arguments and answers may go into spans; off unless a developer switches it on."""

_otel: Any = None
"""OpenTelemetry's trace and metrics modules, once looked for: a pair, or False where they are not installed."""


class Span:
    """What is being traced; forgets everything where there is no tracing."""

    __slots__ = ("_span",)

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def set(self, name: str, value: Any) -> None:
        """Set an attribute; None leaves it out."""
        if self._span is not None and value is not None:
            self._span.set_attribute(name, value)

    def set_content(self, name: str, value: Any) -> None:
        """Set an attribute that holds what people or models said: only where `record_content` is on."""
        if record_content and self._span is not None:
            self._span.set_attribute(name, json.dumps(value, default=str))

    def event(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Note that something happened within the span."""
        if self._span is not None:
            self._span.add_event(name, {key: value for key, value in attributes.items() if value is not None})

    def fail(self, description: str) -> None:
        """Mark the span as failed."""
        if self._span is not None:
            trace, _ = _load()
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, description))


_NO_SPAN = Span()


def _load() -> Any:
    global _otel
    if _otel is None:
        try:
            _otel = (
                importlib.import_module("opentelemetry.trace"),
                importlib.import_module("opentelemetry.metrics"),
            )
        except ImportError:
            _otel = False
    return _otel


@contextmanager
def span(name: str, attributes: Mapping[str, Any]) -> Generator[Span]:
    """Trace what happens within, as a child of the span around it."""
    otel = _load()
    if not otel:
        yield _NO_SPAN
        return
    known = {key: value for key, value in attributes.items() if value is not None}
    tracer = otel[0].get_tracer("assent")
    with tracer.start_as_current_span(
        name, attributes=known, record_exception=False, set_status_on_exception=False
    ) as started:
        yield Span(started)


@contextmanager
def open_request(kind: str) -> Generator[None]:
    """Count a request as open while it is waited for."""
    counter = _instrument("open_requests")
    if counter is None:
        yield
        return
    counter.add(1, {"hitl.kind": kind})
    try:
        yield
    finally:
        counter.add(-1, {"hitl.kind": kind})


def answered(kind: str, outcome: str, seconds: float) -> None:
    """Record how long a person took."""
    histogram = _instrument("time_to_answer")
    if histogram is not None:
        histogram.record(seconds, {"hitl.kind": kind, "hitl.outcome": outcome})


def _instrument(name: str) -> Any:
    otel = _load()
    if not otel:
        return None
    meter = otel[1].get_meter("assent")
    if name not in _INSTRUMENTS:
        _INSTRUMENTS["open_requests"] = meter.create_up_down_counter(
            "assent.hitl.open_requests", description="Requests that are waited for in this process"
        )
        _INSTRUMENTS["time_to_answer"] = meter.create_histogram(
            "assent.hitl.time_to_answer", unit="s", description="From asking a person to the answer"
        )
    return _INSTRUMENTS[name]


_INSTRUMENTS: dict[str, Any] = {}
