"""McpGate: the gate before the tools of an MCP server, for any MCP client.

Calls that the policy allows pass unchanged. If a person has to decide, the client is answered in a way that it
supports: with a link to open (URL elicitation), with a task, or with an error that says that the call waits. The
decision is in the store, so any process of the gate finds it when the client makes the call again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

from askfirst.adapters.gated_call import Done, NotRun
from askfirst.adapters.mcp_calls import McpCalls, text_response
from askfirst.adapters.mcp_messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    Message,
    Refusal,
    ToolCall,
    as_object,
    dump,
    meta_of,
    response,
)
from askfirst.adapters.mcp_state import CallState, StateCipher
from askfirst.adapters.mcp_tasks import McpTasks
from askfirst.adapters.mcp_upstream import Upstream, UpstreamRefused
from askfirst.agent.verdicts import not_run
from askfirst.errors import InvalidMessage, Pending
from askfirst.gate.gate import Gate
from askfirst.ids import new_id

logger = logging.getLogger("askfirst.mcp")

HOLD_SECONDS = 20.0
"""How long the gate waits for a person before it answers the client that the call waits."""
_GATED = frozenset({"tools/call", "tasks/get", "tasks/cancel", "tasks/update"})
_ROUNDS = 8
"""How often a client with a link is told to try again, before it gets an error that says that the call waits."""
_INPUT = "askfirst"

Link = Callable[[Pending], Awaitable[str | None]]


def is_gated(message: Message) -> bool:
    """Whether the gate handles a client's message; all other messages are forwarded.

    A call without an id (a notification) is handled too, and refused, because some servers might run it.
    """
    return message.get("method") in _GATED


class McpGate:
    """Decides on the calls of MCP clients. ``server`` is the server's name, which is the toolset in the policy.

    ``secret`` is the key of the tokens that clients hold; without one they are valid until the process ends. ``hold``
    is how many seconds the gate waits for a person before it answers. ``link`` returns the address for clients, by
    default `Pending.link`.
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
        self._hold = hold
        self._link = link or _page
        self._cipher = StateCipher(secret)
        self._calls = McpCalls(gate, server, self._cipher)
        self._tasks = McpTasks(self._calls, self._cipher)

    async def aclose(self) -> None:
        """Cancel the calls that are running for tasks."""
        await self._tasks.aclose()

    async def handle(self, message: Message, raw: bytes, upstream: Upstream, requester: str) -> bytes | None:
        """The answer to a client's request; None if the request is to be sent to the server unchanged.

        ``requester`` is who calls, as far as the gate knows: an approval counts for nobody else. If something fails
        here, the client gets an error and the call does not reach the server. Raises `UpstreamRefused`.
        """
        asked = message.get("id")
        try:
            if message.get("method") == "tools/call":
                return await self._called(ToolCall.of(message), raw, upstream, requester)
            if "id" not in message:
                raise Refusal(INVALID_REQUEST, "a request about a task needs an id")
            return await self._tasks.answer(message, upstream, requester)
        except Refusal as refusal:
            return dump(refusal.message)
        except InvalidMessage as error:
            return dump(
                Refusal(INVALID_PARAMS, f"the arguments cannot be shown to a person: {error}", asked).message
            )
        except UpstreamRefused:
            raise
        except Exception:
            logger.exception("a call could not be put to the gate, so it was refused")
            sentence = "the gate could not decide about this call, so it did not run; its log says why"
            return dump(Refusal(INTERNAL_ERROR, sentence, asked).message)

    async def _called(self, call: ToolCall, raw: bytes, upstream: Upstream, requester: str) -> bytes | None:
        state = self._cipher.decrypt(call.params.get("requestState"))
        if state is None:
            probe = self._calls.gated("", 0, call.name, call.args, None)
            decision = await self._gate.judge(probe.action)
            if decision.verdict == "deny":
                return text_response(call, not_run(call.name, decision.reason or "it is not allowed"))
            if decision.verdict == "allow" and not probe.action.requires_approval:
                return None
        return await self._asked(call, raw, upstream, requester, state)

    async def _asked(
        self, call: ToolCall, raw: bytes, upstream: Upstream, requester: str, state: CallState | None
    ) -> bytes:
        """Have a person asked about a call, and run it once it is approved."""
        hold, approvals = self._hold, self._calls.approvals
        while True:
            tool = await upstream.tool(call.name, meta_of(call.message))
            base = self._calls.base(requester, call.name, call.args, tool)
            if state is None or state.base != base:  # another call or tool definition: a new approval
                nonce = new_id() if state is None else state.nonce
                rounds = 0 if state is None else state.rounds
                state = CallState(base, await approvals.first(base), nonce, rounds)
            gated = self._calls.gated(base, state.ordinal, call.name, call.args, tool)
            entered = await gated.enter()
            if isinstance(entered, Pending):
                question = entered.request.question_id
                if await self._gate.ledger.wait(gated.key, question, max(hold, 0.01)) is not None:
                    hold = 0.0
                    continue  # it is settled; the tool's definition may have changed meanwhile
                return await self._waiting(call, entered, state)
            if isinstance(entered, NotRun):
                return text_response(call, entered.text)
            if isinstance(entered, Done):
                if entered.value["nonce"] != state.nonce:  # another call has spent this approval
                    state = replace(state, ordinal=await approvals.first(base))
                    continue
                return dump({**entered.value["response"], "id": call.id})
            return await self._calls.run(call, raw, upstream, gated, entered, state)

    # Ways to wait.

    async def _waiting(self, call: ToolCall, pending: Pending, state: CallState) -> bytes:
        """Answer a client that a person has to decide, in the best of the ways that the client supports."""
        link = await self._link(pending)
        where = f"at {link}" if link is not None else f"in the case {pending.case}"
        if call.is_modern and call.can_open_links and link is not None:
            if state.rounds < _ROUNDS and not _declined(call, state):
                return self._elicited(call, link, state)
        elif call.is_modern and call.can_wait_for_tasks:
            return self._tasks.opened(call, pending, state, f"A person decides {where}.")
        text = (
            f"{call.name} has not run yet: a person has to approve it first, {where}. "
            "Call it again with the same arguments later: it runs once it is approved."
        )
        return text_response(call, text)

    def _elicited(self, call: ToolCall, link: str, state: CallState) -> bytes:
        result: Message = {
            "resultType": "input_required",
            "requestState": self._cipher.encrypt(replace(state, rounds=state.rounds + 1)),
        }
        if state.rounds == 0:
            message = f"{call.name} needs your approval. Open the page, look at the call and decide there."
            params: Message = {"mode": "url", "message": message, "url": link}
            result["inputRequests"] = {_INPUT: {"method": "elicitation/create", "params": params}}
        return dump(response(call.id, result, is_modern=True))


def _declined(call: ToolCall, state: CallState) -> bool:
    """Whether the client answered that the link was not opened."""
    answer = as_object(call.params.get("inputResponses")).get(_INPUT)
    return state.rounds > 0 and isinstance(answer, dict) and cast(Message, answer).get("action") != "accept"


async def _page(pending: Pending) -> str | None:
    return pending.link
