"""A channel within one process: for the command line, notebooks and tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from askfirst.agent.channel_host import Host
from askfirst.agent.question_ids import ambiguous, replaced_ids
from askfirst.channels import ChannelHost
from askfirst.clock import Clock
from askfirst.errors import HitlConcurrencyError, HitlStaleAnswer
from askfirst.hitl.channel import Channel
from askfirst.requests import (
    HitlRequest,
    RequestStatus,
    StoredRequest,
    check_names,
    check_reason,
    check_seen,
    same_question,
    seal_in,
)

_KEPT = 1000
"""How many requests are remembered, for those that ask again and those that answer late; open ones always are."""


_COUNTED = 100_000
"""Of how many ids it is known how often something was asked under them."""


class InMemoryChannel(Channel):
    """Asks within this process; what is pending is lost with it.

    ``default_timeout`` in seconds holds for every request that does not say otherwise; None means no limit.
    """

    def __init__(self, default_timeout: float | None = None, *, clock: Clock | None = None) -> None:
        super().__init__(default_timeout=default_timeout, clock=clock)
        self._kept: dict[tuple[str | None, str], StoredRequest] = {}
        """By the thread too: call ids are a thread's own."""
        self._rounds: dict[tuple[str | None, str], int] = {}
        """How often something was asked under an id."""

    async def open_request(self, thread_id: str | None = None) -> HitlRequest | None:
        """The request that waits for an answer, also after the agent was detached from it.

        Where several agents share the channel, ``thread_id`` says whose is wanted first.
        """
        for kept in list(self._kept.values()):
            if self._is_due(kept):
                self._set(kept, "timed_out")
        pending = [kept.request for kept in self._kept.values() if kept.status == "pending"]
        wanted = (request for request in pending if request.thread_id == thread_id)
        return next(wanted, pending[0] if pending else None)

    async def _known(self, host: ChannelHost | None, question_id: str) -> StoredRequest | None:
        kept = self._kept.get((self.thread_id if host is None else host.thread_id, question_id))
        return kept or await super()._known(host, question_id)

    async def _record(self, request: HitlRequest, host: ChannelHost | None) -> StoredRequest:
        if self._kept:
            self._check_ids(request, host)
        recalled = None if host is None else host.recall(request)
        for known in (self._kept.get((request.thread_id, request.question_id)), recalled):
            if known is not None and same_question(known.request, request.payload):
                return known
        for earlier in replaced_ids(request):
            over = self._kept.get((request.thread_id, earlier))
            if over is not None and over.status == "pending":
                self._set(over, "superseded")
        opened = StoredRequest(
            request, request.thread_id or "", None, "pending", round=self._next_round(request)
        )
        self._kept[request.thread_id, request.question_id] = opened
        return opened

    def _next_round(self, request: HitlRequest) -> int:
        """Which time this is that something new is asked under an id."""
        key = request.thread_id, request.question_id
        number = self._rounds.pop(key, 0) + 1
        self._rounds[key] = number
        if len(self._rounds) > _COUNTED:
            del self._rounds[next(iter(self._rounds))]
        return number

    def _check_ids(self, request: HitlRequest, host: ChannelHost | None) -> None:
        """Refuse to ask under the id of what another agent has open, unless both work for one and take turns."""
        for (thread_id, question_id), kept in self._kept.items():
            if question_id != request.question_id or thread_id == request.thread_id:
                continue
            if kept.status == "pending" and not (isinstance(host, Host) and host.works_with(thread_id)):
                raise HitlConcurrencyError(question_id)

    def _kept_seal(self, thread_id: str, question_id: str) -> str | None:
        kept = self._kept.get((thread_id, question_id))
        return None if kept is None else seal_in(kept.request)

    async def _settle(
        self, question_id: str, answer: Any, by: str | None, via: str | None, digest: str | None
    ) -> StoredRequest:
        kept = self._pending(question_id, digest=digest)
        check_seen(kept.request, digest, kept.round)
        fitted = self.fit(kept.request, answer)
        if by is not None or via is not None:
            check_names(question_id, by, via)
        return self._set(kept, "answered", answer=fitted, answered_by=by, via=via)

    async def _cancel(self, question_id: str, reason: str) -> StoredRequest:
        kept = self._pending(question_id, is_answer=False)
        check_reason(reason)
        return self._set(kept, "cancelled", reason=reason)

    async def _expire(self, question_id: str) -> StoredRequest:
        kept = self._found(question_id)
        if kept is None:
            raise HitlStaleAnswer(question_id)
        return self._set(kept, "timed_out") if self._is_due(kept) else kept

    def _forget(self, stored: StoredRequest) -> None:
        key = stored.request.thread_id, stored.request.question_id
        kept = self._kept.get(key)
        if kept is not None and kept.request is stored.request:
            del self._kept[key]

    def drop(self, question_id: str) -> None:
        """Forget a request that nobody is to answer any more."""
        kept = self._found(question_id)
        if kept is not None:
            del self._kept[kept.request.thread_id, question_id]

    def _pending(
        self, question_id: str, *, is_answer: bool = True, digest: str | None = None
    ) -> StoredRequest:
        """What is pending under an id; an answer must not be taken for one to what another agent asks under it."""
        kept = self._found(question_id, is_answer=is_answer, digest=digest)
        if kept is None or kept.status != "pending":
            raise HitlStaleAnswer(question_id, kept.status if kept else None)
        if kept.request.timeout_seconds is not None and self._is_due(kept):
            raise HitlStaleAnswer(question_id, "timed_out")
        return kept

    def _found(
        self, question_id: str, *, is_answer: bool = False, digest: str | None = None
    ) -> StoredRequest | None:
        """What is kept under an id: the request that is waited for, else the oldest that is pending.

        If several agents have something pending under it, ``digest`` has to tell which of these an answer is for.
        """
        slot = self._slot
        if slot is not None and slot.request.question_id == question_id:
            waited_for = self._kept.get((slot.request.thread_id, question_id))
            if waited_for is not None:
                return waited_for
        kept = [it for it in self._kept.values() if it.request.question_id == question_id]
        pending = [it for it in kept if it.status == "pending"]
        if is_answer and len(pending) > 1:
            pending = [it for it in pending if digest is not None and it.request.digest == digest]
            if len(pending) != 1:
                raise ambiguous(question_id)
        return next(iter([*pending, *reversed(kept)]), None)

    def _is_due(self, kept: StoredRequest) -> bool:
        """Whether a request is pending past its deadline."""
        expires_at = kept.request.expires_at
        return kept.status == "pending" and expires_at is not None and expires_at <= self._clock.now()

    def _set(self, kept: StoredRequest, status: RequestStatus, **fields: Any) -> StoredRequest:
        settled = replace(kept, status=status, settled_at=self._clock.now(), **fields)
        key = kept.request.thread_id, kept.request.question_id
        self._kept[key] = settled
        if len(self._kept) > _KEPT:
            over = next((it for it, known in self._kept.items() if known.status != "pending"), key)
            del self._kept[over]
        return settled
