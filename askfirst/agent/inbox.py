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
from askfirst.permissions.decision import Because, Decision
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


def attribution(
    path: tuple[str, ...], principal: str, rule: str | None = None, reason: str | None = None
) -> JsonObject:
    """A request's details: the asking agent, its principal, and the rule that requires the approval."""
    told: JsonObject = {"agent_path": list(path)} if path else {}
    if principal != "*":
        told["principal"] = principal
    if rule is not None:
        told["matched_rule_id"] = rule
    if reason is not None:
        told["reason"] = reason
    return told


def grounds(path: tuple[str, ...], principal: str, decision: Decision) -> JsonObject:
    """A request's details for a decision: its `attribution`, all rules that ask, the least risk and the hold."""
    if not decision.requires_approval:
        return attribution(path, principal)
    told = attribution(path, principal, decision.matched_rule_id, decision.reason)
    if decision.reason_in:
        told["reason_in"] = dict(decision.reason_in)
    if decision.also:
        told["reasons"] = [_because(it) for it in decision.also]
    if decision.risk is not None:
        told["risk"] = decision.risk
    if decision.hold_seconds is not None:
        told["hold_seconds"] = decision.hold_seconds
    return told


def approval_id(actor: Actor, request: HitlRequest) -> str:
    """The id of a request's `PendingApproval`."""
    return "/".join([*actor.call_path, request.question_id])


def _because(it: Because) -> JsonObject:
    told: JsonObject = {"reason": it.reason, "matched_rule_id": it.matched_rule_id}
    return {**told, "reason_in": dict(it.reason_in)} if it.reason_in else told


