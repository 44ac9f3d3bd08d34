"""Telegram's Bot API for one bot: refusals become errors, and the token is in no error and no log."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from askfirst.delivery.text import cut
from askfirst.errors import DeliveryError, MissingExtra
from askfirst.visible_text import visible

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger("askfirst.delivery")
NAME = "telegram"
_BYTES = "application/octet-stream"
"""The media type of every file. Guessing a type from a name would read the system's list in the event loop."""
CALL_SECONDS = 15.0
_TOKEN = re.compile(r"\d+:[\w-]{8,}", re.ASCII)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\w+://\S+")
_REASON_LENGTH = 160
_SENTENCES = {
    401: "Telegram does not know this bot: check its token",
    403: "Telegram does not let the bot write there",
    404: "Telegram does not know this bot: check its token",
    409: "another program reads this bot's presses; only one program may listen for a bot",
    429: "Telegram's rate limit is reached",
}


class TelegramRefused(DeliveryError):
    """Telegram refused a call. ``said`` is its reason, without quoted text."""

    def __init__(
        self, code: int, said: str, *, retry_after: float | None = None, new_chat_id: int | None = None
    ) -> None:
        problem = _SENTENCES.get(code) or f"Telegram answered {code}"
        super().__init__(
            NAME,
            f"{problem} ({said})" if said else problem,
            retry_after=retry_after,
            permanent=code < 500 and code not in (408, 409, 429),
        )
        self.code = code
        self.said = said
        self.new_chat_id = new_chat_id
        """The new id of a group that became a supergroup."""


class TelegramApi:
    """The Bot API for one bot.

    Calls go through ``http``, or else through a connection per call or the connections that `connected` keeps open.
    The token is part of each URL's path. The path is given to the connection only, so that logs and errors show the
    URL without it.
    """

    def __init__(self, token: str, *, http: httpx2.AsyncClient | None, base_url: str) -> None:
        try:
            import httpx2
        except ModuleNotFoundError as error:
            raise MissingExtra("Telegram", "delivery") from error
        if not _TOKEN.fullmatch(token):
            raise DeliveryError(
                NAME, "a bot's token looks like 123456:ABC-DEF, as @BotFather gave it", permanent=True
            )
        at = httpx2.URL(base_url)
        self._origin = at.copy_with(raw_path=b"/")
        self._path = f"{at.path.rstrip('/')}/bot{token}/"
        self._http = http
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Within this context, keep connections open between calls (keep-alive)."""
        if self._http is not None:
            yield
            return
        async with await self._client() as http:
            self._http = http
            try:
                yield
            finally:
                self._http = None

    async def call(self, method: str, parameters: dict[str, Any], *, seconds: float = CALL_SECONDS) -> Any:
        """The result of a method. Raises `TelegramRefused`, or another `DeliveryError` if no answer came in time."""
        if self._http is not None:
            return await self._call(self._http, method, parameters, seconds)
        async with await self._client() as http:
            return await self._call(http, method, parameters, seconds)

    async def edit(
        self, method: str, chat_id: int | str, message_id: int | str, parameters: dict[str, Any]
    ) -> None:
        """Change a message and remove its buttons. If Telegram refuses it for good, that is only logged."""
        where = {"chat_id": chat_id, "message_id": message_id}
        try:
            await self.call(method, {**where, **parameters, "reply_markup": {"inline_keyboard": []}})
        except TelegramRefused as error:
            if error.code not in (400, 403):
                raise
            if "not modified" not in error.said:
                logger.warning("a message could not be updated: %s", error)

    async def upload(
        self, method: str, parameters: Mapping[str, str], field: str, name: str, content: bytes
    ) -> Any:
        """The result of a method that takes a file."""
        if self._http is not None:
            return await self._call(
                self._http, method, dict(parameters), CALL_SECONDS, {field: (name, content, _BYTES)}
            )
        async with await self._client() as http:
            return await self._call(
                http, method, dict(parameters), CALL_SECONDS, {field: (name, content, _BYTES)}
            )

    async def _client(self) -> httpx2.AsyncClient:
        import httpx2

        if self._tls is None:  # loading the trusted certificates takes a while
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context)
        return httpx2.AsyncClient(verify=self._tls)

    async def _call(
        self,
        http: httpx2.AsyncClient,
        method: str,
        parameters: dict[str, Any],
        seconds: float,
        files: dict[str, tuple[str, bytes, str]] | None = None,
    ) -> Any:
        import httpx2

        # Without the client's defaults: their headers and credentials are not meant for Telegram.
        request = httpx2.Request(
            "POST",
            self._origin,
            json=parameters if files is None else None,
            data=None if files is None else parameters,
            files=files,
            extensions={
                "target": (self._path + method).encode(),
                "timeout": httpx2.Timeout(seconds).as_dict(),
            },
        )
        try:
            async with asyncio.timeout(seconds):
                response = await http.send(request, auth=None, follow_redirects=False)
        except TimeoutError:
            problem = f"Telegram did not answer within {seconds:g} seconds"
        except (httpx2.TransportError, OSError) as error:
            problem = f"Telegram could not be reached ({type(error).__name__})"
        else:
            return _result(response)
        raise DeliveryError(NAME, problem)


def _result(response: httpx2.Response) -> Any:
    try:
        answer: Any = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise DeliveryError(NAME, f"the response is not from Telegram ({response.status_code})")
    body = cast("dict[str, Any]", answer)
    if body.get("ok") is True:
        return body.get("result")
    more: dict[str, Any] = body.get("parameters") or {}
    raise TelegramRefused(
        int(body.get("error_code") or response.status_code),
        _reason(str(body.get("description") or "")),
        retry_after=more.get("retry_after"),
        new_chat_id=more.get("migrate_to_chat_id"),
    )


def _reason(description: str) -> str:
    """Telegram's reason without quoted text, which may contain a review link."""
    return cut(visible(_QUOTED.sub("…", description)), _REASON_LENGTH)
