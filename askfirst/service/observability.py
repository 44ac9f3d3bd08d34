"""Logs of HTTP requests as lines of JSON, and metrics through OpenTelemetry.

- ``askfirst.service.requests``: HTTP requests, by ``http.request.method``, ``http.route`` (the pattern, not the
  path) and ``http.response.status_code``
- ``askfirst.service.open_cases``: open cases, counted every few seconds
- ``askfirst.service.time_to_answer``: seconds from opening a case to its end, by ``hitl.type`` and ``hitl.outcome``
- ``askfirst.service.callbacks``: attempts of callbacks, by ``outcome``: ``sent``, ``retry``, ``refused``, or
  ``gave_up`` after days
- ``askfirst.service.continuations``: continuations that are not done, counted every few seconds, by ``state``:
  ``due``, ``running`` or ``failed``
- ``askfirst.service.failed_notices``: how often ``on_case`` has failed
- ``askfirst.service.messages``: messages to people, by ``delivery`` and ``outcome``: sent, updated, failed

A Prometheus exporter shows them as ``askfirst_service_requests_total``, ``askfirst_service_open_cases``,
``askfirst_service_time_to_answer_seconds`` and so on. No metric contains an id, a name, a token or content.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askfirst.service.case import Case

# Logs: one line of JSON for each HTTP request, without tokens, keys or answers.


logger = logging.getLogger("askfirst.service.requests")

_PATH_LENGTH = 300
_URL_LOGGERS = ("httpx2", "httpcore2", "uvicorn.access")
"""Loggers that write whole URLs, which may contain tokens. Below warnings they are silenced."""
_QUERY = re.compile(r"[?&;=#].*", re.DOTALL)
_SECRET = re.compile(r"[A-Za-z0-9_-]{43,}")


class RequestLog:
    """The outermost ASGI middleware: logs every HTTP request when it has ended.

    The line has the method, the path, the status, the duration in milliseconds and the id of the API key,
    which authentication leaves in ``scope["state"]["key_id"]`` (Starlette's ``request.state``).
    """

    def __init__(self, app: ASGIApp, *, timer: Callable[[], float] = time.perf_counter) -> None:
        self._app = app
        self._timer = timer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        status: int | None = None  # stays None if the client disconnects before the response
        started = self._timer()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            status = status or 500  # the server answers an unhandled error with 500
            raise
        finally:
            fields: dict[str, Any] = {
                "method": scope["method"],
                "path": safe_path(scope["path"]),
                "status": status,
                "duration_ms": round((self._timer() - started) * 1000, 3),
                "key_id": state.get("key_id"),
            }
            logger.info("%(method)s %(path)s %(status)s", fields, extra={"fields": fields})


def safe_path(path: str) -> str:
    """A path without secrets: without a query, escaped or not, and without any word as long as a token or a key.

    A character that is not printable, such as a newline, becomes a question mark.
    """
    shown = _SECRET.sub("***", _QUERY.sub("", path))[:_PATH_LENGTH]
    if shown.isprintable():
        return shown
    return "".join(letter if letter.isprintable() else "?" for letter in shown)


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's time, level, logger and message, its ``fields``, and its error."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(stream: TextIO | None = None) -> None:
    """Write all logs of this process to a stream (default: stderr) as lines of JSON, for ``askfirst serve``."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in _URL_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


COUNTING_SECONDS = 5.0
_BUCKETS = [1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400]


class Metrics:
    """The metric instruments of one service. Without OpenTelemetry every method does nothing."""

    def __init__(self) -> None:
        self.open_cases = 0
        """The number of open cases when they were last counted."""
        self.continuations: dict[str, int] = {}
        """The number of continuations that are not done, by state, when they were last counted."""
        self._requests: Any = None
        self._answers: Any = None
        self._callbacks: Any = None
        self._notices: Any = None
        self._messages: Any = None
        try:
            otel: Any = importlib.import_module("opentelemetry.metrics")
        except ImportError:
            return
        meter = otel.get_meter("askfirst")
        self._requests = meter.create_counter("askfirst.service.requests", description="HTTP requests")
        self._callbacks = meter.create_counter(
            "askfirst.service.callbacks", description="Attempts to call back"
        )
        self._notices = meter.create_counter(
            "askfirst.service.failed_notices", description="on_case has failed"
        )
        self._messages = meter.create_counter("askfirst.service.messages", description="Messages to people")
        self._answers = meter.create_histogram(
            "askfirst.service.time_to_answer",
            unit="s",
            description="From opening a case to its end",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )

        def open_cases(options: object) -> Iterable[Any]:
            return [otel.Observation(self.open_cases)]

        def continuations_by_state(options: object) -> Iterable[Any]:
            return [otel.Observation(count, {"state": state}) for state, count in self.continuations.items()]

        meter.create_observable_gauge(
            "askfirst.service.open_cases", callbacks=[open_cases], description="Cases that are open"
        )
        meter.create_observable_gauge(
            "askfirst.service.continuations",
            callbacks=[continuations_by_state],
            description="Threads that were answered and have not gone on",
        )

    def requested(self, method: str, route: str, status: int) -> None:
        """Count a request that was answered."""
        if self._requests is not None:
            told = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
            self._requests.add(1, told)

    def called_back(self, outcome: str) -> None:
        """Count an attempt of a callback."""
        if self._callbacks is not None:
            self._callbacks.add(1, {"outcome": outcome})

    def notice_failed(self) -> None:
        """Count a call of ``on_case`` that failed."""
        if self._notices is not None:
            self._notices.add(1)

    def message_attempted(self, delivery: str, outcome: str) -> None:
        """Count an attempt to send or update a message."""
        if self._messages is not None:
            self._messages.add(1, {"delivery": delivery, "outcome": outcome})

    def ended(self, case: Case) -> None:
        """Count a case that ended in this process."""
        if self._answers is not None and case.ended_at is not None:
            kind = "custom" if case.type.startswith("x-") else case.type
            seconds = max(0.0, case.ended_at - case.created_at)
            self._answers.record(seconds, {"hitl.type": kind, "hitl.outcome": case.status})


class RequestCount:
    """ASGI middleware that counts requests by the pattern of their route."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                # An unknown path counts as "unknown": each made-up path would become a time series of its own.
                route = getattr(scope.get("route"), "path", None) or "unknown"
                method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
                self._metrics.requested(method, route, message["status"])
            await send(message)

        await self._app(scope, receive, noting)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"})
