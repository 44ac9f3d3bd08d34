"""Tasks (MCP's extension SEP-2663) for calls that wait for a person: the client polls, and the call runs meanwhile.

A task's id is the encrypted state of its call. So the gate stores nothing for a task, and any process answers a poll.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from datetime import UTC, datetime
from typing import Any, cast

from askfirst.adapters.gated_call import Done, GatedCall, NotRun, Start
from askfirst.adapters.mcp_approvals import key_of
from askfirst.adapters.mcp_calls import McpCalls
from askfirst.adapters.mcp_messages import (
    INVALID_PARAMS,
    Message,
    Refusal,
    ToolCall,
    as_object,
    dump,
    meta_of,
    response,
    result_of,
    text_result,
)
from askfirst.adapters.mcp_state import OURS, CallState, StateCipher
from askfirst.adapters.mcp_upstream import Upstream
from askfirst.agent.verdicts import not_run
from askfirst.clock import DAY
from askfirst.errors import HitlNoPendingRequest, Pending
from askfirst.gate.key_state import CALL
from askfirst.ids import new_id
from askfirst.requests import StoredRequest

logger = logging.getLogger("askfirst.mcp")

POLL_MILLISECONDS = 2_000


class McpTasks:
    """Answers requests of clients about the gate's tasks."""

    def __init__(self, calls: McpCalls, cipher: StateCipher) -> None:
        self._calls = calls
        self._cipher = cipher
        self._bodies: dict[str, asyncio.Task[bytes]] = {}
        """Calls that run in this process, by key. They continue after the poll that started them has ended."""

    def opened(self, call: ToolCall, pending: Pending, state: CallState, text: str) -> bytes:
        """The response that turns a call into a task."""
        result = {"resultType": "task", **_fields(self._cipher.encrypt(state), pending, "working", text)}
        return dump(response(call.id, result, is_modern=True))

    async def answer(self, message: Message, upstream: Upstream, requester: str) -> bytes | None:
        """Answer a ``tasks/`` request about a task of the gate; None for a task of the server."""
        name: Any = as_object(message.get("params")).get("taskId")
        if not isinstance(name, str) or not name.startswith(OURS):
            return None
        request_id = message.get("id")
        state = self._cipher.decrypt(name)
        key = "" if state is None else key_of(state.base, state.ordinal)
        stored = None if state is None else await self._calls.gate.ledger.stored(key)
        asked = None if stored is None else stored.requests.get(CALL)
        shown = None if asked is None else asked.request.payload.gated_call
        if state is None or asked is None or shown is None or not self._calls.is_of(state.base, requester):
            raise Refusal(INVALID_PARAMS, "the gate has no such task: make the call again", request_id)
        if message.get("method") == "tasks/cancel":
            try:
                await self._calls.gate.cancel(key, "the client cancelled its task")
            except HitlNoPendingRequest:
                logger.info("a task was cancelled after it was decided: %s", key)
        if message.get("method") != "tasks/get":
            return dump(response(request_id, {}, is_modern=True))
        params = {"name": shown.tool_name, "arguments": shown.args, "_meta": meta_of(message)}
        call = ToolCall.of({"jsonrpc": "2.0", "id": new_id(), "method": "tools/call", "params": params})
        status, ended = await self._state(call, upstream, requester, state)
        fields = _fields(name, asked, status, "It waits for a person, or it runs." if ended is None else None)
        return dump(response(request_id, {**fields, **(ended or {})}, is_modern=True))

    async def _state(
        self, call: ToolCall, upstream: Upstream, requester: str, state: CallState
    ) -> tuple[str, Message | None]:
        """The status of a task, and its result once it has ended. Begins the call if it was approved meanwhile."""
        key = key_of(state.base, state.ordinal)
        if key not in self._bodies:
            tool = await upstream.tool(call.name, meta_of(call.message))
            if self._calls.base(requester, call.name, call.args, tool) != state.base:
                changed = "the tool's definition changed since a person was asked: call it again"
                return "completed", {"result": text_result(not_run(call.name, changed))}
            gated = self._calls.gated(state.base, state.ordinal, call.name, call.args, tool)
            entered = await gated.enter()
            if isinstance(entered, Pending):
                return "working", None
            if isinstance(entered, NotRun):
                return "completed", {"result": text_result(entered.text)}
            if isinstance(entered, Done):
                if entered.value["nonce"] != state.nonce:
                    spent = "another call has used this approval: call it again"
                    return "completed", {"result": text_result(not_run(call.name, spent))}
                return _ended(cast(Message, entered.value["response"]))
            self._begin(call, upstream, gated, entered, state)
        body = self._bodies[key]
        await asyncio.wait({body}, timeout=POLL_MILLISECONDS / 1000)
        return _ended(json.loads(body.result())) if body.done() else ("working", None)

    def _begin(
        self, call: ToolCall, upstream: Upstream, gated: GatedCall, start: Start, state: CallState
    ) -> None:
        body = asyncio.create_task(self._calls.run(call, None, upstream, gated, start, state))
        self._bodies[gated.key] = body
        body.add_done_callback(lambda _: self._bodies.pop(gated.key, None))

    async def aclose(self) -> None:
        """Cancel the calls that are running: they are in doubt from now on."""
        for body in (bodies := list(self._bodies.values())):
            body.cancel()
        await asyncio.gather(*bodies, return_exceptions=True)


def _ended(answer: Message) -> tuple[str, Message]:
    if "error" in answer:
        return "failed", {"error": answer["error"]}
    result = result_of(answer)
    if result.get("resultType") == "input_required":
        result = text_result(
            "The server asks for input that a task cannot pass on. The call is approved: make it again."
        )
    return "completed", {"result": result}


def _fields(name: str, asked: Pending | StoredRequest, status: str, text: str | None) -> Message:
    created, seconds = _moment(asked.request.created_at), asked.request.timeout_seconds
    fields: Message = {
        "taskId": name,
        "status": status,
        "createdAt": created,
        "lastUpdatedAt": created if status == "working" else _moment(time.time()),
        "ttlMs": DAY if seconds is None else round(seconds * 1000),
        "pollIntervalMs": POLL_MILLISECONDS,
    }
    return fields if text is None else {**fields, "statusMessage": text}


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
