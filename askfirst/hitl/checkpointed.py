"""CheckpointedChannel: requests are kept in a store, also those of subagents, so that any process can answer them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Protocol, cast

from askfirst.agent.channel_host import Host
from askfirst.agent.context import current, current_asking
from askfirst.agent.question_ids import ASKED_ANEW, ambiguous, is_replaced, replaced_ids
from askfirst.agent.thread import unresolved_calls
from askfirst.channels import ChannelHost
from askfirst.checkpointer.base import Checkpointer, StoredThread
from askfirst.clock import Clock
from askfirst.concurrency import LoopLock, finish
from askfirst.errors import (
    HitlConcurrencyError,
    HitlDurabilityNotGuaranteed,
    HitlError,
    HitlNoPendingRequest,
    HitlStaleAnswer,
    InvalidAgent,
)
from askfirst.hitl.memory import InMemoryChannel
from askfirst.ids import child_thread_id
from askfirst.requests import (
    HitlRequest,
    StoredRequest,
    check_seen,
    same_question,
)

# The open requests of subagents under a thread, read from the store without an agent.


async def open_beneath(checkpointer: Checkpointer, thread_id: str) -> list[StoredRequest]:
    """The open requests of a thread's subagents, and of theirs."""
    stored = await checkpointer.load(thread_id)
    return [] if stored is None else await _open_below(checkpointer, stored)


async def _open_below(checkpointer: Checkpointer, caller: StoredThread) -> list[StoredRequest]:
    found: list[StoredRequest] = []
    for call in unresolved_calls(caller.messages):
        child = await checkpointer.load(child_thread_id(caller.thread_id, call.id))
        if child is not None:
            found += [known for known in child.requests.values() if known.status == "pending"]
            found += await _open_below(checkpointer, child)
    return found


_REPLACED = 100
"""How many superseded requests are remembered, for late answers to them."""


class RequestKeeper(Protocol):
    """The minimal interface of your own checkpointer for a `CheckpointedChannel`."""

    async def save_pending_request(self, thread_id: str, request: HitlRequest | None) -> None:
        """Keep a thread's pending request; None clears it."""
        ...

    async def load_pending_request(self, thread_id: str) -> HitlRequest | None:
        """The thread's pending request."""
        ...


