"""Messages of MCP as the gate reads and writes them: JSON-RPC, read strictly, so that every server reads the same."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

Message = dict[str, Any]
"""A message, or an object in one."""
VERSION = "io.modelcontextprotocol/protocolVersion"
"""In ``_meta`` of each request since MCP 2026-07-28, which has no session."""
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TASKS = "io.modelcontextprotocol/tasks"
"""The extension for tasks, SEP-2663."""

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32602, -32603
_MEMBERS = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_PARAMS = frozenset({"name", "arguments", "_meta", "requestState", "inputResponses", "task", "taskId"})
_BREAKS = ("\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""What some programs end a line at, beside the line feed."""


class Refusal(Exception):
    """A message that is not passed on, and the JSON-RPC error that says why."""

    def __init__(self, code: int, sentence: str, id: Any = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.id = id

    @property
    def message(self) -> Message:
        """The response to whoever sent it."""
        return {"jsonrpc": "2.0", "id": self.id, "error": {"code": self.code, "message": str(self)}}


def read(raw: bytes) -> Message:
    """A client's message. Raises `Refusal` for one that two programs might read differently.

    A name that comes twice in an object, or in a second spelling (``Method``), is read by some programs as the
    first, by others as the last. Such a message could show the gate one call and the server another.
    """
    try:
        value: Any = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_number
        )
    except Refusal:
        raise
    except (ValueError, RecursionError):
        raise Refusal(PARSE_ERROR, "this is no JSON in UTF-8 that can be read") from None
    if not isinstance(value, dict):
        raise Refusal(INVALID_REQUEST, "a message is one object; the gate takes no batches")
    message = cast(Message, value)
    given = message.get("id")
    request_id = given if isinstance(given, str | int) else None
    if strange := set(message) - _MEMBERS:
        raise Refusal(INVALID_REQUEST, f"a message has no {sorted(strange)[0]!r}", request_id)
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
    raise Refusal(PARSE_ERROR, f"{text} is no JSON")


def _check_spelling(params: Message, id: Any) -> None:
    known = {name.lower(): name for name in _PARAMS}
    for name in params:
        if known.get(name.lower(), name) != name:
            raise Refusal(INVALID_PARAMS, f"the parameter {name!r} is spelt {known[name.lower()]!r}", id)
    arguments = params.get("arguments")
    if isinstance(arguments, dict):
        names = [name.casefold() for name in cast(Message, arguments)]
        if len(set(names)) != len(names):
            raise Refusal(INVALID_PARAMS, "two arguments differ in upper and lower case alone", id)


def line_of(raw: bytes, message: Message) -> bytes:
    """A message as one line for a server: as it came, unless some programs would see several lines in it."""
    line = raw.rstrip(b"\r\n")
    text = line.decode("utf-8")
    return dump(message) if any(each in text for each in _BREAKS) else line


def dump(message: Message) -> bytes:
    """A message of the gate's own."""
    return json.dumps(message, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A ``tools/call`` of a client, and what this client can do while a person is asked."""

    message: Message
    name: str
    args: Message
    is_modern: bool
    can_open_links: bool
    can_wait_for_tasks: bool

    @classmethod
    def of(cls, message: Message) -> ToolCall:
        """Read one; raises `Refusal` for parameters that are none of a call."""
        params = as_object(message.get("params"))
        request_id = message.get("id")
        if not isinstance(request_id, str | int) or isinstance(request_id, bool):
            raise Refusal(INVALID_REQUEST, "a call needs an id that is text or a whole number")
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
        """The same call with these arguments, for the server, with what only it understands."""
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
    """A response of the gate's own; since MCP 2026-07-28 a result says of what kind it is."""
    if is_modern and "resultType" not in result:
        result = {"resultType": "complete", **result}
    return {"jsonrpc": "2.0", "id": id, "result": result}


def told(text: str) -> Message:
    """A result that says why there is none.

    It is an error, because clients check what is no error against the tool's output schema.
    """
    return {"content": [{"type": "text", "text": text}], "isError": True}


def noted(message: Message, note: str) -> Message:
    """A response with a note before the content of its result."""
    result = result_of(message)
    content: Any = result.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "result": {**result, "content": [{"type": "text", "text": note}, *content]}}
