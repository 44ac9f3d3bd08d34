"""Providers for tests: local servers that speak two wire formats, and the rules that the real ones check.

`openai_complaints` and `anthropic_complaints` list what the provider would refuse in a request's body. `OpenAIServer`
and `AnthropicServer` refuse such a request, otherwise give the scripted replies in turn, and record the requests.
`openai_body` and `anthropic_body` return the body of a request without sending it.

The SDKs are imported inside functions: otherwise every process of a test run would load them to collect tests.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from askfirst.models.base import ModelRequest
from askfirst.models.pydantic_ai import PydanticAIModel

API_KEY = "test-key-0123456789"
OPENAI_MODEL = "gpt-4o"
ANTHROPIC_MODEL = "claude-sonnet-5"

Json = dict[str, Any]
Complaints = Iterator[str]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_TOOL_USE_ID = re.compile(r"[a-zA-Z0-9_-]+")


# OpenAI Chat Completions: the rules.


def openai_complaints(body: Json) -> list[str]:
    """The faults for which OpenAI would refuse the body of a Chat Completions request."""
    messages = body.get("messages")
    if not isinstance(body.get("model"), str):
        return ["model: is required"]
    if not isinstance(messages, list) or not messages:
        return ["messages: must be a list with at least one message"]
    return [*_openai_shapes(messages), *_openai_pairs(messages), *_openai_tools(body)]


def _openai_shapes(messages: list[Json]) -> Complaints:
    for index, message in enumerate(messages):
        at, role, content = f"messages[{index}]", message.get("role"), message.get("content")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            yield f"{at}.role: {role!r} is unknown"
        if role == "assistant":
            yield from _openai_assistant(at, message)
        elif isinstance(content, list):
            yield from _openai_parts(at, role, content)
        elif not isinstance(content, str):
            yield f"{at}.content: must be a string or a list of parts"


def _openai_parts(at: str, role: Any, content: list[Json]) -> Complaints:
    known = {"text", "image_url", "input_audio", "file"} if role == "user" else {"text"}
    if not content:
        yield f"{at}.content: must not be an empty list"
    for index, part in enumerate(content):
        kind = part.get("type")
        if kind not in known:
            yield f"{at}.content[{index}].type: {kind!r} is not allowed here"
        elif kind == "text" and not isinstance(part.get("text"), str):
            yield f"{at}.content[{index}].text: must be a string"
        elif kind == "image_url" and not isinstance(part.get("image_url", {}).get("url"), str):
            yield f"{at}.content[{index}].image_url.url: must be a string"


def _openai_assistant(at: str, message: Json) -> Complaints:
    calls = message.get("tool_calls")
    if message.get("content") is None and not calls:
        yield f"{at}: needs content or tool_calls"
    if calls is not None and not calls:
        yield f"{at}.tool_calls: must not be empty"
    for index, call in enumerate(calls or []):
        function = call.get("function", {})
        if call.get("type") != "function":
            yield f"{at}.tool_calls[{index}].type: must be 'function'"
        if not isinstance(call.get("id"), str) or not 0 < len(call["id"]) <= 40:
            yield f"{at}.tool_calls[{index}].id: must be a string of 1 to 40 characters"
        if not isinstance(function.get("name"), str) or not _NAME.fullmatch(function["name"]):
            yield f"{at}.tool_calls[{index}].function.name: {function.get('name')!r} is no function name"
        if not isinstance(function.get("arguments"), str):
            yield f"{at}.tool_calls[{index}].function.arguments: must be a string"


def _openai_pairs(messages: list[Json]) -> Complaints:
    """Every call is answered by the tool messages directly after it, and these answer nothing else."""
    unanswered: list[str] = []
    ended: list[Json] = [*messages, {"role": "end"}]
    for index, message in enumerate(ended):
        if message.get("role") == "tool":
            call = message.get("tool_call_id")
            if call in unanswered:
                unanswered.remove(call)
            else:
                yield f"messages[{index}]: a tool message must answer a preceding tool call, {call!r} is none"
            continue
        if unanswered:
            yield f"messages[{index}]: tool calls without a tool message behind them: {unanswered}"
        unanswered = [call.get("id") for call in message.get("tool_calls") or []]
        if len(set(unanswered)) != len(unanswered):
            yield f"messages[{index}].tool_calls: the same id twice"


def _openai_tools(body: Json) -> Complaints:
    for index, tool in enumerate(body.get("tools", [])):
        function = tool.get("function", {})
        if tool.get("type") != "function" or not _NAME.fullmatch(str(function.get("name"))):
            yield f"tools[{index}]: is no function with a valid name"
        if not isinstance(function.get("parameters", {}), dict):
            yield f"tools[{index}].function.parameters: must be an object"


# Anthropic Messages: the rules.


def anthropic_complaints(body: Json) -> list[str]:
    """The faults for which Anthropic would refuse the body of a Messages request."""
    messages = body.get("messages")
    if not isinstance(body.get("model"), str):
        return ["model: is required"]
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        return ["max_tokens: must be a positive integer"]
    if not isinstance(messages, list) or not messages:
        return ["messages: at least one message is required"]
    empty = [
        f"messages.{index}: must have content" for index, m in enumerate(messages) if not m.get("content")
    ]
    if empty:
        return empty
    turns = _merged(messages)
    return [
        *_anthropic_order(turns),
        *_anthropic_blocks(turns),
        *_anthropic_pairs(turns),
        *_anthropic_tools(body),
    ]


def _merged(messages: list[Json]) -> list[Json]:
    """The turns: adjacent messages of one role are one turn, and a string is one text block."""
    turns: list[Json] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if turns and turns[-1]["role"] == message.get("role"):
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": message.get("role"), "content": list(blocks)})
    return turns


def _anthropic_order(turns: list[Json]) -> Complaints:
    for index, turn in enumerate(turns):
        if turn["role"] not in ("user", "assistant"):
            yield f"messages.{index}.role: {turn['role']!r} is unknown"
    if turns[0]["role"] != "user":
        yield "messages: the first message must be the user's"
    if turns[-1]["role"] != "user":
        yield "messages: the final message must be the user's, this model takes no prefill"


def _anthropic_blocks(turns: list[Json]) -> Complaints:
    for index, turn in enumerate(turns):
        check = _user_block if turn["role"] == "user" else _assistant_block
        for position, block in enumerate(turn["content"]):
            yield from check(f"messages.{index}.content.{position}", block)
        if turn["role"] == "assistant" and turn["content"][-1].get("type") in (
            "thinking",
            "redacted_thinking",
        ):
            yield f"messages.{index}: the final block of an assistant message cannot be thinking"


def _user_block(at: str, block: Json) -> Complaints:
    kind = block.get("type")
    if kind == "tool_result":
        yield from _tool_result_block(at, block)
    else:
        yield from _input_block(at, block)


def _input_block(at: str, block: Json) -> Complaints:
    kind = block.get("type")
    if kind == "text":
        yield from _text_block(at, block)
    elif kind not in ("image", "document"):
        yield f"{at}.type: {kind!r} is not allowed here"
    elif block.get("source", {}).get("type") not in ("base64", "url", "text"):
        yield f"{at}.source: is required"


def _text_block(at: str, block: Json) -> Complaints:
    if not isinstance(block.get("text"), str) or not block["text"].strip():
        yield f"{at}.text: text content blocks must contain non-whitespace text"


def _tool_result_block(at: str, block: Json) -> Complaints:
    content = block.get("content", "")
    blocks: list[Json] = [] if isinstance(content, str) else content
    for index, inner in enumerate(blocks):
        yield from _input_block(f"{at}.content.{index}", inner)
        if block.get("is_error") and inner.get("type") != "text":
            yield f"{at}.content.{index}: all content must be text if is_error is true"


def _assistant_block(at: str, block: Json) -> Complaints:
    kind = block.get("type")
    if kind == "text":
        yield from _text_block(at, block)
    elif kind == "thinking":
        if not isinstance(block.get("thinking"), str) or not block.get("signature"):
            yield f"{at}: thinking needs its signature"
    elif kind == "redacted_thinking":
        if not block.get("data"):
            yield f"{at}.data: is required"
    elif kind == "tool_use":
        yield from _tool_use_block(at, block)
    else:
        yield f"{at}.type: {kind!r} is not allowed here"


def _tool_use_block(at: str, block: Json) -> Complaints:
    if not _TOOL_USE_ID.fullmatch(str(block.get("id", ""))):
        yield f"{at}.id: {block.get('id')!r} should match {_TOOL_USE_ID.pattern}"
    if not _ANTHROPIC_NAME.fullmatch(str(block.get("name", ""))):
        yield f"{at}.name: {block.get('name')!r} is no tool name"
    if not isinstance(block.get("input"), dict):
        yield f"{at}.input: must be an object"


def _anthropic_pairs(turns: list[Json]) -> Complaints:
    """Every tool_use has its tool_result at the start of the next turn, and every tool_result its tool_use."""
    seen: set[str] = set()
    asked: list[str] = []
    ended: list[Json] = [*turns, {"role": "end", "content": []}]
    for index, turn in enumerate(ended):
        answered = [
            block.get("tool_use_id") for block in turn["content"] if block.get("type") == "tool_result"
        ]
        yield from (
            f"messages.{index}: no tool_result for tool_use {call}" for call in asked if call not in answered
        )
        yield from (
            f"messages.{index}: no tool_use for tool_result {call}" for call in answered if call not in asked
        )
        if len(set(answered)) != len(answered):
            yield f"messages.{index}: each tool_use must have a single tool_result"
        kinds = [block.get("type") for block in turn["content"]]
        if kinds[: len(answered)] != ["tool_result"] * len(answered):
            yield f"messages.{index}: tool_result blocks must come first"
        asked = [block.get("id", "") for block in turn["content"] if block.get("type") == "tool_use"]
        if len(set(asked)) != len(asked) or seen.intersection(asked):
            yield f"messages.{index}: tool_use ids must be unique"
        seen.update(asked)


def _anthropic_tools(body: Json) -> Complaints:
    tools = body.get("tools", [])
    if len({tool.get("name") for tool in tools}) != len(tools):
        yield "tools: tool names must be unique"
    for index, tool in enumerate(tools):
        if not _ANTHROPIC_NAME.fullmatch(str(tool.get("name"))):
            yield f"tools.{index}.name: {tool.get('name')!r} is no tool name"
        if tool.get("input_schema", {}).get("type") != "object":
            yield f"tools.{index}.input_schema.type: must be 'object'"


# Replies.


@dataclass(frozen=True)
class Reply:
    """What a server answers: ``events`` as a stream, or ``body`` as JSON.

    After the events the stream ends, unless ``then`` says that the connection is cut in mid-stream
    (``"cut"``) or stays open until the client leaves (``"hang"``).
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: Json | None = None
    events: tuple[str, ...] = ()
    then: str = "end"


