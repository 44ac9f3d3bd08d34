"""The receiver of callbacks: webhooks with which services tell that a case has ended."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from pydantic_core import from_json

from askfirst.clock import Clock, SystemClock
from askfirst.errors import InvalidSecret, InvalidSignature
from askfirst.loopback import LOOPBACK_HOSTS
from askfirst.protocol import SIGNATURE_HEADER, verify_callback, verify_hitl_signature, verify_webhook
from askfirst.protocol.events import FINAL_EVENTS

__all__ = ["CallbackReceiver", "verify_hitl_signature"]

logger = logging.getLogger("askfirst.client")

FIELD = "hitl_callback_url"
MOST_BYTES = 4_000_000
"""The largest callback: more than our own service accepts as an answer."""
REMEMBERED = 10_000
_WEBHOOK_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class _Waiter(NamedTuple):
    loop: asyncio.AbstractEventLoop
    event: asyncio.Event


class _Answer(Exception):
    """An error response."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status
        self.said = said


class CallbackReceiver:
    """An ASGI app that takes callbacks; hand it to `HitlClient` as ``callback``.

    ``url`` is where services reach it, such as ``https://agent.example/webhooks/hitl``. Route that path to it in
    any ASGI application (``app.add_route("/webhooks/hitl", receiver, methods=["POST"])`` in Starlette and
    FastAPI), or serve it alone, with uvicorn for example. A mount at the very path is no good: it redirects, and
    services do not follow. ``secret`` is the one that the services sign with, or one for each host: only
    services of those hosts are then told to call back.

    A callback is a hint: it makes the client ask the service, which is the truth. So one that is lost costs
    time and nothing else.
    """

    def __init__(self, secret: str | Mapping[str, str], *, url: str, clock: Clock | None = None) -> None:
        self._secrets = {"": secret} if isinstance(secret, str) else {**secret}
        if not self._secrets or not all(self._secrets.values()):
            raise InvalidSecret("an empty secret protects nothing")
        where = urlsplit(url)
        if where.scheme != "https" and (where.scheme != "http" or where.hostname not in LOOPBACK_HOSTS):
            raise ValueError("a callback URL begins with https://, or with http:// on this machine alone")
        self.url = url
        self._path = where.path.rstrip("/")
        self._clock = clock or SystemClock()
        self._waiters: dict[str, list[_Waiter]] = {}
        self._handled = _Recent()
        self._early = _Recent()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url={self.url!r})"

    # For the client.

    def added_to(self, body: Any, service_url: str | None = None) -> Any:
        """A request's JSON with ``hitl_callback_url`` added. It is unchanged if it is not an object, has that field
        already, or goes to a host whose secret is not known."""
        if not isinstance(body, Mapping) or FIELD in body:
            return cast(Any, body)
        if service_url is not None and "" not in self._secrets:
            where = urlsplit(service_url)
            if not {where.netloc.rpartition("@")[2], where.hostname} & self._secrets.keys():
                return cast(Any, body)
        return {**cast("Mapping[str, Any]", body), FIELD: self.url}

    @contextmanager
    def heard(self, case_id: str) -> Generator[asyncio.Event]:
        """Within this context, callbacks for the case set the event that it gives."""
        waiter = _Waiter(asyncio.get_running_loop(), asyncio.Event())
        self._waiters.setdefault(case_id, []).append(waiter)
        if self._early.forget(case_id):  # the callback came before the 202 was read
            waiter.event.set()
        try:
            yield waiter.event
        finally:
            waiters = self._waiters[case_id]
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[case_id]

    # For services.

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request (the ASGI interface)."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
        else:
            try:
                said = await self._take(scope, receive)
                await _respond(send, 200, said)
            except _Answer as answer:
                await _respond(send, answer.status, answer.said)

    async def _take(self, scope: Mapping[str, Any], receive: Receive) -> str:
        """Handle a callback, and return the response's text. Raises `_Answer` if it is refused."""
        if not self._is_here(scope):
            raise _Answer(404, "There is nothing here.")
        if scope["method"] != "POST":
            raise _Answer(405, "Callbacks are posted.")
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise _Answer(415, "A callback is application/json.")
        body = await _read(headers, receive)
        marks = self._checked(body, headers)  # before the body is parsed
        if any(self._handled.has(mark) for mark in marks):
            return "This was known already."
        case_id = _case_id(body)
        waiters = self._waiters.get(case_id)
        if waiters is None:
            self._early.note(case_id)
            raise _Answer(404, "Nobody waits for this case here.")
        for mark in marks:
            self._handled.note(mark)
        for waiter in list(waiters):
            with suppress(RuntimeError):  # its loop is closed
                waiter.loop.call_soon_threadsafe(waiter.event.set)
        return "Thank you."

    def _is_here(self, scope: Mapping[str, Any]) -> bool:
        """Whether the path is ours: the URL's, or its end if a proxy has cut it, or where we are mounted."""
        root = str(scope.get("root_path", "")).rstrip("/")
        path = str(scope["path"]).removeprefix(root).rstrip("/")
        if not path:
            return bool(root) or not self._path
        return self._path.endswith(path)

    def _checked(self, body: bytes, headers: Mapping[str, str]) -> list[str]:
        """Verify the signature, and return the id by which a repeated callback is recognised."""
        for secret in self._secrets.values():
            try:
                verify_callback(body, headers.get(SIGNATURE_HEADER.lower()), secret)
            except InvalidSignature:
                continue
            marks = [hashlib.sha256(body).hexdigest()]
            if any(name in headers for name in _WEBHOOK_HEADERS) and secret.startswith("whsec_"):
                try:
                    marks.append(verify_webhook(body, headers, secret, now=self._clock.now()))
                except InvalidSignature as error:
                    logger.warning("a callback was refused: %s", error)
                    raise _Answer(401, "The signature is no good.") from None
            return marks
        logger.warning("a callback was refused: its signature is missing, or does not fit its body")
        raise _Answer(401, "The signature is no good.")


