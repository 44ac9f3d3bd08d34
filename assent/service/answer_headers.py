"""Headers that every answer has, whatever it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_NAME, _VALUE = b"x-content-type-options", b"nosniff"


class NoSniff:
    """ASGI middleware that tells browsers to take every answer for what it says it is."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if not any(name.lower() == _NAME for name, _ in headers):
                    message = {**message, "headers": [*headers, (_NAME, _VALUE)]}
            await send(message)

        await self._app(scope, receive, telling)
