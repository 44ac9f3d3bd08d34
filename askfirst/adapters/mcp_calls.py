"""Calls of an MCP server's tools at the gate: their keys, and how an approved call is run."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from dataclasses import replace
from typing import Any, cast

from askfirst.adapters.gated_call import GatedCall, GatedTools, Start
from askfirst.adapters.mcp_approvals import Approvals
from askfirst.adapters.mcp_messages import (
    Message,
    ToolCall,
    dump,
    response,
    result_of,
    text_result,
    with_note,
)
from askfirst.adapters.mcp_state import CallState, StateCipher
from askfirst.adapters.mcp_upstream import Upstream, UpstreamLost, UpstreamRefused
from askfirst.digests import canonical_json
from askfirst.errors import GrantLost
from askfirst.gate.gate import Gate

logger = logging.getLogger("askfirst.mcp")


class McpCalls:
    """The calls of one server's tools. ``server`` is its name, which is the toolset in the policy."""

    def __init__(self, gate: Gate, server: str, cipher: StateCipher) -> None:
        self.gate = gate
        self.approvals = Approvals(gate)
        self._server = server
        self._cipher = cipher
        self._tools = GatedTools.of(gate, "mcp", None)

    # A key is made of the requester, the tool's definition, the arguments, and an ordinal for equal calls.

    def gated(self, base: str, ordinal: int, name: str, args: Message, tool: Message | None) -> GatedCall:
        """A call at the gate; ``tool`` is the tool's definition."""
        schema: Any = None if tool is None else tool.get("inputSchema")
        schema = cast(Message, schema) if isinstance(schema, dict) else None
        call = self._tools.call(name, args, thread=base, call_id=str(ordinal), schema=schema)
        return replace(call, action=replace(call.action, toolset=self._server))

    def base(self, requester: str, name: str, args: Message, tool: Message | None) -> str:
        """The base of a call's key: equal for equal calls of one requester, while the tool's definition stays."""
        whole = canonical_json({"server": self._server, "tool": name, "args": args, "definition": tool})
        return f"{_short(requester)}:{hashlib.sha256(whole).hexdigest()}"

    def is_of(self, base: str, requester: str) -> bool:
        """Whether the base of a key belongs to a requester."""
        return hmac.compare_digest(base.partition(":")[0], _short(requester))

    # The body.

    async def run(
        self,
        call: ToolCall,
        raw: bytes | None,
        upstream: Upstream,
        gated: GatedCall,
        start: Start,
        state: CallState,
    ) -> bytes:
        """Send an approved call to the server, once, and store the response; returns the response for the client.

        If the connection to the server ends before it answers, the call is in doubt. Raises `UpstreamRefused`.
        """
        inputs: Any = call.params.get("inputResponses") if state.is_for_upstream else None
        is_unchanged = "requestState" not in call.params and not inputs and start.args == call.args
        sent = call.to_upstream(start.args, state.upstream, inputs)
        self.approvals.running.add(gated.key)
        try:
            back, answer = await upstream.request(sent, raw if is_unchanged else None)
        except UpstreamLost:
            await gated.abandon(start)
            lost = "the connection ended, and it is unknown whether the call took effect; a person decides"
            return text_response(call, f"{call.name}: {lost} when it is called again.")
        except UpstreamRefused:
            await self.gate.pause(gated.key)  # the approval is not spent
            raise
        except BaseException:
            await asyncio.shield(gated.abandon(start))
            raise
        finally:
            self.approvals.running.discard(gated.key)
        result = result_of(answer)
        if result.get("resultType") == "input_required":  # the server needs input from its client first
            await self.gate.pause(gated.key)
            wrapped = replace(state, upstream=result.get("requestState"), is_for_upstream=True, rounds=0)
            return dump({**answer, "result": {**result, "requestState": self._cipher.encrypt(wrapped)}})
        kept = {name: answer[name] for name in ("jsonrpc", "result", "error") if name in answer}
        if start.note is not None:
            kept = with_note(kept, start.note)
        try:
            await gated.finish(start, {"nonce": state.nonce, "response": kept})
        except GrantLost:
            logger.error("%s ended after its grant was lost; its result is not kept", call.name)
        return back if start.note is None and raw is not None else dump({**kept, "id": call.id})


def text_response(call: ToolCall, text: str) -> bytes:
    """A response to a call with a text in place of a result."""
    return dump(response(call.id, text_result(text), is_modern=call.is_modern))


def _short(requester: str) -> str:
    return hashlib.sha256(requester.encode()).hexdigest()[:16]