class _Recent:
    """The ids of the latest callbacks, a limited number of them."""

    def __init__(self) -> None:
        self._noted: OrderedDict[str, None] = OrderedDict()

    def note(self, text: str) -> None:
        self._noted[text] = None
        self._noted.move_to_end(text)
        if len(self._noted) > REMEMBERED:
            self._noted.popitem(last=False)

    def has(self, text: str) -> bool:
        return text in self._noted

    def forget(self, text: str) -> bool:
        """Add an id; returns whether it was known already."""
        return self._noted.pop(text, "") is None


async def _read(headers: Mapping[str, str], receive: Receive) -> bytes:
    announced = headers.get("content-length", "0")
    if not (announced.isascii() and announced.isdigit()) or len(announced) > 18:
        raise _Answer(400, "The Content-Length is not a number.")
    if int(announced) > MOST_BYTES:
        raise _Answer(413, "This is too long for a callback.")
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Answer(400, "The connection broke.")
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            raise _Answer(413, "This is too long for a callback.")
        if not message.get("more_body", False):
            return bytes(body)


def _case_id(body: bytes) -> str:
    """The case that has ended. Nothing else is read: the outcome is polled."""
    try:
        said: Any = from_json(body)
    except ValueError:
        raise _Answer(400, "This is not JSON.") from None
    facts = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    case_id = facts.get("case_id")
    if facts.get("event") not in FINAL_EVENTS or not isinstance(case_id, str) or not 0 < len(case_id) <= 1000:
        raise _Answer(400, "A callback has an event that ends a case, and a case_id.")
    return case_id


async def _respond(send: Send, status: int, said: str) -> None:
    body = said.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    if status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _live(receive: Receive, send: Send) -> None:
    """Served alone, there is nothing to start or to stop."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
