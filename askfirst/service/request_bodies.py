"""Request bodies, read within limits.

FastAPI would parse a body before the caller is authenticated. So no route declares a body: each route authenticates
its caller first and then reads the body.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askfirst import limits
from askfirst.errors import InvalidReview
from askfirst.protocol.wire import faults_of
from askfirst.service.answers import depth_fault, has_more_values
from askfirst.service.problems import problem
from askfirst.service.worker_threads import run_by_size

# The fields of a posted form. Decoding needs memory proportional to the body.


_PIECE = 65_536


def posted_fields(raw: bytes, *, most: int) -> dict[str, list[str]]:
    """The values of each field, including empty ones; raises ``ValueError`` if there are more than ``most``."""
    if raw.count(b"&") >= most:
        raise ValueError("too many fields")
    fields: dict[str, list[str]] = {}
    for pair in raw.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            fields.setdefault(_unquoted(name), []).append(_unquoted(value))
    return fields


def _unquoted(text: bytes) -> str:
    """A URL-decoded text. It is decoded in pieces, because decoding makes an object for every escape in a piece."""
    spaced = text.replace(b"+", b" ")
    pieces: list[bytes] = []
    at = 0
    while at < len(spaced):
        end = at + _PIECE
        escape = (
            spaced.rfind(b"%", end - 2, end) if end < len(spaced) else -1
        )  # a piece must not end within an escape
        end = end if escape < 0 else escape
        pieces.append(unquote_to_bytes(spaced[at:end]))
        at = end
    return b"".join(pieces).decode("utf-8", "replace")


_Model = TypeVar("_Model", bound=BaseModel)


class BodyLimit:
    """ASGI middleware that answers 413 to a body of more than ``most`` bytes, with or without Content-Length."""

    def __init__(self, app: ASGIApp, *, most: int = limits.BODY_BYTES) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
    """The body, of up to ``most`` bytes; 413 for more. Authenticate the caller first."""
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
    """The body as a JSON object; None if it is empty.

    415 for another content type, 400 for a body that is not JSON, and `InvalidReview` for JSON with faults.
    """
    raw = await read_bytes(request, most=most)
    if not raw:
        return None
    if not is_json(request):
        said = media_type(request) or "not given"
        raise HTTPException(415, f"The body must be JSON, with Content-Type: application/json; it is {said}.")
    patterns = limits.BODY_BYTES if b"pattern" in raw else 0  # the patterns of a form take time to compile
    return await run_by_size(len(raw) + patterns, parsed, raw, model)


async def needed_json(request: Request, model: type[_Model], *, most: int = limits.BODY_BYTES) -> _Model:
    """As `read_json`, but 400 for an empty body."""
    read = await read_json(request, model, most=most)
    if read is None:
        raise HTTPException(400, "The body is empty; send a JSON object.")
    return read


def parsed(raw: bytes, model: type[_Model]) -> _Model:
    """A JSON object as a model; raises as `read_json` does."""
    data = decoded(raw)
    if not isinstance(data, dict):
        raise InvalidReview({"body": "must be a JSON object"})
    if len(cast("dict[str, Any]", data)) > limits.OBJECT_FIELDS:
        raise InvalidReview({"body": f"must have at most {limits.OBJECT_FIELDS} fields"})
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidReview(faults_of(error, data)) from None


def decoded(raw: bytes) -> Any:
    """The JSON value of a body: 400 if it is not JSON, `InvalidReview` if it is too large or nested too deep.

    The values are counted before the body is parsed.
    """
    if has_more_values(raw, limits.BODY_VALUES):
        raise InvalidReview({"body": f"must have at most {limits.BODY_VALUES} values"})
    try:
        data = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise HTTPException(400, f"The body is not valid JSON: {error}.") from None
    fault = depth_fault(data)
    if fault is not None:
        raise InvalidReview({"body": fault})
    return data


def is_json(request: Request) -> bool:
    """Whether the content type of a request is JSON."""
    kind = media_type(request)
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def media_type(request: Request) -> str:
    """The media type of a request, without parameters; at most 100 printable characters."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()[:100]
    return kind if kind.isprintable() else ""


def _too_long(most: int) -> str:
    return f"The body must have at most {most} bytes."
