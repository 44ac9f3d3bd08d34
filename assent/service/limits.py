"""How much a caller may send: more is refused before it is read, whoever they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from assent.service.problems import problem

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

MOST_BYTES = 4_000_000


class BodyLimit:
    """ASGI middleware that answers 413 to a body of more than ``most`` bytes, announced or not."""

    def __init__(self, app: App, *, most: int = MOST_BYTES) -> None:
        self._app = app
        self._most = most
        self._said = f"A request has at most {most} bytes."

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or len(announced) > 18 or int(announced) > self._most:
            await problem(413, "too_long", self._said)(scope, receive, send)
            return
        read = 0

        async def counting() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise HTTPException(413, self._said)  # FastAPI makes a 400 of any other error
            return message

        await self._app(scope, counting, send)