class CheckpointedChannel(InMemoryChannel):
    """Asks through a checkpointer: any process may answer, hours later, and wake a run that waits.

    With one of Askfirst's checkpointers, requests are settled in the store, once, whichever process answers. Your own
    checkpointer needs only ``save_pending_request`` and ``load_pending_request``; the answer then has to come through
    this channel or through ``agent.respond``.

    Asking inside the body of a custom tool raises `HitlDurabilityNotGuaranteed`, because after a restart the body
    runs from its start again; ``allow_inside_custom_tool=True`` accepts that.
    """

    def __init__(
        self,
        *,
        checkpointer: Checkpointer | RequestKeeper,
        thread_id: str,
        default_timeout: float | None = None,
        allow_inside_custom_tool: bool = False,
        clock: Clock | None = None,
    ) -> None:
        for needed in ("save_pending_request", "load_pending_request"):
            if not callable(getattr(checkpointer, needed, None)):
                raise HitlError(f"a CheckpointedChannel needs a checkpointer with {needed}()")
        super().__init__(default_timeout, clock=clock)
        self._thread_id = thread_id
        self._allow_inside_custom_tool = allow_inside_custom_tool
        self._keeper = cast(RequestKeeper, checkpointer)
        settles = callable(getattr(checkpointer, "settle", None))
        self._checkpointer = cast(Checkpointer, checkpointer) if settles else None
        self._is_shared = settles
        self._keeper_lock = LoopLock()
        self._clearing: str | None = None
        self._replaced: OrderedDict[str, HitlRequest] = OrderedDict()

    @property
    def thread_id(self) -> str:
        """The thread that this channel is for."""
        return self._thread_id

    @property
    def checkpointer(self) -> Checkpointer | None:
        """The checkpointer, if it settles requests itself; None for a `RequestKeeper`."""
        return self._checkpointer

    def bind(self, host: ChannelHost) -> None:
        """Bind the channel to an agent; raises `InvalidAgent` if the agent's thread is another."""
        if host.thread_id != self.thread_id:
            raise InvalidAgent(
                f"the channel is for thread {self.thread_id!r} and the agent for {host.thread_id!r}; give both one id"
            )
        super().bind(host)

    async def open_request(self, thread_id: str | None = None) -> HitlRequest | None:
        """The open request of the thread, or of a subagent under it, from the store.

        Requests past their deadlines are settled as timed out.
        """
        while (request := await self._keeper.load_pending_request(self.thread_id)) is not None:
            if request.expires_at is None or not await self._expire_if_due(request, self.thread_id):
                return request
        if self.checkpointer is None:
            return None
        for found in await open_beneath(self.checkpointer, self.thread_id):
            if found.request.expires_at is None or not await self._expire_if_due(
                found.request, found.thread_id
            ):
                return found.request
        return None

    async def _expire_if_due(self, request: HitlRequest, thread_id: str) -> bool:
        """Settle a request as timed out if its deadline has passed. Returns whether the request is settled."""
        if self.checkpointer is not None:
            try:
                found = await self.checkpointer.expire(thread_id, request.question_id)
            except HitlNoPendingRequest:
                return True  # its thread was deleted
            return found.status != "pending"
        async with self._keeper_lock:
            kept = self._remembered(request)
            if not self._memory.is_overdue(kept):
                return False
            await self._clear(self._memory.settled(kept, "timed_out"))
            return True

    async def _known(self, host: ChannelHost | None, question_id: str) -> StoredRequest | None:
        known = await super()._known(host, question_id)
        if known is not None or (isinstance(host, Host) and host.stores):
            return known
        thread_id = self.thread_id if host is None else host.thread_id
        if self.checkpointer is not None:
            return await self.checkpointer.request(thread_id, question_id)
        # A keeper has only the latest request; the ids of requests that it replaced follow from its own id.
        kept = await self._keeper.load_pending_request(self.thread_id)
        if kept is None or kept.thread_id != thread_id:
            return None
        if kept.question_id == question_id:
            return self._opened(kept)
        is_over = question_id in replaced_ids(kept)
        return StoredRequest(kept, thread_id, None, "superseded") if is_over else None

    async def _record(self, request: HitlRequest, host: ChannelHost | None) -> StoredRequest:
        self._check_place(host)
        thread_id = self.thread_id if host is None else host.thread_id
        request = request.model_copy(update={"thread_id": thread_id})
        if self.checkpointer is None:
            return await self._record_with_keeper(request, host)
        if host is not None and (stored := await host.record(request)) is not None:
            return stored
        known = await self.checkpointer.request(thread_id, request.question_id)
        if known is not None and same_question(known.request, request.payload):
            return known
        for earlier in replaced_ids(request):
            with suppress(HitlStaleAnswer, HitlNoPendingRequest):
                await self.checkpointer.cancel(thread_id, earlier, ASKED_ANEW)
        # A body that is run again asks all its questions again, so an open request must not prevent a new one.
        alone = current_asking() is None
        await self.checkpointer.save_pending_request(thread_id, request, alone=alone)
        return self._opened(request)

    def _check_place(self, host: ChannelHost | None) -> None:
        """Raise `HitlDurabilityNotGuaranteed` if a tool's body asks, or an agent that runs inside a tool's body."""
        asking = current_asking()
        if asking is None or self._allow_inside_custom_tool:
            return
        running = current.get().session
        of_another = running is not None and running.host is not host
        if asking.place == "tool" or (
            of_another and asking.outer is not None and asking.outer.is_within("tool")
        ):
            raise HitlDurabilityNotGuaranteed(asking.tool_name)

    def _waited_thread(self, question_id: str) -> str:
        """The thread of the request that this channel waits for: a subagent's, or the channel's own."""
        slot = self._slot
        if slot is not None and slot.request.question_id == question_id:
            return self._thread_of(slot.request)
        return self.thread_id

    def _thread_of(self, request: HitlRequest) -> str:
        """The thread that a request belongs to."""
        return request.thread_id or self.thread_id

    async def _settle(
        self, question_id: str, answer: Any, by: str | None, via: str | None, digest: str | None
    ) -> StoredRequest:
        if self.checkpointer is not None:
            return await self._settle_shown(await self._stored(question_id, digest), answer, by, via, digest)
        async with self._keeper_lock:
            await self._check_kept(question_id)
            return await self._clear(self._answered(question_id, answer, by, via, digest))

    async def _cancel(self, question_id: str, reason: str) -> StoredRequest:
        if self.checkpointer is not None:
            shown = await self._stored(question_id)
            try:
                return await self.checkpointer.cancel(
                    self._thread_of(shown), question_id, reason, digest=shown.digest
                )
            except HitlStaleAnswer:
                await self._check_round(shown)
                raise
        async with self._keeper_lock:
            await self._check_kept(question_id, is_answer=False)
            return await self._clear(self._cancelled(question_id, reason))

    async def _expire(self, question_id: str) -> StoredRequest:
        if self.checkpointer is not None:
            return self._outcome_of_wait(
                await self.checkpointer.expire(self._waited_thread(question_id), question_id)
            )
        async with self._keeper_lock:
            kept = self._find(question_id)
            if kept is not None and self._memory.is_overdue(kept):
                return await self._clear(self._memory.settled(kept, "timed_out"))
            return await super()._expire(question_id)

    async def _settled_elsewhere(self, question_id: str) -> StoredRequest:
        if self.checkpointer is None:
            return await super()._settled_elsewhere(question_id)
        asked = None if self._slot is None else self._slot.request
        found = await self.checkpointer.settled(self._waited_thread(question_id), question_id, asked=asked)
        return self._outcome_of_wait(found)

    async def _stored(self, question_id: str, digest: str | None = None) -> HitlRequest:
        """The pending request with this id; raises `HitlStaleAnswer` if there is none.

        If several agents have a pending request under the id, ``digest`` has to tell which one is meant.
        """
        if self._slot is not None and self._slot.request.question_id == question_id:
            return self._slot.request
        store = cast(Checkpointer, self.checkpointer)
        own = await store.request(self.thread_id, question_id)
        found = [own] if own is not None and own.status == "pending" else []
        found += [it for it in await open_beneath(store, self.thread_id) if it.question_id == question_id]
        if len(found) > 1:
            found = [it for it in found if digest is not None and it.request.digest == digest]
            if len(found) != 1:
                raise ambiguous(question_id)
        known = found[0] if found else None
        shown = self._replaced.get(question_id)
        if shown is not None and (known is None or not _is_outcome_of(known, shown)):
            raise HitlStaleAnswer(question_id, "superseded")
        if known is None:
            raise HitlStaleAnswer(question_id, own.status if own is not None else None)
        return known.request.model_copy(update={"thread_id": known.thread_id})

    # An id may belong to another request by now: asked by another process, or on a thread that was deleted and made
    # again.

    async def _settle_shown(
        self, shown: HitlRequest, answer: Any, by: str | None, via: str | None, digest: str | None
    ) -> StoredRequest:
        """Answer the request ``shown``, not a later one under the same id.

        An answer without a ``digest`` counts for the first round only.
        """
        question_id = shown.question_id
        check_seen(shown, digest)
        fitted = self.fit(shown, answer)
        try:
            return await cast(Checkpointer, self.checkpointer).settle(
                self._thread_of(shown),
                question_id,
                fitted,
                by=by,
                via=via,
                digest=shown.digest,
                round=1 if digest is None else None,
            )
        except HitlStaleAnswer as stale:
            await self._check_round(shown)
            if digest is None and stale.status == "superseded":
                raise HitlStaleAnswer(question_id, stale.status, is_unnamed=True) from stale
            raise

    async def _check_round(self, shown: HitlRequest) -> None:
        """Raise `HitlStaleAnswer` if another request has replaced the request ``shown``; the wait for ``shown`` then
        ends."""
        question_id = shown.question_id
        found = await cast(Checkpointer, self.checkpointer).request(self._thread_of(shown), question_id)
        if found is not None and not _is_outcome_of(found, shown):
            self._wake(_superseded(found, shown))
            raise HitlStaleAnswer(question_id, "superseded")

    def _forget(self, stored: StoredRequest) -> None:
        """Forget a settled request; a superseded one is remembered, for late answers to it."""
        super()._forget(stored)
        self._replaced.pop(stored.question_id, None)
        if stored.status == "superseded":
            self._replaced[stored.question_id] = stored.request
            if len(self._replaced) > _REPLACED:
                self._replaced.popitem(last=False)

    def _outcome_of_wait(self, found: StoredRequest) -> StoredRequest:
        """The stored request ``found`` as the outcome of this channel's wait: superseded if it is another request."""
        slot = self._slot
        if slot is None or _is_outcome_of(found, slot.request):
            return found
        return _superseded(found, slot.request)

    def _wake(self, stored: StoredRequest) -> None:
        if self._slot is not None and _is_outcome_of(stored, self._slot.request):
            super()._wake(stored)

    # A `RequestKeeper` stores only the open request. How a request was settled is known only in this process. The
    # keeper is cleared before the waiting run gets the outcome.

    async def _record_with_keeper(self, request: HitlRequest, host: ChannelHost | None) -> StoredRequest:
        async with self._keeper_lock:
            kept = await self._keeper.load_pending_request(self.thread_id)
            if kept is not None and host is None and self._blocks(kept, request):
                raise HitlConcurrencyError(kept.question_id)  # the keeper has room for one request
            if kept is not None and (
                _is_same_request(kept, request) or kept.question_id in replaced_ids(request)
            ):
                self._remembered(kept)
            stored = await super()._record(request, host)
            if stored.status == "pending" and stored.request != kept:
                await self._keeper.save_pending_request(self.thread_id, stored.request)
            return stored

    def _remembered(self, request: HitlRequest) -> StoredRequest:
        """Put the keeper's request into this process's memory, if it is not there, and return it as a
        `StoredRequest`."""
        return self._memory.kept.setdefault((request.thread_id, request.question_id), self._opened(request))

    async def _clear(self, ended: StoredRequest) -> StoredRequest:
        """Clear the keeper, then record how the request ended; a cancelled task waits until both are done.

        If the keeper fails, it is unknown whether it was cleared. The request stays pending here, and ``_clearing``
        records that this process tried to clear it, so that the next attempt to settle the request is accepted.
        """
        clearing = asyncio.ensure_future(self._clear_and_put(ended))
        try:
            return await finish(clearing)
        except asyncio.CancelledError:
            if clearing.exception() is None:
                self._wake(clearing.result())
            raise

    async def _clear_and_put(self, ended: StoredRequest) -> StoredRequest:
        self._clearing = ended.question_id
        await self._keeper.save_pending_request(self.thread_id, None)
        self._clearing = None
        return self._keep_settled(ended)

    async def _check_kept(self, question_id: str, *, is_answer: bool = True) -> None:
        """Raise `HitlStaleAnswer` if a request is not pending any more, whichever process opened it."""
        kept = await self._keeper.load_pending_request(self.thread_id)
        if kept is not None and kept.question_id == question_id:
            self._remembered(kept)
        known = self._find(question_id, is_answer=is_answer)
        self._memory.pending(self._key(known, question_id), question_id)
        if (kept is None or kept.question_id != question_id) and question_id != self._clearing:
            raise HitlStaleAnswer(question_id)  # another process has settled it

    def _blocks(self, kept: HitlRequest, request: HitlRequest) -> bool:
        """Whether the keeper has another open request, which a new request would overwrite. Within a run it may be
        overwritten: a body that runs again asks its questions again."""
        is_over = kept.expires_at is not None and kept.expires_at <= self._clock.now()
        return kept.question_id != request.question_id and not is_over and current_asking() is None

    def _opened(self, request: HitlRequest) -> StoredRequest:
        return StoredRequest(request, self.thread_id, None, "pending")


def _is_same_request(kept: HitlRequest, request: HitlRequest) -> bool:
    return kept.question_id == request.question_id and same_question(kept, request.payload)


def _is_outcome_of(stored: StoredRequest, asked: HitlRequest) -> bool:
    """Whether the settlement of ``stored`` holds for the request ``asked``."""
    if stored.status == "cancelled" and is_replaced(stored):
        return False
    if same_question(stored.request, asked.payload):
        return True
    # Some values change in a store, such as instances of subclasses and NaN: compare with the decoded request, too.
    kept = HitlRequest.model_validate_json(asked.model_dump_json(exclude_none=True))
    return same_question(stored.request, kept.payload)


def _superseded(found: StoredRequest, asked: HitlRequest) -> StoredRequest:
    """The request ``asked`` as superseded: the store has another request under its id."""
    return StoredRequest(asked, found.thread_id, found.run_id, "superseded")