def pending_approval(actor: Actor, request: HitlRequest) -> PendingApproval:
    """A request as a value that can be shown anywhere and answered by its id."""
    payload = request.payload
    asked, why = payload.call, payload.why
    if asked is None:
        call, digest, kind = ToolCall(request.question_id, payload.kind, {}), None, "approve"
    else:
        # A copy of the arguments, so that a change to the approval does not change the request.
        args: JsonObject = from_json(to_json(asked.args))
        call = ToolCall.of_valid(id=asked.tool_call_id, name=asked.tool_name, args=args)
        digest, kind = request.digest, payload.kind
    tool = actor.spec.tools_by_name.get(call.name)
    return PendingApproval.of_valid(
        id=approval_id(actor, request),
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


def tell(
    run: Run, request: HitlRequest, phase: Literal["requested", "resolved"], decision: str | None = None
) -> Awaitable[None]:
    """Emit `ApprovalEvent` and a trace event: a call waits, or was decided. Await it for async listeners."""
    if not (run.emitter.listening or tracing.on):
        return NOTHING
    approval = pending_approval(run.actor, request)
    tracing.add_event(
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
    """The open requests of one thread, whether or not a run waits for them.

    ``shares`` says that other agents use the same channel, as subagents do: their requests are ignored here.
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
        """The open request of the thread as last loaded; requests past their deadlines are settled as timed out."""
        while (known := thread.pending) is not None:
            expired = await self._expired(known.request)
            if expired is None:
                return known.request
            thread.requests[known.question_id] = expired
        return await self.kept()

    async def look(self) -> HitlRequest | None:
        """The open request as the store has it now; requests past their deadlines are settled as timed out."""
        stored = None
        if self._checkpointer is not None:
            stored = await self._checkpointer.load_pending_request(self._thread_id)
            while stored is not None and await self._expired(stored) is not None:
                stored = await self._checkpointer.load_pending_request(self._thread_id)
        return stored or await self.kept()

    async def _expired(self, request: HitlRequest) -> StoredRequest | None:
        """A stored request that is settled, or is settled now because its deadline has passed; None while pending."""
        if self._checkpointer is None or request.expires_at is None:
            return None
        try:
            found = await self._checkpointer.expire(self._thread_id, request.question_id)
        except HitlNoPendingRequest:
            return None  # the thread was deleted; the next step fails for that
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
        """Answer the open request, or the one with ``question_id``; see `Agent.respond` for what it raises."""
        kept = await self.kept()
        if kept is not None and self._channel is not None and question_id in (None, kept.question_id):
            await self.check(thread, kept, digest)
            await self._channel.answer(kept.question_id, answer, by=by, via=via, digest=digest)
            return
        request = await self._meant(thread, question_id, is_other_kept=kept is not None)
        await self.check(thread, request, digest)
        await self.settle(thread, request, answer, by=by, via=via, digest=digest)

    async def _meant(self, thread: Thread, question_id: str | None, *, is_other_kept: bool) -> HitlRequest:
        """The pending request with this id, in the store or on the thread; the oldest if there is no id.

        ``is_other_kept`` says that the channel keeps a request with another id.
        """
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
        """Raise `HitlStaleAnswer` if the channel has settled this request, but its run does not know yet."""
        channel = self._channel
        if question_id is None or channel is None or channel.checkpointer is not None:
            return
        if (
            await channel.open_request(thread_id=self._thread_id) is None
        ):  # then the call below settles nothing; it only raises for a request that is settled
            try:
                await channel.answer(question_id, None)
            except HitlStaleAnswer as stale:
                if stale.status is not None:
                    raise

    async def check(self, thread: Thread, request: HitlRequest, digest: str | None = None) -> None:
        """Raise if a request is not what the person was shown, or if no run could use its answer."""
        check_seen(request, digest)
        if self._is_asked_in(thread.messages, request):
            return
        way_out = "hand the conversation in as messages=, or use the store that has it"
        if self._checkpointer is not None:
            stored = await self._checkpointer.load(self._thread_id)  # the transcript in memory may be old
            if stored is not None and self._is_asked_in(stored.messages, request):
                return
            way_out = "use the store and the thread_id that have the conversation"
        raise HitlError(
            f"request {request.question_id!r} is about a call that the transcript of thread {self._thread_id!r} does "
            f"not hold, so no run could go on with the answer; {way_out}. The request is still open"
        )

    def _is_asked_in(self, messages: Sequence[Message], request: HitlRequest) -> bool:
        """Whether a run on this transcript would ask this again, and so find the answer.

        False only if that is certain: the request is about a call that the transcript lacks, and nothing is left that
        could make such a call itself (an unresolved call, a hook around the model, a guardrail).
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
    ) -> None:
        """Answer a request, in the store or, where there is none, on the thread itself.

        ``digest`` is that of what was shown.
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
        await self._checkpointer.settle(self._thread_id, question_id, fitted, by=by, via=via, digest=digest)

    async def cancel_kept(self, why: str) -> bool:
        """Cancel a request that only the channel keeps; False if there was none.

        A stored request is settled by the step that ends its call.
        """
        request = await self.kept()
        if request is None or self._channel is None:
            return False
        try:
            await self._channel.cancel(request.question_id, why)
        except HitlStaleAnswer:
            return False  # it was settled meanwhile
        return True

    async def cancel_moot(self, messages: Sequence[Message]) -> None:
        """Cancel a request that only the channel keeps if its call has a result, such as a call of a removed tool."""
        request = await self.kept()
        resolved = (message for message in messages if isinstance(message, ToolResultMessage))
        if request is not None and any(is_about(request.question_id, it.tool_call_id) for it in resolved):
            await self.cancel_kept("its call was settled without it")

    def args_check(self, tool_name: str, thread: Thread, call: AskedCall | None = None) -> ArgsCheck | None:
        """A function that checks edited arguments of one of the agent's tools; None if there is no such tool.

        ``call`` is the call as it was shown: its hidden arguments may be left as they are.
        """
        tool = self._spec.tools_by_name.get(tool_name)
        return None if tool is None else lambda edited: _edit_faults(tool, thread, call, edited)

    def shown_answer(self, thread: Thread, stored: StoredRequest) -> Any:
        """An answer as listeners get it: secrets in edited arguments are masked."""
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
        """Edited arguments with secrets masked; None if the tool is unknown and so are its secrets."""
        call = payload.call
        tool = None if call is None else self._spec.tools_by_name.get(call.tool_name)
        if call is None or tool is None:
            return edited if payload.edit_schema is None else None  # None: of a removed tool
        return shown_edit(tool, _standing(thread, tool, call), edited)

    def args_schema(self, tool_name: str) -> JsonObject | None:
        """The JSON Schema of the arguments of one of the agent's tools."""
        tool = self._spec.tools_by_name.get(tool_name)
        return None if tool is None else tool.args_schema

    def words(self, tool_name: str, args: Mapping[str, Any]) -> JsonObject | None:
        """The words of the author of one of the agent's tools for a call with these arguments."""
        tool = self._spec.tools_by_name.get(tool_name)
        return None if tool is None else tool.words_for(args)

    async def kept(self) -> HitlRequest | None:
        """The open request of a channel that keeps its requests itself, outside the store."""
        if self._channel is None or self._channel.checkpointer is not None:
            return None
        request = await self._channel.open_request(thread_id=self._thread_id)
        if request is None or request.thread_id == self._thread_id:
            return request
        return request if request.thread_id is None and not self._shares else None

    async def _stored(self, checkpointer: Checkpointer, question_id: str | None) -> HitlRequest:
        """The pending stored request with this id; the oldest pending one if there is no id."""
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
    # The schema alone, as other processes check; the gate checks the rest.
    check = schema_check(tool.args_schema, call.args)
    return [] if check is None else check(edited)


def _standing(thread: Thread, tool: Tool, call: AskedCall) -> BaseModel | None:
    """The whole arguments of a call, hidden parts included, for what was shown; None if unknown in this process.

    They are the arguments that the call has at the gate, or the model's own if these were not changed.
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
