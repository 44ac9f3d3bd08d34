"""The bodies of requests: how much is taken, and how JSON is read. Who sends one is known before that.

FastAPI would read and check a body before it looks at who sends it. So no route declares one: each finds out who
calls, and then reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from assent import limits
from assent.errors import InvalidReview
from assent.protocol.faults import faults_of
from assent.service.heavy import apart
from assent.service.json_size import depth_fault, has_more_values
from assent.service.problems import problem

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
_Model = TypeVar("_Model", bound=BaseModel)


class BodyLimit:
    """ASGI middleware that answers 413 to a body of more than ``most`` bytes, announced or not."""

    def __init__(self, app: App, *, most: int = limits.BODY_BYTES) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or len(announced) > 18 or int(announced) > self._most:
            await problem(413, "too_long", _too_long(self._most))(scope, receive, send)
            return
        read = 0

        async def counting() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise HTTPException(413, _too_long(self._most))
            return message

        await self._app(scope, counting, send)


async def read_bytes(request: Request, *, most: int = limits.BODY_BYTES) -> bytes:
    """The body, of up to ``most`` bytes; 413 for more. Call it when the caller is known to be allowed to send one."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise HTTPException(413, _too_long(most))
    except ClientDisconnect:
        raise HTTPException(400, "The connection ended before the body did.") from None
    return bytes(body)


async def read_json(request: Request, model: type[_Model], *, most: int = limits.BODY_BYTES) -> _Model | None:
    """The body as an object of JSON; None if there is none.

    415 for what is said to be something else, 400 for what is no JSON, and `InvalidReview` for what does not fit.
    """
    raw = await read_bytes(request, most=most)
    if not raw:
        return None
    if not is_json(request):
        said = media_type(request) or "not given"
        raise HTTPException(415, f"The body must be JSON, with Content-Type: application/json; it is {said}.")
    patterns = limits.BODY_BYTES if b"pattern" in raw else 0  # of a form; to compile them takes a while
    return await apart(len(raw) + patterns, parsed, raw, model)


async def needed_json(request: Request, model: type[_Model], *, most: int = limits.BODY_BYTES) -> _Model:
    """The same, where there must be a body: 400 if there is none."""
    read = await read_json(request, model, most=most)
    if read is None:
        raise HTTPException(400, "The body is empty; send an object of JSON.")
    return read


def parsed(raw: bytes, model: type[_Model]) -> _Model:
    """A body as an object; raises as `read_json` does."""
    data = decoded(raw)
    if not isinstance(data, dict):
        raise InvalidReview({"body": "must be an object of JSON"})
    if len(cast("dict[str, Any]", data)) > limits.OBJECT_FIELDS:
        raise InvalidReview({"body": f"must have at most {limits.OBJECT_FIELDS} fields"})
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidReview(faults_of(error, data)) from None


def decoded(raw: bytes) -> Any:
    """The JSON of a body: 400 if it is none, `InvalidReview` if it has too many values or they are too deep.

    How many values there are is counted before any is made.
    """
    if has_more_values(raw, limits.BODY_VALUES):
        raise InvalidReview({"body": f"must have at most {limits.BODY_VALUES} values"})
    try:
        data = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise HTTPException(400, f"The body is no JSON: {error}.") from None
    fault = depth_fault(data)
    if fault is not None:
        raise InvalidReview({"body": fault})
    return data


def is_json(request: Request) -> bool:
    """Whether a request says that its body is JSON."""
    kind = media_type(request)
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def media_type(request: Request) -> str:
    """What a request says its body is, without parameters; at most 100 characters that can be printed."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()[:100]
    return kind if kind.isprintable() else ""


def _too_long(most: int) -> str:
    return f"A request has at most {most} bytes."