def openai_error(status: int, message: str = "no", code: str | None = None, **headers: str) -> Reply:
    """An error in OpenAI's format; underscores in header names become dashes."""
    error = {"message": message, "type": "an_error", "param": None, "code": code}
    return Reply(status, {k.replace("_", "-"): v for k, v in headers.items()}, {"error": error})


def anthropic_error(status: int, message: str = "no", kind: str = "api_error", **headers: str) -> Reply:
    """An error in Anthropic's format; underscores in header names become dashes."""
    error = {"type": "error", "error": {"type": kind, "message": message}}
    return Reply(status, {k.replace("_", "-"): v for k, v in headers.items()}, error)


def openai_text(*pieces: str) -> list[Json]:
    """Deltas of a text."""
    return [{"content": piece} for piece in pieces]


def openai_call(index: int, id: str, name: str, *pieces: str) -> list[Json]:
    """Deltas of a tool call, its arguments in pieces."""
    first = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    rest = [{"index": index, "function": {"arguments": piece}} for piece in pieces]
    return [{"tool_calls": [call]} for call in (first, *rest)]


def openai_reply(
    *deltas: Sequence[Json], finish: str | None = "stop", usage: Json | None = None, then: str = "end"
) -> Reply:
    """A streamed answer. One that is cut, hangs or has no ``finish`` ends with its last delta."""
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for said in deltas for delta in said]
    chunks = [_openai_chunk([choice]) for choice in choices]
    if then == "end":
        if finish is not None:
            chunks.append(_openai_chunk([{"index": 0, "delta": {}, "finish_reason": finish}]))
        chunks.append(
            _openai_chunk([], usage or {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5})
        )
    frames = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return Reply(events=(*frames, "data: [DONE]\n\n") if then == "end" else tuple(frames), then=then)


