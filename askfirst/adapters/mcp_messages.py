"""Messages of MCP (JSON-RPC) as the gate reads and writes them. It refuses messages that servers may read
differently."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

Message = dict[str, Any]
"""A message, or an object in one."""
VERSION = "io.modelcontextprotocol/protocolVersion"
"""The field in ``_meta`` of each request since MCP 2026-07-28, which has no sessions."""
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TASKS = "io.modelcontextprotocol/tasks"
"""The extension for tasks, SEP-2663."""

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32602, -32603
_MEMBERS = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_PARAMS = frozenset({"name", "arguments", "_meta", "requestState", "inputResponses", "task", "taskId"})
_BREAKS = ("\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""Characters besides the line feed at which some programs end a line."""


class Refusal(Exception):
    """A message that is not forwarded, and the JSON-RPC error that says why."""

    def __init__(self, code: int, sentence: str, id: Any = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.id = id

    @property
    def message(self) -> Message:
        """The JSON-RPC error response for the client."""
        return {"jsonrpc": "2.0", "id": self.id, "error": {"code": self.code, "message": str(self)}}


def read(raw: bytes) -> Message:
    """Parse a client's message. Raises `Refusal` for a message that two parsers might read differently.

    If an object has a name twice, or a name in another spelling (``Method``), some parsers take the first value and
    others the last. Such a message could show the gate one call and the server another.
    """
    try:
        value: Any = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_number
        )
    except Refusal:
        raise
    except (ValueError, RecursionError):
        raise Refusal(PARSE_ERROR, "this is not valid JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise Refusal(INVALID_REQUEST, "a message is one object; the gate takes no batches")
    message = cast(Message, value)
    given = message.get("id")
    request_id = given if isinstance(given, str | int) else None
    if strange := set(message) - _MEMBERS:
        raise Refusal(INVALID_REQUEST, f"{sorted(strange)[0]!r} is not a field of a message", request_id)
    params = message.get("params")
    if isinstance(params, dict):
        _check_spelling(cast(Message, params), request_id)
    return message


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refusal(PARSE_ERROR, "an object of this message has a name twice")
    return found


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Refusal(PARSE_ERROR, "this message has a number that is too large")
    return value


def _no_number(text: str) -> float:
    raise Refusal(PARSE_ERROR, f"{text} is not valid JSON")


def _check_spelling(params: Message, id: Any) -> None:
    known = {name.lower(): name for name in _PARAMS}
    for name in params:
        if known.get(name.lower(), name) != name:
            raise Refusal(
                INVALID_PARAMS, f"the parameter {name!r} has to be spelled {known[name.lower()]!r}", id
            )
    arguments = params.get("arguments")
    if isinstance(arguments, dict):
        names = [name.casefold() for name in cast(Message, arguments)]
        if len(set(names)) != len(names):
            raise Refusal(INVALID_PARAMS, "two names of arguments differ only in upper and lower case", id)


def line_of(raw: bytes, message: Message) -> bytes:
    """A message as one line for a server: its original bytes, unless some programs would read them as several
    lines."""
    line = raw.rstrip(b"\r\n")
    text = line.decode("utf-8")
    return dump(message) if any(each in text for each in _BREAKS) else line


def dump(message: Message) -> bytes:
    """A message as JSON."""
    return json.dumps(message, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A ``tools/call`` of a client, and how this client can wait while a person is asked."""

    message: Message
    name: str
    args: Message
    is_modern: bool
    can_open_links: bool
    can_wait_for_tasks: bool

    @classmethod
    def of(cls, message: Message) -> ToolCall:
        """Read a call; raises `Refusal` for an id or parameters that are not those of a call."""
        params = as_object(message.get("params"))
        request_id = message.get("id")
        if not isinstance(request_id, str | int) or isinstance(request_id, bool):
            raise Refusal(INVALID_REQUEST, "a call needs an id: a text or a whole number")
        name: Any = params.get("name")
        args: Any = params.get("arguments")
        args = {} if args is None else args
        if not isinstance(name, str) or not name or not isinstance(args, dict):
            raise Refusal(INVALID_PARAMS, "a call needs a name, and arguments that are an object", request_id)
        meta = meta_of(message)
        able = as_object(meta.get(CAPABILITIES))
        return cls(
            message,
            name,
            cast(Message, args),
            VERSION in meta,
            isinstance(as_object(able.get("elicitation")).get("url"), dict),
            isinstance(as_object(able.get("extensions")).get(TASKS), dict),
        )

    @property
    def id(self) -> Any:
        """The id of the request."""
        return self.message["id"]

    @property
    def params(self) -> Message:
        """The parameters of the request."""
        return self.message["params"]

    def to_upstream(self, args: Message, state: str | None, inputs: Any) -> Message:
        """The call for the server: with these arguments, the server's own ``state``, and the ``inputs`` for it."""
        own = ("arguments", "requestState", "inputResponses")
        params = {name: value for name, value in self.params.items() if name not in own}
        params["arguments"] = args
        if state is not None:
            params["requestState"] = state
        if inputs:
            params["inputResponses"] = inputs
        return {**self.message, "params": params}


def meta_of(message: Message) -> Message:
    """The ``_meta`` of a request."""
    return as_object(as_object(message.get("params")).get("_meta"))


def as_object(value: Any) -> Message:
    """The value if it is an object, else an empty one."""
    return cast(Message, value) if isinstance(value, dict) else {}


def result_of(message: Message) -> Message:
    """The result of a response; empty for an error."""
    return as_object(message.get("result"))


def response(id: Any, result: Message, *, is_modern: bool) -> Message:
    """A response made by the gate; since MCP 2026-07-28 a result has a ``resultType``."""
    if is_modern and "resultType" not in result:
        result = {"resultType": "complete", **result}
    return {"jsonrpc": "2.0", "id": id, "result": result}


def text_result(text: str) -> Message:
    """A result with a text, for a call that has no result.

    The result is marked as an error, because clients check other results against the tool's output schema.
    """
    return {"content": [{"type": "text", "text": text}], "isError": True}


def with_note(message: Message, note: str) -> Message:
    """A response with a note before the content of its result."""
    result = result_of(message)
    content: Any = result.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "result": {**result, "content": [{"type": "text", "text": note}, *content]}}
