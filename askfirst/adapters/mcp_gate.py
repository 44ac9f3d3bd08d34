"""McpGate: the gate before the tools of an MCP server, for clients that know nothing of it.

Calls that the policy allows pass through untouched. A call that needs a person is answered in the way that its client
can wait: with a link to open (URL elicitation), with a task, or with an error that says that it waits. The decision
is in the store, so that any process of the gate picks it up when the call comes again.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol, cast

from cryptography.fernet import Fernet, InvalidToken

from askfirst.adapters.gated_call import Done, GatedCall, GatedTools, Start, Told
from askfirst.adapters.mcp_approvals import Approvals, key_of
from askfirst.adapters.mcp_messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Message,
    Refusal,
    ToolCall,
    as_object,
    dump,
    meta_of,
    noted,
    response,
    result_of,
    told,
)
from askfirst.agent.verdicts import not_run
from askfirst.digests import canonical_json
from askfirst.errors import GrantLost, HitlNoPendingRequest, InvalidMessage, Pending
from askfirst.gate.gate import Gate
from askfirst.gate.standing import CALL
from askfirst.ids import new_id
from askfirst.requests import StoredRequest

logger = logging.getLogger("askfirst.mcp")

HOLD_SECONDS = 20.0
"""How long a call is held for a person before its client is told that it waits."""
POLL_MILLISECONDS = 2_000
_ROUNDS = 8
"""How often a client that has opened the link is told to try again, before it is told that the call waits."""
_OURS = "askfirst."
_INPUT = "askfirst"
_DAY = 86_400_000

Link = Callable[[Pending], Awaitable[str | None]]


class UpstreamLost(Exception):
    """The server went away before it answered: nobody knows whether the call took effect."""


class Upstream(Protocol):
    """The server behind the gate, as one call of a client reaches it."""

    async def request(self, message: Message, raw: bytes | None = None) -> tuple[bytes, Message]:
        """Send a request, ``raw`` if it is as it came; returns the response as it came, and read.

        Raises `UpstreamLost`.
        """
        ...

    async def tool(self, name: str, meta: Message) -> Message | None:
        """The definition of a tool as the server gives it now; None if it lists none of this name."""
        ...


@dataclass(frozen=True, slots=True)
class _State:
    """What a client holds for the gate, sealed, between two rounds of one call."""

    base: str
    ordinal: int
    nonce: str
    rounds: int = 0
    upstream: str | None = None
    is_upstreams: bool = False


class McpGate:
    """Decides about the calls of MCP clients. ``server`` names the server: a toolset, to the policy.

    ``secret`` seals what clients hold; without one it holds until the process ends. ``hold`` is how many seconds a
    call is held for a person at first. ``link`` gives the address that clients are told, by default `Pending.link`.
    """

    def __init__(
        self,
        gate: Gate,
        server: str,
        *,
        secret: str | None = None,
        hold: float = HOLD_SECONDS,
        link: Link | None = None,
    ) -> None:
        self._gate = gate
        self._server = server
        self._tools = GatedTools.of(gate, "mcp", None)
        self._hold = hold
        self._link = link or _page
        key = secrets.token_bytes(32) if secret is None else _derived(secret)
        self._seal = Fernet(base64.urlsafe_b64encode(key))
        self._approvals = Approvals(gate)

    async def handle(self, message: Message, raw: bytes, upstream: Upstream, requester: str) -> bytes | None:
        """What a client's request is answered with; None if it goes to the server as it came.

        ``requester`` is who calls, as far as the gate knows: an approval counts for nobody else. Whatever fails
        here is an error to the client, and nothing reaches the server.
        """
        asked = message.get("id")
        try:
            if message.get("method") == "tools/call":
                return await self._called(ToolCall.of(message), raw, upstream, requester)
            return await self._task(message, upstream, requester)
        except Refusal as refusal:
            return dump(refusal.message)
        except InvalidMessage as error:
            return dump(
                Refusal(INVALID_PARAMS, f"the arguments cannot be shown to anybody: {error}", asked).message
            )
        except Exception:
            logger.exception("a call could not be put to the gate, so it was refused")
            sentence = "the gate could not decide about this call, so it did not run; its log says why"
            return dump(Refusal(INTERNAL_ERROR, sentence, asked).message)

    # One call.

    async def _called(self, call: ToolCall, raw: bytes, upstream: Upstream, requester: str) -> bytes | None:
        state = self._unsealed(call.params.get("requestState"))
        if state is None:
            probe = self._gated("", 0, call.name, call.args, None)
            decision = await self._gate.judge(probe.action)
            if decision.verdict == "deny":
                return self._told(call, not_run(call.name, decision.reason or "it is not allowed"))
            if decision.verdict == "allow" and not probe.action.requires_approval:
                return None
        return await self._asked(call, raw, upstream, requester, state)

    async def _asked(
        self, call: ToolCall, raw: bytes, upstream: Upstream, requester: str, state: _State | None
    ) -> bytes:
        """Put a call to a person, and run it once that is decided."""
        hold = self._hold
        while True:
            tool = await upstream.tool(call.name, meta_of(call.message))
            base = self._base(requester, call.name, call.args, tool)
            if state is None or state.base != base:  # another call, or another definition: it is asked anew
                nonce = new_id() if state is None else state.nonce
                rounds = 0 if state is None else state.rounds
                state = _State(base, await self._approvals.first(base), nonce, rounds)
            gated = self._gated(base, state.ordinal, call.name, call.args, tool)
            entered = await gated.enter()
            if isinstance(entered, Pending):
                question = entered.request.question_id
                if await self._gate.ledger.wait(gated.key, question, max(hold, 0.01)) is not None:
                    hold = 0.0
                    continue  # it is settled; the tool may be another by now
                return await self._waiting(call, entered, state)
            if isinstance(entered, Told):
                return self._told(call, entered.text)
            if isinstance(entered, Done):
                if entered.value["nonce"] != state.nonce:  # another call has spent this approval
                    state = replace(state, ordinal=await self._approvals.first(base))
                    continue
                return dump({**entered.value["response"], "id": call.id})
            return await self._run(call, raw, upstream, gated, entered, state)

    async def _run(
        self,
        call: ToolCall,
        raw: bytes | None,
        upstream: Upstream,
        gated: GatedCall,
        start: Start,
        state: _State,
    ) -> bytes:
        inputs: Any = call.params.get("inputResponses")
        if not state.is_upstreams:
            inputs = None
        is_as_it_came = "requestState" not in call.params and not inputs and start.args == call.args
        self._approvals.running.add(gated.key)
        try:
            back, answer = await upstream.request(
                call.to_upstream(start.args, state.upstream, inputs), raw if is_as_it_came else None
            )
        except UpstreamLost:
            await gated.abandon(start)
            lost = "the server went away, and nobody knows whether the call took effect; a person decides"
            return self._told(call, f"{call.name}: {lost} when it is called again.")
        except BaseException:
            await asyncio.shield(gated.abandon(start))
            raise
        finally:
            self._approvals.running.discard(gated.key)
        result = result_of(answer)
        if result.get("resultType") == "input_required":  # the server asks its client for something first
            await self._gate.pause(gated.key)
            wrapped = replace(state, upstream=result.get("requestState"), is_upstreams=True, rounds=0)
            return dump({**answer, "result": {**result, "requestState": self._sealed(wrapped)}})
        kept = {name: answer[name] for name in ("jsonrpc", "result", "error") if name in answer}
        if start.note is not None:
            kept = noted(kept, start.note)
        try:
            await gated.finish(start, {"nonce": state.nonce, "response": kept})
        except GrantLost:
            logger.error("%s ended after its grant was lost; its result is not kept", call.name)
        return back if start.note is None and raw is not None else dump({**kept, "id": call.id})

    # Ways to wait.

    async def _waiting(self, call: ToolCall, pending: Pending, state: _State) -> bytes:
        """Tell a client that a person has to decide, in the best way that it can wait."""
        link = await self._link(pending)
        where = f"at {link}" if link is not None else f"(case {pending.case})"
        if call.is_modern and call.can_open_links and link is not None and state.rounds < _ROUNDS:
            answer = as_object(call.params.get("inputResponses")).get(_INPUT)
            if (
                state.rounds == 0
                or not isinstance(answer, dict)
                or cast(Message, answer).get("action") == "accept"
            ):
                return self._elicited(call, link, state)
        elif call.is_modern and call.can_wait_for_tasks:
            return self._tasked(call, pending, state, f"A person decides {where}.")
        text = (
            f"{call.name} has not run yet: a person has to approve it first, {where}. "
            "Call it again with the same arguments later: it runs once it is approved."
        )
        return self._told(call, text)

    def _elicited(self, call: ToolCall, link: str, state: _State) -> bytes:
        result: Message = {
            "resultType": "input_required",
            "requestState": self._sealed(replace(state, rounds=state.rounds + 1)),
        }
        if state.rounds == 0:
            message = f"{call.name} needs your approval. Open the page, look at the call and decide there."
            params: Message = {"mode": "url", "message": message, "url": link}
            result["inputRequests"] = {_INPUT: {"method": "elicitation/create", "params": params}}
        return dump(response(call.id, result, is_modern=True))

    def _tasked(self, call: ToolCall, pending: Pending, state: _State, text: str) -> bytes:
        result = {"resultType": "task", **_task_fields(self._sealed(state), pending, "working", text)}
        return dump(response(call.id, result, is_modern=True))

    async def _task(self, message: Message, upstream: Upstream, requester: str) -> bytes | None:
        """Answer what a client asks about a task of the gate's; None for a task of the server's."""
        name: Any = as_object(message.get("params")).get("taskId")
        if not isinstance(name, str) or not name.startswith(_OURS):
            return None
        request_id = message.get("id")
        state = self._unsealed(name)
        key = "" if state is None else key_of(state.base, state.ordinal)
        stored = None if state is None else await self._gate.ledger.stored(key)
        asked = None if stored is None else stored.requests.get(CALL)
        shown = None if asked is None else asked.request.payload.gated_call
        if state is None or asked is None or shown is None or not self._is_of(state.base, requester):
            raise Refusal(INVALID_PARAMS, "the gate knows no such task: make the call again", request_id)
        if message.get("method") == "tasks/cancel":
            try:
                await self._gate.cancel(key, "the client cancelled its task")
            except HitlNoPendingRequest:
                logger.info("a task was cancelled after it was decided: %s", key)
        if message.get("method") != "tasks/get":
            return dump(response(request_id, {}, is_modern=True))
        meta = meta_of(message)
        inner = ToolCall.of(
            {
                "jsonrpc": "2.0",
                "id": new_id(),
                "method": "tools/call",
                "params": {"name": shown.tool_name, "arguments": shown.args, "_meta": meta},
            }
        )
        status, told_result = await self._task_state(inner, upstream, requester, state)
        fields = _task_fields(name, asked, status, "A person decides." if told_result is None else None)
        result = fields if told_result is None else {**fields, **told_result}
        return dump(response(request_id, result, is_modern=True))

    async def _task_state(
        self, call: ToolCall, upstream: Upstream, requester: str, state: _State
    ) -> tuple[str, Message | None]:
        """How a task stands; once it is approved, its call runs now."""
        tool = await upstream.tool(call.name, meta_of(call.message))
        if self._base(requester, call.name, call.args, tool) != state.base:
            changed = not_run(
                call.name, "the tool's definition changed since it was asked about: call it again"
            )
            return "completed", {"result": told(changed)}
        gated = self._gated(state.base, state.ordinal, call.name, call.args, tool)
        entered = await gated.enter()
        if isinstance(entered, Pending):
            return "working", None
        if isinstance(entered, Told):
            return "completed", {"result": told(entered.text)}
        if isinstance(entered, Done):
            if entered.value["nonce"] != state.nonce:
                spent = not_run(call.name, "another call has used this approval: call it again")
                return "completed", {"result": told(spent)}
            answer = cast(Message, entered.value["response"])
        else:
            answer = json.loads(await self._run(call, None, upstream, gated, entered, state))
        if "error" in answer:
            return "failed", {"error": answer["error"]}
        return "completed", {"result": result_of(answer)}

    # Keys: who asks, for which call of which tool as it is defined, and the how manieth time.

    def _gated(self, base: str, ordinal: int, name: str, args: Message, tool: Message | None) -> GatedCall:
        schema: Any = None if tool is None else tool.get("inputSchema")
        schema = cast(Message, schema) if isinstance(schema, dict) else None
        call = self._tools.call(name, args, thread=base, call_id=str(ordinal), schema=schema)
        return replace(call, action=replace(call.action, toolset=self._server))

    def _base(self, requester: str, name: str, args: Message, tool: Message | None) -> str:
        """What is the same for equal calls of one requester, while the tool's definition is the same."""
        whole = canonical_json({"server": self._server, "tool": name, "args": args, "definition": tool})
        return f"{_short(requester)}:{hashlib.sha256(whole).hexdigest()}"

    def _is_of(self, base: str, requester: str) -> bool:
        return hmac.compare_digest(base.partition(":")[0], _short(requester))

    # What clients hold.

    def _sealed(self, state: _State) -> str:
        whole = [state.base, state.ordinal, state.nonce, state.rounds, state.upstream, state.is_upstreams]
        return _OURS + self._seal.encrypt(json.dumps(whole).encode()).decode()

    def _unsealed(self, token: Any) -> _State | None:
        """The state in a token of the gate's; None for the server's, and for one of a former secret."""
        if not isinstance(token, str) or not token.startswith(_OURS):
            return None
        try:
            return _State(*json.loads(self._seal.decrypt(token.removeprefix(_OURS))))
        except InvalidToken:
            return None

    def _told(self, call: ToolCall, text: str) -> bytes:
        return dump(response(call.id, told(text), is_modern=call.is_modern))


async def _page(pending: Pending) -> str | None:
    return pending.link


def _derived(secret: str) -> bytes:
    return hmac.new(secret.encode(), b"askfirst mcp gate", hashlib.sha256).digest()


def _short(requester: str) -> str:
    return hashlib.sha256(requester.encode()).hexdigest()[:16]


def _task_fields(name: str, asked: Pending | StoredRequest, status: str, text: str | None) -> Message:
    created = _moment(asked.request.created_at)
    fields: Message = {
        "taskId": name,
        "status": status,
        "createdAt": created,
        "lastUpdatedAt": created if status == "working" else _moment(time.time()),
        "ttlMs": _DAY
        if asked.request.timeout_seconds is None
        else round(asked.request.timeout_seconds * 1000),
        "pollIntervalMs": POLL_MILLISECONDS,
    }
    return fields if text is None else {**fields, "statusMessage": text}


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
