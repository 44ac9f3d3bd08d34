"""The open requests of a thread, wherever they are kept: found, checked, settled, shown as pending approvals."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from askfirst import tracing
from askfirst.agent.arguments import args_faults, masks_in, parse_args
from askfirst.agent.emitter import NOTHING
from askfirst.agent.question_ids import is_about, is_of_a_place
from askfirst.agent.run import Run
from askfirst.agent.spec import Actor, AgentSpec
from askfirst.agent.thread import Thread, call_ids, is_finished, unresolved_calls
from askfirst.agent.tools import Tool, json_object
from askfirst.agent.verdicts import shown_edit
from askfirst.answers import CallAnswer
from askfirst.approvals import PendingApproval
from askfirst.channels import HitlChannel
from askfirst.checkpointer.base import Checkpointer
from askfirst.errors import HitlError, HitlNoPendingRequest, HitlStaleAnswer
from askfirst.events import ApprovalEvent
from askfirst.keeper import MemoryKeeper
from askfirst.messages import JsonObject, Message, ToolCall, ToolResultMessage
from askfirst.permissions.decision import Decision
from askfirst.requests import (
    ArgsCheck,
    AskedCall,
    HitlPayload,
    HitlRequest,
    StoredRequest,
    check_seen,
    fit_answer,
    plain_answer,
    schema_check,
)

# Open requests as pending approvals: what is asked, by which agent, and why.


def attribution(path: tuple[str, ...], principal: str, decision: Decision) -> JsonObject | None:
    """What a person is told beside the call: which agent asks, for whom, and which rule wants it asked."""
    told: JsonObject = {}
    if len(path) > 1:
        told["agent_path"] = list(path)
    if principal != "*":
        told["principal"] = principal
    if decision.requires_approval:
        if decision.matched_rule_id is not None:
            told["matched_rule_id"] = decision.matched_rule_id
        if decision.reason is not None:
            told["reason"] = decision.reason
    return told or None


def pending_approval(actor: Actor, request: HitlRequest) -> PendingApproval:
    """A request as a value that can be shown anywhere and answered by its id."""
    payload = request.payload
    asked, why = payload.call, payload.why
    if asked is None:
        call, digest, kind = ToolCall(request.question_id, payload.kind, {}), None, "approve"
    else:
        call, digest, kind = _shown_call(asked), request.digest, payload.kind
    tool = actor.spec.tools_by_name.get(call.name)
    return PendingApproval.of_valid(
        id="/".join([*actor.call_path, request.question_id]),
        tool_call=call,
        digest=digest,
        kind=kind,
        agent_path=actor.path,
        toolset=None if tool is None else tool.toolset,
        principal=actor.principal,
        matched_rule_id=why.matched_rule_id,
        reason=why.reason,
        created_at=request.created_at,
        expires_at=request.expires_at,
        call_path=actor.call_path,
    )


def _shown_call(call: AskedCall) -> ToolCall:
    # Its arguments are a copy: what was asked stays as it is, whatever becomes of what is shown.
    args: JsonObject = from_json(to_json(call.args))
    return ToolCall.of_valid(id=call.tool_call_id, name=call.tool_name, args=args)


def tell(
    run: Run, request: HitlRequest, phase: Literal["requested", "resolved"], decision: str | None = None
) -> Awaitable[None]:
    """Tell listeners and the trace that a call waits, or has been decided; to be awaited for async listeners."""
    if not (run.emitter.listening or tracing.on):
        return NOTHING
    approval = pending_approval(run.actor, request)
    tracing.note(
        "approval",
        {
            "approval.phase": phase,
            "approval.id": approval.id,
            "gen_ai.tool.name": approval.tool_call.name,
            "askfirst.agent_path": "/".join(approval.agent_path),
            "approval.decision": decision,
        },
    )
    return run.emit(ApprovalEvent, phase=phase, approval=approval, decision=decision)


class Inbox:
    """The open requests of one thread that nobody has to be waiting for.

    ``shares`` says that the channel is others' too, as a subagent's is: what they ask there is not seen here.
    """

    __slots__ = ("_channel", "_checkpointer", "_shares", "_spec", "_thread_id")

    def __init__(
        self,
        spec: AgentSpec,
        thread_id: str,
        channel: HitlChannel | None,
        checkpointer: Checkpointer | None,
        *,
        shares: bool = False,
    ) -> None:
        self._spec = spec
        self._thread_id = thread_id
        self._shares = shares
        self._channel = channel
        self._checkpointer = checkpointer

    async def open_in(self, thread: Thread) -> HitlRequest | None:
        """The open request, going by the thread as it was last loaded; what is overdue is timed out."""
        while (known := thread.pending) is not None:
            expired = await self._expired(known.request)
            if expired is None:
                return known.request
            thread.requests[known.question_id] = expired
        return await self.kept()

    async def look(self) -> HitlRequest | None:
        """The open request, as the store says now; what is overdue is timed out."""
        stored = None
        if self._checkpointer is not None:
            stored = await self._checkpointer.load_pending_request(self._thread_id)
            while stored is not None and await self._expired(stored) is not None:
                stored = await self._checkpointer.load_pending_request(self._thread_id)
        return stored or await self.kept()

    async def _expired(self, request: HitlRequest) -> StoredRequest | None:
        """A stored request as it was settled, if it was, or is now because it is overdue."""
        if self._checkpointer is None or request.expires_at is None:
            return None
        try:
            found = await self._checkpointer.expire(self._thread_id, request.question_id)
        except HitlNoPendingRequest:
            return None  # it went with its thread, as whoever writes to that will find
        return None if found.status == "pending" else found

    async def answer(
        self,
        thread: Thread,
        question_id: str | None,
        answer: Any,
        by: str | None,
        via: str | None,
        digest: str | None = None,
    ) -> None:
        """Settle the open request, or the one that is named; see `Agent.respond` for what it raises."""
        kept = await self.kept()
        if kept is not None and self._channel is not None and question_id in (None, kept.question_id):
            await self.check(thread, kept, digest)
            await self._channel.answer(kept.question_id, answer, by=by, via=via, digest=digest)
            return
        request = await self._meant(thread, question_id, is_other_kept=kept is not None)
        await self.check(thread, request, digest)
        await self.settle(thread, request, answer, by=by, via=via, digest=digest)

    async def _meant(self, thread: Thread, question_id: str | None, *, is_other_kept: bool) -> HitlRequest:
        """The pending request that is meant, in the store or on the thread; ``is_other_kept`` by the channel."""
        if self._checkpointer is not None:
            return await self._stored(self._checkpointer, question_id)
        known = thread.pending if question_id is None else thread.requests.get(question_id)
        if known is not None and known.status == "pending":
            return known.request
        if question_id is not None and (known is not None or is_other_kept or thread.pending is not None):
            raise HitlStaleAnswer(question_id, None if known is None else known.status)
        await self._check_settled(question_id)
        raise HitlNoPendingRequest(self._thread_id, question_id)

    async def _check_settled(self, question_id: str | None) -> None:
        """Raise `HitlStaleAnswer` for what the channel has settled, though whoever asked has yet to hear of it."""
        channel = self._channel
        if question_id is None or channel is None or channel.checkpointer is not None:
            return
        if (
            await channel.open_request(thread_id=self._thread_id) is None
        ):  # then there is nothing that this would answer
            try:
                await channel.answer(question_id, None)
            except HitlStaleAnswer as stale:
                if stale.status is not None:
                    raise

    async def check(self, thread: Thread, request: HitlRequest, digest: str | None = None) -> None:
        """Raise if a request is not what was shown, or if nobody could go on with its answer."""
        check_seen(request, digest)
        if self._is_asked_in(thread.messages, request):
            return
        way_out = "hand the conversation in as messages=, or use the store that has it"
        if self._checkpointer is not None:
            stored = await self._checkpointer.load(self._thread_id)  # what is known here may be old
            if stored is not None and self._is_asked_in(stored.messages, request):
                return
            way_out = "use the store and the thread_id that have the conversation"
        raise HitlError(
            f"request {request.question_id!r} is about a call that the transcript of thread {self._thread_id!r} does "
            f"not hold, so no run could go on with the answer; {way_out}. The request is still open"
        )

    def _is_asked_in(self, messages: Sequence[Message], request: HitlRequest) -> bool:
        """Whether a run on this transcript would ask this again, and so find the answer.

        Only what is asked about a call can be known to be asked in none: an open call may ask about calls of its
        own making, and so may a hook around the model, or whoever guards what it says.
        """
        call = request.payload.call
        if call is None and not is_of_a_place(request.question_id):
            return True
        others_ask = self._spec.onion.around_model or bool(self._spec.guardrails)
        if unresolved_calls(messages) or (others_ask and not is_finished(messages)):
            return True
        about = request.question_id if call is None else call.tool_call_id
        return any(is_about(request.question_id, it) or about == it for it in call_ids(messages))

    async def settle(
        self,
        thread: Thread,
        request: HitlRequest,
        answer: Any,
        *,
        by: str | None,
        via: str | None,
        digest: str | None = None,
        round: int | None = None,
    ) -> None:
        """Answer a request, in the store or, where there is none, on the thread itself.

        ``digest`` is that of what was shown, or ``round`` says which round of the request that was.
        """
        call = request.payload.call
        check = None if call is None else self.args_check(call.tool_name, thread, call)
        question_id = request.question_id
        if self._checkpointer is None:
            fit = partial(fit_answer, check_args=check)
            memory = MemoryKeeper(thread.requests)
            memory.settle(question_id, question_id, answer, by=by, via=via, digest=digest, fit=fit)
            return
        fitted = fit_answer(request, answer, check)
        await self._checkpointer.settle(
            self._thread_id, question_id, fitted, by=by, via=via, digest=digest, round=round
        )

    async def cancel_kept(self, why: str) -> bool:
        """End a request that only the channel keeps; a stored one ends with the step that ends its call.

        False if there was none.
        """
        request = await self.kept()
        if request is None or self._channel is None:
            return False
        try:
            await self._channel.cancel(request.question_id, why)
        except HitlStaleAnswer:
            return False  # somebody else has ended it just now
        return True

    async def cancel_moot(self, messages: Sequence[Message]) -> None:
        """End a request that only the channel keeps if its call is resolved, such as one of a tool that is gone."""
        request = await self.kept()
        resolved = (message for message in messages if isinstance(message, ToolResultMessage))
        if request is not None and any(is_about(request.question_id, it.tool_call_id) for it in resolved):
            await self.cancel_kept("its call was settled without it")

    def args_check(self, tool_name: str, thread: Thread, call: AskedCall | None = None) -> ArgsCheck | None:
        """How to check edited arguments of one of the agent's tools.

        What is not shown of the ``call`` that was asked about may stay as it is.
        """
        tool = self._spec.tools_by_name.get(tool_name)
        return None if tool is None else lambda edited: _edit_faults(tool, thread, call, edited)

    def shown_answer(self, thread: Thread, stored: StoredRequest) -> Any:
        """An answer for listeners: edited arguments as the tool shows them."""
        if stored.answer is None:
            return None
        plain = plain_answer(stored.answer)
        if not isinstance(stored.answer, CallAnswer):
            return plain
        name = stored.answer.edits_in
        edited = plain.pop(name, None)
        shown = None if edited is None else self._shown_edit(thread, stored.request.payload, edited)
        return plain if shown is None else {**plain, name: shown}

    def _shown_edit(self, thread: Thread, payload: HitlPayload, edited: JsonObject) -> JsonObject | None:
        """Edited arguments as they would be shown; None where nobody can say what of them would be."""
        call = payload.call
        tool = None if call is None else self._spec.tools_by_name.get(call.tool_name)
        if call is None or tool is None:
            return edited if payload.edit_schema is None else None  # of no tool, or of one that is gone
        return shown_edit(tool, _standing(thread, tool, call), edited)

    def args_schema(self, tool_name: str) -> JsonObject | None:
        """What the arguments of one of the agent's tools are like."""
        tool = self._spec.tools_by_name.get(tool_name)
        return None if tool is None else tool.args_schema

    async def kept(self) -> HitlRequest | None:
        """The open request, where the channel keeps its requests itself."""
        if self._channel is None or self._channel.checkpointer is not None:
            return None
        request = await self._channel.open_request(thread_id=self._thread_id)
        if request is None or request.thread_id == self._thread_id:
            return request
        return request if request.thread_id is None and not self._shares else None

    async def _stored(self, checkpointer: Checkpointer, question_id: str | None) -> HitlRequest:
        """The stored request that is meant: the one of this id, or the oldest that is open."""
        oldest = await checkpointer.load_pending_request(self._thread_id)
        if oldest is not None and question_id in (None, oldest.question_id):
            return oldest
        known = None if question_id is None else await checkpointer.request(self._thread_id, question_id)
        if known is not None and known.status == "pending":
            return known.request
        if question_id is None or (known is None and oldest is None):
            await self._check_settled(question_id)
            raise HitlNoPendingRequest(self._thread_id, question_id)
        raise HitlStaleAnswer(question_id, None if known is None else known.status)


def _edit_faults(
    tool: Tool, thread: Thread, call: AskedCall | None, edited: Mapping[str, Any]
) -> Sequence[str]:
    args = None if call is None else _standing(thread, tool, call)
    if call is None or args is not None:
        return args_faults(tool, edited, args)
    check = schema_check(tool.args_schema, call.args)  # as elsewhere; the gate knows the rest
    return [] if check is None else check(edited)


def _standing(thread: Thread, tool: Tool, call: AskedCall) -> BaseModel | None:
    """The arguments that are shown as a call's, with what is not shown of them; None if they are not known here.

    They are those that the call stands at the gate with, or the model's own if nobody has changed those.
    """
    considered = thread.at_gate.get(call.tool_call_id)
    if considered is not None and json_object(considered) == call.args:
        return considered
    called = [it.args for it in unresolved_calls(thread.messages) if it.id == call.tool_call_id]
    for given in (*called, call.args):
        args = parse_args(tool, given)
        if not isinstance(args, str) and json_object(args) == call.args and not masks_in(args):
            return args
    return None