def _openai_chunk(choices: list[Json], usage: Json | None = None) -> Json:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": OPENAI_MODEL}
    return {**head, "choices": choices, "usage": usage}


def anthropic_text(*pieces: str) -> list[Json]:
    """A block of text: its start, and its deltas."""
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return [{"type": "text", "text": ""}, *deltas]


def anthropic_thinking(*pieces: str, signature: str) -> list[Json]:
    """A block of thinking: its start, and its deltas, the signature last."""
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    start = {"type": "thinking", "thinking": "", "signature": ""}
    return [start, *deltas, {"type": "signature_delta", "signature": signature}]


def anthropic_call(id: str, name: str, *pieces: str) -> list[Json]:
    """A block that calls a tool: its start, and its arguments in pieces."""
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return [{"type": "tool_use", "id": id, "name": name, "input": {}}, *deltas]


def anthropic_reply(
    *blocks: Sequence[Json], stop: str = "end_turn", usage: Json | None = None, then: str = "end"
) -> Reply:
    """A streamed answer. One that is cut, hangs or breaks off (``"break"``) ends with its last delta."""
    counted = {"input_tokens": 3, "output_tokens": 1, **(usage or {})}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": ANTHROPIC_MODEL, "content": []}
    message = {**head, "stop_reason": None, "stop_sequence": None, "usage": counted}
    events: list[Json] = [{"type": "message_start", "message": message}]
    for index, (start, *deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    if then == "end":
        delta = {"stop_reason": stop, "stop_sequence": None}
        output = {"output_tokens": counted["output_tokens"]}
        events += [{"type": "message_delta", "delta": delta, "usage": output}, {"type": "message_stop"}]
    frames = tuple(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Reply(events=frames, then="end" if then == "break" else then)


# Servers.


class WireServer:
    """An HTTP server on this event loop.

    ``requests`` has the bodies that it received, ``connections`` is the number of connections, and ``left`` is set
    when a client disconnects while a reply hangs.
    """

    path: str
    complaints: Callable[[Json], list[str]]
    refuse: Callable[[int, str], Reply]

    def __init__(self, *replies: Reply, port: int = 0) -> None:
        self.replies = list(replies)
        self.port = port
        self.connections = 0
        self.requests: list[Json] = []
        self.left = asyncio.Event()

    async def __aenter__(self) -> WireServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while not reader.at_eof() and (head := await _head(reader)):
                path, body = await _body(reader, head)
                await self._write(self._answer(path, body), reader, writer)
        finally:
            writer.close()

    def _answer(self, path: str, body: Json) -> Reply:
        if path.partition("?")[0] != self.path:
            return type(self).refuse(404, f"no such path: {path}")
        self.requests.append(body)
        complaints = type(self).complaints(body)
        if complaints:
            return type(self).refuse(400, "; ".join(complaints))
        if not self.replies:
            return type(self).refuse(418, "the test's script has no more replies")
        return self.replies.pop(0)

    async def _write(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = reply.body is None
        kind = "text/event-stream" if stream else "application/json"
        data = b"" if stream else json.dumps(reply.body).encode()
        length = {"transfer-encoding": "chunked"} if stream else {"content-length": str(len(data))}
        headers = {"content-type": kind, **length, **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} x", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        for event in reply.events:
            chunk = event.encode()
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
        if reply.then == "hang":
            await reader.read()  # the client sends nothing more: this returns when it disconnects
            self.left.set()
        elif reply.then == "cut":
            writer.close()
        elif stream:
            writer.write(b"0\r\n\r\n")


async def _head(reader: asyncio.StreamReader) -> str:
    """The next request's head, or an empty text if the client has disconnected."""
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return ""


async def _body(reader: asyncio.StreamReader, head: str) -> tuple[str, Json]:
    length = re.search(r"(?i)^content-length: *(\d+)", head, re.MULTILINE)
    body = await reader.readexactly(int(length[1])) if length else b"{}"
    return head.split(" ", 2)[1], json.loads(body)


def _refuse_openai(status: int, message: str) -> Reply:
    return openai_error(status, message)


def _refuse_anthropic(status: int, message: str) -> Reply:
    return anthropic_error(status, message, "invalid_request_error")


class OpenAIServer(WireServer):
    """Speaks OpenAI's Chat Completions."""

    path = "/v1/chat/completions"
    complaints = staticmethod(openai_complaints)
    refuse = staticmethod(_refuse_openai)


class AnthropicServer(WireServer):
    """Speaks Anthropic's Messages."""

    path = "/v1/messages"
    complaints = staticmethod(anthropic_complaints)
    refuse = staticmethod(_refuse_anthropic)


# Models that ask the servers, through the real SDKs.


def openai_model(server: WireServer, *, attempts: int = 5) -> PydanticAIModel:
    """A model that asks an `OpenAIServer`."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key=API_KEY)
    return PydanticAIModel(OpenAIChatModel(OPENAI_MODEL, provider=provider), attempts=attempts)


def anthropic_model(server: WireServer, *, attempts: int = 5) -> PydanticAIModel:
    """A model that asks an `AnthropicServer`."""
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    provider = AnthropicProvider(base_url=server.url, api_key=API_KEY)
    return PydanticAIModel(AnthropicModel(ANTHROPIC_MODEL, provider=provider), attempts=attempts)


async def openai_body(request: ModelRequest) -> Json:
    """The body that OpenAI would get for a request. No connection is made."""
    import openai
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with _Recorder(openai_reply(openai_text("ok"))) as (client, bodies):
        sdk = openai.AsyncOpenAI(api_key=API_KEY, http_client=client)
        model = OpenAIChatModel(OPENAI_MODEL, provider=OpenAIProvider(openai_client=sdk))
        await _finish(PydanticAIModel(model, attempts=1), request)
    return bodies[0]


async def anthropic_body(request: ModelRequest) -> Json:
    """The body that Anthropic would get for a request. No connection is made."""
    import anthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    async with _Recorder(anthropic_reply(anthropic_text("ok"))) as (client, bodies):
        sdk = anthropic.AsyncAnthropic(api_key=API_KEY, http_client=client)
        model = AnthropicModel(ANTHROPIC_MODEL, provider=AnthropicProvider(anthropic_client=sdk))
        await _finish(PydanticAIModel(model, attempts=1), request)
    return bodies[0]


class _Recorder:
    """An HTTP client that records the bodies of requests, and answers every one with the same reply."""

    def __init__(self, reply: Reply) -> None:
        self._reply = "".join(reply.events)
        self._bodies: list[Json] = []

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        self._bodies.append(json.loads(request.content))
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=self._reply)

    async def __aenter__(self) -> tuple[httpx2.AsyncClient, list[Json]]:
        self._client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._handle))
        return self._client, self._bodies

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()


async def _finish(model: PydanticAIModel, request: ModelRequest) -> None:
    async for _ in model.stream(request):
        pass
