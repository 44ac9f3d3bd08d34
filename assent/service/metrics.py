"""What the service counts, through OpenTelemetry; nothing without the ``tracing`` extra or a meter provider.

- ``assent.service.requests``: HTTP requests, by ``http.request.method``, ``http.route`` (the pattern, not the
  path) and ``http.response.status_code``
- ``assent.service.open_cases``: cases that are open, as counted a few seconds ago
- ``assent.service.time_to_answer``: seconds from opening a case to its end, by ``hitl.type`` and ``hitl.outcome``

- ``assent.service.callbacks``: attempts to call somebody back, by ``outcome``: ``sent``, ``retry``, ``refused``, or
  ``gave_up`` after days
- ``assent.service.failed_notices``: times that ``on_case`` has failed

A Prometheus exporter shows them as ``assent_service_requests_total``, ``assent_service_open_cases`` and
``assent_service_time_to_answer_seconds``. No id, name, token or content is in any of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from assent.service.case import Case

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COUNTING_SECONDS = 5.0
_BUCKETS = [1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400]


class Metrics:
    """The instruments of one service, made where OpenTelemetry is installed."""

    def __init__(self) -> None:
        self.open_cases = 0
        """As last counted."""
        self._requests: Any = None
        self._answers: Any = None
        self._callbacks: Any = None
        self._notices: Any = None
        try:
            otel: Any = importlib.import_module("opentelemetry.metrics")
        except ImportError:
            return
        meter = otel.get_meter("assent")
        self._requests = meter.create_counter("assent.service.requests", description="HTTP requests")
        self._callbacks = meter.create_counter(
            "assent.service.callbacks", description="Attempts to call back"
        )
        self._notices = meter.create_counter(
            "assent.service.failed_notices", description="on_case has failed"
        )
        self._answers = meter.create_histogram(
            "assent.service.time_to_answer",
            unit="s",
            description="From opening a case to its end",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )

        def observed(options: object) -> Iterable[Any]:
            return [otel.Observation(self.open_cases)]

        meter.create_observable_gauge(
            "assent.service.open_cases", callbacks=[observed], description="Cases that are open"
        )

    def requested(self, method: str, route: str, status: int) -> None:
        """A request was answered."""
        if self._requests is not None:
            told = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
            self._requests.add(1, told)

    def called_back(self, outcome: str) -> None:
        """An attempt to call somebody back was made."""
        if self._callbacks is not None:
            self._callbacks.add(1, {"outcome": outcome})

    def notice_failed(self) -> None:
        """The host could not be told of a case."""
        if self._notices is not None:
            self._notices.add(1)

    def ended(self, case: Case) -> None:
        """A case has come to its end in this process."""
        if self._answers is not None and case.ended_at is not None:
            kind = "custom" if case.type.startswith("x-") else case.type
            seconds = max(0, case.ended_at - case.created_at) / 1000
            self._answers.record(seconds, {"hitl.type": kind, "hitl.outcome": case.status})


class RequestCount:
    """ASGI middleware that counts requests by the pattern of their route."""

    def __init__(self, app: App, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Where no route fits there is none: paths that callers make up would each be a series.
                route = getattr(scope.get("route"), "path", None) or "unknown"
                method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
                self._metrics.requested(method, route, message["status"])
            await send(message)

        await self._app(scope, receive, noting)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"})
