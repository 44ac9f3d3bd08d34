"""What a person is being asked on a thread, wherever it is kept: in the store, or by the channel alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from assent.agent.arguments import args_faults
from assent.agent.asking import is_about
from assent.agent.run import Thread
from assent.agent.spec import AgentSpec
from assent.checkpointer.base import Checkpointer
from assent.errors import HitlNoPendingRequest, HitlStaleAnswer
from assent.fitting import fit_answer
from assent.messages import JsonObject, Message, ToolResultMessage
from assent.requests import ArgsCheck, HitlChannel, HitlRequest, StoredRequest


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
        """The open request, going by the thread as it was last loaded."""
        return thread.pending.request if thread.pending is not None else await self._kept()

    async def look(self) -> HitlRequest | None:
        """The open request, as the store says now."""
        stored = None
        if self._checkpointer is not None:
            stored = await self._checkpointer.load_pending_request(self._thread_id)
        return stored or await self._kept()

    async def answer(
        self, thread: Thread, question_id: str | None, answer: Any, by: str | None, via: str | None
    ) -> None:
        """Settle the open request, or the one that is named; see `Agent.respond` for what it raises."""
        kept = await self._kept()
        if kept is not None and self._channel is not None and question_id in (None, kept.question_id):
            await self._channel.answer(kept.question_id, answer, by=by, via=via)
        elif self._checkpointer is not None:
            request = await self._stored(self._checkpointer, question_id)
            fitted = self._fitted(request, answer)
            await self._checkpointer.settle(self._thread_id, request.question_id, fitted, by=by, via=via)
        elif thread.pending is not None or question_id in thread.requests:
            known = thread.pending if question_id is None else thread.requests.get(question_id)
            if known is None or known.status != "pending":
                raise HitlStaleAnswer(question_id or "", None if known is None else known.status)
            fitted = self._fitted(known.request, answer)
            await self.settle(
                thread, replace(known, status="answered", answer=fitted, answered_by=by, via=via)
            )
        elif kept is not None and question_id is not None:
            raise HitlStaleAnswer(question_id)
        else:
            raise HitlNoPendingRequest(self._thread_id, question_id)

    def _fitted(self, request: HitlRequest, answer: Any) -> Any:
        payload = request.payload
        check = self.args_check(payload.tool_name) if payload.kind == "approve" else None
        return fit_answer(request, answer, check)

    async def settle(self, thread: Thread, answered: StoredRequest) -> None:
        """Settle a request as answered, in the store or, where there is none, on the thread itself.

        The answer counts for what was shown: in the store, for the request with this digest.
        """
        if self._checkpointer is None:
            thread.requests[answered.question_id] = answered
            return
        payload = answered.request.payload
        await self._checkpointer.settle(
            self._thread_id,
            answered.question_id,
            answered.answer,
            by=answered.answered_by,
            via=answered.via,
            digest=payload.digest if payload.kind == "approve" else None,
        )

    async def drop(self, why: str) -> None:
        """End a request that only the channel keeps; a stored one ends with the step that ends its call."""
        request = await self._kept()
        if request is not None and self._channel is not None:
            await self._channel.cancel(request.question_id, why)

    async def drop_moot(self, messages: Sequence[Message]) -> None:
        """End a request that only the channel keeps if its call is resolved, such as one of a tool that is gone."""
        request = await self._kept()
        resolved = (message for message in messages if isinstance(message, ToolResultMessage))
        if request is not None and any(is_about(request.question_id, it.tool_call_id) for it in resolved):
            await self.drop("its call was settled without it")

    def args_check(self, tool_name: str) -> ArgsCheck | None:
        """How to check edited arguments of one of the agent's tools."""
        tool = self._spec.tools_by_name.get(tool_name)
        return None if tool is None else lambda args: args_faults(tool, args)

    def args_schema(self, tool_name: str) -> JsonObject | None:
        """What the arguments of one of the agent's tools are like."""
        tool = self._spec.tools_by_name.get(tool_name)
        return None if tool is None else tool.args_schema

    async def _kept(self) -> HitlRequest | None:
        """The open request, where the channel keeps its requests itself."""
        if self._channel is None or self._channel.checkpointer is not None:
            return None
        request = await self._channel.open_request()
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
            raise HitlNoPendingRequest(self._thread_id, question_id)
        raise HitlStaleAnswer(question_id, None if known is None else known.status)
