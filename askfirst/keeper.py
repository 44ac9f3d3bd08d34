"""MemoryKeeper: requests kept in this process's memory, each settled once.

Stored requests are kept by a checkpointer instead, whose transactions make the same checks (`store.requests`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from askfirst.clock import Clock, SystemClock
from askfirst.errors import HitlStaleAnswer
from askfirst.requests import (
    Answer,
    HitlRequest,
    RequestStatus,
    StoredRequest,
    check_names,
    check_reason,
    check_seen,
    fit_answer,
)

Key = TypeVar("Key", bound=Hashable)
Fit = Callable[[HitlRequest, Any], Answer]
"""A function that reads an answer to a request as its model, or raises `HitlInvalidAnswer`."""


class MemoryKeeper(Generic[Key]):
    """Requests by a key that the owner chooses: a question id, or a thread id with a question id.

    ``kept`` may be the owner's own dictionary. Channels and agents without a store keep their requests here, so that
    the checks at settling are written once.
    """

    __slots__ = ("_clock", "kept")

    def __init__(self, kept: dict[Key, StoredRequest] | None = None, clock: Clock | None = None) -> None:
        self.kept: dict[Key, StoredRequest] = {} if kept is None else kept
        self._clock: Clock = clock or SystemClock()

    def open(self, key: Key, request: HitlRequest, round: int = 1) -> StoredRequest:
        """Keep a request as pending; ``round`` counts the requests under its id."""
        opened = StoredRequest(request, request.thread_id or "", None, "pending", round=round)
        self.kept[key] = opened
        return opened

    def pending(self, key: Key, question_id: str) -> StoredRequest:
        """The request, if it can be settled; raises `HitlStaleAnswer` if it is settled, unknown or overdue."""
        known = self.kept.get(key)
        if known is None or known.status != "pending":
            raise HitlStaleAnswer(question_id, None if known is None else known.status)
        if self.is_overdue(known):
            raise HitlStaleAnswer(question_id, "timed_out")
        return known

    def settle(
        self,
        key: Key,
        question_id: str,
        answer: Any,
        *,
        by: str | None = None,
        via: str | None = None,
        digest: str | None = None,
        fit: Fit = fit_answer,
    ) -> StoredRequest:
        """Answer a request; raises as `answered` does."""
        return self.put(key, self.answered(key, question_id, answer, by=by, via=via, digest=digest, fit=fit))

    def answered(
        self,
        key: Key,
        question_id: str,
        answer: Any,
        *,
        by: str | None = None,
        via: str | None = None,
        digest: str | None = None,
        fit: Fit | None = fit_answer,
    ) -> StoredRequest:
        """A request with its answer, not kept yet: for owners that write it elsewhere before they call `put`.

        ``digest`` is the digest of what the person was shown. ``fit`` reads the answer as its model; None means that
        the answer is its model already. Raises `HitlStaleAnswer` if the request is settled, past its deadline or not
        the one that was shown, and `HitlInvalidAnswer` if the answer does not fit.
        """
        known = self.pending(key, question_id)
        check_seen(known.request, digest, known.round)
        fitted = answer if fit is None else fit(known.request, answer)
        if by is not None or via is not None:
            check_names(question_id, by, via)
        return self.settled(known, "answered", answer=fitted, answered_by=by, via=via)

    def cancel(self, key: Key, question_id: str, reason: str) -> StoredRequest:
        """Cancel a request; raises as `cancelled` does."""
        return self.put(key, self.cancelled(key, question_id, reason))

    def cancelled(self, key: Key, question_id: str, reason: str) -> StoredRequest:
        """A request as cancelled, not kept yet; raises `HitlStaleAnswer` if it cannot be settled."""
        known = self.pending(key, question_id)
        check_reason(reason)
        return self.settled(known, "cancelled", reason=reason)

    def expire(self, key: Key, known: StoredRequest) -> StoredRequest:
        """The request ``known``, settled as timed out if it is pending and its deadline has passed."""
        return self.put(key, self.settled(known, "timed_out")) if self.is_overdue(known) else known

    def is_overdue(self, known: StoredRequest) -> bool:
        """Whether a request is pending past its deadline."""
        request = known.request
        if request.timeout_seconds is None or known.status != "pending":
            return False
        return request.created_at + request.timeout_seconds <= self._clock.now()

    def settled(self, known: StoredRequest, status: RequestStatus, **fields: Any) -> StoredRequest:
        """A pending request with its final status and the current time; not kept yet."""
        return replace(known, status=status, settled_at=self._clock.now(), **fields)

    def put(self, key: Key, settled: StoredRequest) -> StoredRequest:
        """Keep a settled request; the caller has made the checks."""
        self.kept[key] = settled
        return settled
