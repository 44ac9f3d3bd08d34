"""Logs: a line of JSON for each HTTP request, without tokens, keys or answers."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

logger = logging.getLogger("assent.service.requests")

_PATH_LENGTH = 300
_TELLTALE = ("httpx2", "httpcore2", "uvicorn.access")
"""They log whole addresses, and an address may hold a token."""
_QUERY = re.compile(r"[?&;=#].*", re.DOTALL)
_SECRET = re.compile(r"[A-Za-z0-9_-]{43,}")


class RequestLog:
    """ASGI middleware, the outermost, that logs every HTTP request when it is over.

    The line has the method, the path, the status, the duration in milliseconds and the id of the API key,
    which whoever checks the key leaves in ``scope["state"]["key_id"]`` (Starlette's ``request.state``).
    """

    def __init__(self, app: App, *, timer: Callable[[], float] = time.perf_counter) -> None:
        self._app = app
        self._timer = timer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        status: int | None = None  # there is none if the client left before it
        started = self._timer()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            status = status or 500  # what the server makes of it
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
    """A path without anything secret: no query, escaped or not, and nothing as long as a token or a key.

    What is not printable, such as the end of a line, is shown as a question mark.
    """
    shown = _SECRET.sub("***", _QUERY.sub("", path))[:_PATH_LENGTH]
    if shown.isprintable():
        return shown
    return "".join(letter if letter.isprintable() else "?" for letter in shown)


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's time, level, logger and message, the fields that came with it, and the error."""
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
    """Send all logs of this process to a stream (standard error) as lines of JSON; for ``assent serve``."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in _TELLTALE:
        logging.getLogger(name).setLevel(logging.WARNING)
