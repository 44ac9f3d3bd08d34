"""InMemoryChannel: a channel within one process, for the command line, notebooks and tests."""

from __future__ import annotations

from typing import Any

from askfirst.agent.channel_host import Host
from askfirst.agent.question_ids import ambiguous, replaced_ids
from askfirst.channels import ChannelHost
from askfirst.clock import Clock
from askfirst.errors import HitlConcurrencyError, HitlStaleAnswer
from askfirst.hitl.channel import Channel
from askfirst.keeper import MemoryKeeper
from askfirst.requests import (
    HitlRequest,
    StoredRequest,
    same_question,
    seal_in,
)

_KEPT = 1000
"""How many requests are kept, for repeated questions and late answers. Only settled requests are forgotten."""


_COUNTED = 100_000
"""For how many request ids the number of rounds is kept."""


class InMemoryChannel(Channel):
    """A channel within this process; its pending requests are lost when the process ends.

    ``default_timeout`` in seconds applies to requests without a time-out of their own; None means no limit.
    """

    def __init__(self, default_timeout: float | None = None, *, clock: Clock | None = None) -> None:
        super().__init__(default_timeout=default_timeout, clock=clock)
        self._memory: MemoryKeeper[tuple[str | None, str]] = MemoryKeeper(clock=self._clock)
        """Requests by thread id and question id, because call ids are unique only within a thread."""
        self._rounds: dict[tuple[str | None, str], int] = {}
        """The number of rounds of each id."""

    async def open_request(self, thread_id: str | None = None) -> HitlRequest | None:
        """The pending request, also after the agent was detached from it.

        Where several agents share the channel, a request of ``thread_id`` comes first.
        """
        kept = self._memory.kept
        for key, known in list(kept.items()):
            self._memory.expire(key, known)
        pending = [known.request for known in kept.values() if known.status == "pending"]
        wanted = (request for request in pending if request.thread_id == thread_id)
        return next(wanted, pending[0] if pending else None)

    async def _known(self, host: ChannelHost | None, question_id: str) -> StoredRequest | None:
        thread_id = self.thread_id if host is None else host.thread_id
        return self._memory.kept.get((thread_id, question_id)) or await super()._known(host, question_id)

    async def _record(self, request: HitlRequest, host: ChannelHost | None) -> StoredRequest:
        kept = self._memory.kept
        if kept:
            self._check_ids(request, host)
        key = request.thread_id, request.question_id
        recalled = None if host is None else host.recall(request)
        for known in (kept.get(key), recalled):
            if known is not None and same_question(known.request, request.payload):
                return known
        for earlier in replaced_ids(request):
            over = kept.get((request.thread_id, earlier))
            if over is not None and over.status == "pending":
                self._keep_settled(self._memory.settled(over, "superseded"))
        return self._memory.open(key, request, self._next_round(key))

    def _next_round(self, key: tuple[str | None, str]) -> int:
        """The next round's number under an id."""
        number = self._rounds.pop(key, 0) + 1
        self._rounds[key] = number
        if len(self._rounds) > _COUNTED:
            del self._rounds[next(iter(self._rounds))]
        return number

    def _check_ids(self, request: HitlRequest, host: ChannelHost | None) -> None:
        """Raise `HitlConcurrencyError` if another agent has an open request under this id, unless both agents are in
        one tree and take turns."""
        for (thread_id, question_id), kept in self._memory.kept.items():
            if question_id != request.question_id or thread_id == request.thread_id:
                continue
            if kept.status == "pending" and not (isinstance(host, Host) and host.works_with(thread_id)):
                raise HitlConcurrencyError(question_id)

    def _kept_seal(self, thread_id: str, question_id: str) -> str | None:
        kept = self._memory.kept.get((thread_id, question_id))
        return None if kept is None else seal_in(kept.request)

    async def _settle(
        self, question_id: str, answer: Any, by: str | None, via: str | None, digest: str | None
    ) -> StoredRequest:
        return self._keep_settled(self._answered(question_id, answer, by, via, digest))

    def _answered(
        self, question_id: str, answer: Any, by: str | None, via: str | None, digest: str | None
    ) -> StoredRequest:
        """The request with its answer, not kept yet."""
        kept = self._find(question_id, is_answer=True, digest=digest)
        key = self._key(kept, question_id)
        return self._memory.answered(key, question_id, answer, by=by, via=via, digest=digest, fit=self.fit)

    async def _cancel(self, question_id: str, reason: str) -> StoredRequest:
        return self._keep_settled(self._cancelled(question_id, reason))

    def _cancelled(self, question_id: str, reason: str) -> StoredRequest:
        """The request as cancelled, not kept yet."""
        key = self._key(self._find(question_id), question_id)
        return self._memory.cancelled(key, question_id, reason)

    async def _expire(self, question_id: str) -> StoredRequest:
        kept = self._find(question_id)
        if kept is None:
            raise HitlStaleAnswer(question_id)
        return self._memory.expire((kept.request.thread_id, question_id), kept)

    def _forget(self, stored: StoredRequest) -> None:
        key = stored.request.thread_id, stored.request.question_id
        kept = self._memory.kept.get(key)
        if kept is not None and kept.request is stored.request:
            del self._memory.kept[key]

    def forget_request(self, question_id: str) -> None:
        """Forget a request, so that it cannot be answered any more."""
        kept = self._find(question_id)
        if kept is not None:
            del self._memory.kept[kept.request.thread_id, question_id]

    def _find(
        self, question_id: str, *, is_answer: bool = False, digest: str | None = None
    ) -> StoredRequest | None:
        """The request under an id: the one a run waits for, else the oldest pending one, else the latest settled.

        If several agents have a pending request under the id, ``digest`` has to tell which of them an answer is for.
        """
        slot = self._slot
        if slot is not None and slot.request.question_id == question_id:
            waited_for = self._memory.kept.get((slot.request.thread_id, question_id))
            if waited_for is not None:
                return waited_for
        kept = [it for it in self._memory.kept.values() if it.request.question_id == question_id]
        pending = [it for it in kept if it.status == "pending"]
        if is_answer and len(pending) > 1:
            pending = [it for it in pending if digest is not None and it.request.digest == digest]
            if len(pending) != 1:
                raise ambiguous(question_id)
        return next(iter([*pending, *reversed(kept)]), None)

    def _key(self, kept: StoredRequest | None, question_id: str) -> tuple[str | None, str]:
        return self.thread_id if kept is None else kept.request.thread_id, question_id

    def _keep_settled(self, settled: StoredRequest) -> StoredRequest:
        """Keep a settled request, and forget the oldest settled one if there are too many."""
        key, kept = (settled.request.thread_id, settled.request.question_id), self._memory.kept
        self._memory.put(key, settled)
        if len(kept) > _KEPT:
            del kept[next((it for it, known in kept.items() if known.status != "pending"), key)]
        return settled
