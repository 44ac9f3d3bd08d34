"""McpGate: the gate before the tools of an MCP server, for clients that know nothing of it.

Calls that the policy allows pass through untouched. A call that needs a person is answered in the way that its client
can wait: with a link to open (URL elicitation), with a task, or with an error that says that it waits. The decision
is in the store, so that any process of the gate picks it up when the call comes again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

from askfirst.adapters.gated_call import Done, Told
from askfirst.adapters.mcp_calls import McpCalls, told_to
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
from askfirst.adapters.mcp_state import CallState, Seal
from askfirst.adapters.mcp_tasks import McpTasks
from askfirst.adapters.mcp_upstream import Upstream, UpstreamRefused
from askfirst.agent.verdicts import not_run
from askfirst.errors import InvalidMessage, Pending
from askfirst.gate.gate import Gate
from askfirst.ids import new_id

logger = logging.getLogger("askfirst.mcp")

HOLD_SECONDS = 20.0
"""How long a call is held for a person before its client is told that it waits."""
_GATED = frozenset({"tools/call", "tasks/get", "tasks/cancel", "tasks/update"})
_ROUNDS = 8
"""How often a client that has opened the link is told to try again, before it is told that the call waits."""
_INPUT = "askfirst"

Link = Callable[[Pending], Awaitable[str | None]]


def is_gated(message: Message) -> bool:
    """Whether the gate looks at a client's message; all others pass.

    A call that wants no answer is one too: some server might run it, and the gate refuses it for its missing id.
    """
    return message.get("method") in _GATED


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
        self._hold = hold
        self._link = link or _page
        self._seal = Seal(secret)
        self._calls = McpCalls(gate, server, self._seal)
        self._tasks = McpTasks(self._calls, self._seal)

    async def aclose(self) -> None:
        """Cut off the calls that are under way for tasks."""
        await self._tasks.aclose()

    async def handle(self, message: Message, raw: bytes, upstream: Upstream, requester: str) -> bytes | None:
        """What a client's request is answered with; None if it goes to the server as it came.

        ``requester`` is who calls, as far as the gate knows: an approval counts for nobody else. Whatever fails
        here is an error to the client, and nothing reaches the server. Raises `UpstreamRefused`.
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
                Refusal(INVALID_PARAMS, f"the arguments cannot be shown to anybody: {error}", asked).message
            )
        except UpstreamRefused:
            raise
        except Exception:
            logger.exception("a call could not be put to the gate, so it was refused")
            sentence = "the gate could not decide about this call, so it did not run; its log says why"
            return dump(Refusal(INTERNAL_ERROR, sentence, asked).message)

    async def _called(self, call: ToolCall, raw: bytes, upstream: Upstream, requester: str) -> bytes | None:
        state = self._seal.open(call.params.get("requestState"))
        if state is None:
            probe = self._calls.gated("", 0, call.name, call.args, None)
            decision = await self._gate.judge(probe.action)
            if decision.verdict == "deny":
                return told_to(call, not_run(call.name, decision.reason or "it is not allowed"))
            if decision.verdict == "allow" and not probe.action.requires_approval:
                return None
        return await self._asked(call, raw, upstream, requester, state)

    async def _asked(
        self, call: ToolCall, raw: bytes, upstream: Upstream, requester: str, state: CallState | None
    ) -> bytes:
        """Put a call to a person, and run it once that is decided."""
        hold, approvals = self._hold, self._calls.approvals
        while True:
            tool = await upstream.tool(call.name, meta_of(call.message))
            base = self._calls.base(requester, call.name, call.args, tool)
            if state is None or state.base != base:  # another call, or another definition: it is asked anew
                nonce = new_id() if state is None else state.nonce
                rounds = 0 if state is None else state.rounds
                state = CallState(base, await approvals.first(base), nonce, rounds)
            gated = self._calls.gated(base, state.ordinal, call.name, call.args, tool)
            entered = await gated.enter()
            if isinstance(entered, Pending):
                question = entered.request.question_id
                if await self._gate.ledger.wait(gated.key, question, max(hold, 0.01)) is not None:
                    hold = 0.0
                    continue  # it is settled; the tool may be another by now
                return await self._waiting(call, entered, state)
            if isinstance(entered, Told):
                return told_to(call, entered.text)
            if isinstance(entered, Done):
                if entered.value["nonce"] != state.nonce:  # another call has spent this approval
                    state = replace(state, ordinal=await approvals.first(base))
                    continue
                return dump({**entered.value["response"], "id": call.id})
            return await self._calls.run(call, raw, upstream, gated, entered, state)

    # Ways to wait.

    async def _waiting(self, call: ToolCall, pending: Pending, state: CallState) -> bytes:
        """Tell a client that a person has to decide, in the best way that it can wait."""
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
        return told_to(call, text)

    def _elicited(self, call: ToolCall, link: str, state: CallState) -> bytes:
        result: Message = {
            "resultType": "input_required",
            "requestState": self._seal.close(replace(state, rounds=state.rounds + 1)),
        }
        if state.rounds == 0:
            message = f"{call.name} needs your approval. Open the page, look at the call and decide there."
            params: Message = {"mode": "url", "message": message, "url": link}
            result["inputRequests"] = {_INPUT: {"method": "elicitation/create", "params": params}}
        return dump(response(call.id, result, is_modern=True))


def _declined(call: ToolCall, state: CallState) -> bool:
    """Whether whoever was to open the link did not."""
    answer = as_object(call.params.get("inputResponses")).get(_INPUT)
    return state.rounds > 0 and isinstance(answer, dict) and cast(Message, answer).get("action") != "accept"


async def _page(pending: Pending) -> str | None:
    return pending.link
