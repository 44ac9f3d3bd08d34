"""MemoryKeeper: requests kept in this process, each of them settled once.

A checkpointer is the keeper of requests that are stored; its transactions make the same checks (`store.requests`).
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
    """Requests by a key of the owner's choice: a question id, or that and a thread's id.

    ``kept`` may be the owner's own dictionary. Channels keep their requests here, and so do agents without a store:
    whatever has to hold when a request is settled in memory is checked in this class and nowhere else.
    """

    __slots__ = ("_clock", "kept")

    def __init__(self, kept: dict[Key, StoredRequest] | None = None, clock: Clock | None = None) -> None:
        self.kept: dict[Key, StoredRequest] = {} if kept is None else kept
        self._clock: Clock = clock or SystemClock()

    def open(self, key: Key, request: HitlRequest, round: int = 1) -> StoredRequest:
        """Keep a request as pending; ``round`` says the how-manieth it is under its id."""
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
        """Answer a request, if `answered` finds nothing wrong with that."""
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
        fit: Fit = fit_answer,
    ) -> StoredRequest:
        """A request as it will be once it is answered; for owners that have to write that elsewhere before `put`.

        ``digest`` names what the person was shown; ``fit`` reads the answer. Raises `HitlStaleAnswer` if
        the request is settled, past its deadline or not what was shown, and `HitlInvalidAnswer` if the answer does
        not fit.
        """
        known = self.pending(key, question_id)
        check_seen(known.request, digest, known.round)
        fitted = fit(known.request, answer)
        if by is not None or via is not None:
            check_names(question_id, by, via)
        return self.ended(known, "answered", answer=fitted, answered_by=by, via=via)

    def cancel(self, key: Key, question_id: str, reason: str) -> StoredRequest:
        """End a request without an answer; raises as `cancelled` does."""
        return self.put(key, self.cancelled(key, question_id, reason))

    def cancelled(self, key: Key, question_id: str, reason: str) -> StoredRequest:
        """A request as it will be once it is cancelled; raises `HitlStaleAnswer` if it cannot be settled."""
        known = self.pending(key, question_id)
        check_reason(reason)
        return self.ended(known, "cancelled", reason=reason)

    def expire(self, key: Key, known: StoredRequest) -> StoredRequest:
        """A request as it stands: timed out, if it is pending and its deadline has passed."""
        return self.put(key, self.ended(known, "timed_out")) if self.is_overdue(known) else known

    def is_overdue(self, known: StoredRequest) -> bool:
        """Whether a request is pending past its deadline."""
        request = known.request
        if request.timeout_seconds is None or known.status != "pending":
            return False
        return request.created_at + request.timeout_seconds <= self._clock.now()

    def ended(self, known: StoredRequest, status: RequestStatus, **fields: Any) -> StoredRequest:
        """A pending request as it ends now."""
        return replace(known, status=status, settled_at=self._clock.now(), **fields)

    def put(self, key: Key, ended: StoredRequest) -> StoredRequest:
        """Keep a request as it ended; whoever calls this has made sure that it may end so."""
        self.kept[key] = ended
        return ended
