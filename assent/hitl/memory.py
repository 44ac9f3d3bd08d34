"""A channel within one process: for the command line, notebooks and tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from assent.agent.asking import replaced_ids
from assent.channels import ChannelHost
from assent.clock import Clock
from assent.errors import HitlConcurrencyError, HitlStaleAnswer
from assent.fitting import check_names, check_reason
from assent.hitl.channel import Channel
from assent.requests import HitlRequest, RequestStatus, StoredRequest, same_question, seal_in

_KEPT = 1000
"""How many requests are remembered, for those that ask again and those that answer late; open ones always are."""


class InMemoryChannel(Channel):
    """Asks within this process; what is pending is lost with it.

    ``default_timeout`` in seconds holds for every request that does not say otherwise; None means no limit.
    """

    def __init__(self, default_timeout: float | None = None, *, clock: Clock | None = None) -> None:
        super().__init__(default_timeout=default_timeout, clock=clock)
        self._kept: dict[str, StoredRequest] = {}

    async def open_request(self, thread_id: str | None = None) -> HitlRequest | None:
        """The request that waits for an answer, also after the agent was detached from it.

        Where several agents share the channel, ``thread_id`` says whose is wanted first.
        """
        for question_id in list(self._kept):
            if self._is_due(question_id):
                self._set(question_id, "timed_out")
        pending = [kept.request for kept in self._kept.values() if kept.status == "pending"]
        wanted = (request for request in pending if request.thread_id == thread_id)
        return next(wanted, pending[0] if pending else None)

    async def _known(self, host: ChannelHost | None, question_id: str) -> StoredRequest | None:
        kept = self._kept.get(question_id)
        home = self.thread_id if host is None else host.thread_id
        is_ours = kept is not None and kept.request.thread_id == home  # call ids are a thread's own
        return kept if is_ours else await super()._known(host, question_id)

    async def _record(self, request: HitlRequest, host: ChannelHost | None) -> StoredRequest:
        recalled = None if host is None else host.recall(request)
        kept = self._kept.get(request.question_id)
        if kept is not None and kept.request.thread_id != request.thread_id:  # call ids are a thread's own
            if kept.status == "pending":
                raise HitlConcurrencyError(request.question_id)
            kept = None
        for known in (kept, recalled):
            if known is not None and same_question(known.request, request.payload):
                return known
        for earlier in replaced_ids(request):
            if self._is_pending(earlier) and self._kept[earlier].request.thread_id == request.thread_id:
                self._set(earlier, "superseded")
        opened = StoredRequest(request, request.thread_id or "", None, "pending")
        self._kept[request.question_id] = opened
        return opened

    def _kept_seal(self, question_id: str) -> str | None:
        kept = self._kept.get(question_id)
        return None if kept is None else seal_in(kept.request)

    async def _settle(self, question_id: str, answer: Any, by: str | None, via: str | None) -> StoredRequest:
        fitted = self.fit(self._pending(question_id).request, answer)
        if by is not None or via is not None:
            check_names(question_id, by, via)
        return self._set(question_id, "answered", answer=fitted, answered_by=by, via=via)

    async def _cancel(self, question_id: str, reason: str) -> StoredRequest:
        self._pending(question_id)
        check_reason(reason)
        return self._set(question_id, "cancelled", reason=reason)

    async def _expire(self, question_id: str) -> StoredRequest:
        return self._set(question_id, "timed_out") if self._is_due(question_id) else self._kept[question_id]

    def _forget(self, stored: StoredRequest) -> None:
        kept = self._kept.get(stored.question_id)
        if kept is not None and kept.request is stored.request:
            del self._kept[stored.question_id]

    def drop(self, question_id: str) -> None:
        """Forget a request that nobody is to answer any more."""
        self._kept.pop(question_id, None)

    def _pending(self, question_id: str) -> StoredRequest:
        kept = self._kept.get(question_id)
        if kept is None or kept.status != "pending":
            raise HitlStaleAnswer(question_id, kept.status if kept else None)
        if self._is_due(question_id):
            raise HitlStaleAnswer(question_id, "timed_out")
        return kept

    def _is_pending(self, question_id: str) -> bool:
        return question_id in self._kept and self._kept[question_id].status == "pending"

    def _is_due(self, question_id: str) -> bool:
        """Whether a request is pending past its deadline."""
        kept = self._kept[question_id]
        expires_at = kept.request.expires_at
        return kept.status == "pending" and expires_at is not None and expires_at <= self._clock.now()

    def _set(self, question_id: str, status: RequestStatus, **fields: Any) -> StoredRequest:
        settled_at = round(self._clock.now() * 1000)
        kept = replace(self._kept[question_id], status=status, settled_at=settled_at, **fields)
        self._kept[question_id] = kept
        if len(self._kept) > _KEPT:
            over = next((it for it, known in self._kept.items() if known.status != "pending"), question_id)
            del self._kept[over]
        return kept
