"""The one implementation of a checkpointer: threads, requests, checkpoints and grants in SQL."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from askfirst.checkpointer import base
from askfirst.checkpointer.base import (
    LEASE_SECONDS,
    CheckpointState,
    Step,
    StoredCheckpoint,
    StoredThread,
    ThreadInfo,
)
from askfirst.checkpointer.encoding import (
    check_size,
    checked_id,
    checked_limit,
    cursor_place,
    decode_body,
    encode_body,
    opened_row,
    point_of,
    readable_requests,
    stored_request,
    stored_thread,
    thread_info,
    writing,
)
from askfirst.checkpointer.leases import Leases
from askfirst.checkpointer.transcript_cache import TranscriptCache
from askfirst.clock import Clock, SystemClock, milliseconds, seconds, to_milliseconds
from askfirst.concurrency import finish
from askfirst.encryption_keys import MasterKeys
from askfirst.errors import HitlNoPendingRequest, HitlStaleAnswer, InvalidMessage, StoreError
from askfirst.ids import child_thread_id
from askfirst.messages import AssistantMessage, JsonObject, decode
from askfirst.requests import HitlRequest, StoredRequest
from askfirst.store.rows import (
    AT_ONCE,
    STATES,
    CheckpointRow,
    Holding,
    Page,
    Settled,
    Writing,
    decode_text,
    encode_text,
    fresh_write_id,
)

if TYPE_CHECKING:
    from askfirst.store.engine import Engine
    from askfirst.store.store import Store


T = TypeVar("T")
_EXPIRED_AT_ONCE = 100
_SYSTEM = SystemClock()
_LONGEST_SECONDS = 100 * 366 * 86_400
_FIRST = (-(2**62), "")


class SqlCheckpointer(ABC):
    """The base class of `SQLiteCheckpointer`, `PostgresCheckpointer` and `MySQLCheckpointer`.

    A lease lasts ``lease_seconds`` and is renewed in the background. ``owner`` names its holder, by default a name
    that no other checkpointer has. ``clock`` is the clock for deadlines and leases. ``encryption_key`` (else
    ``ASKFIRST_ENCRYPTION_KEY``, or the file that ``ASKFIRST_ENCRYPTION_KEY_FILE`` names) encrypts what is stored:
    messages, requests, answers, checkpoints, and the service's cases.
    """

    keeps_order = False

    def __init__(
        self,
        *,
        lease_seconds: float = LEASE_SECONDS,
        owner: str | None = None,
        clock: Clock | None = None,
        encryption_key: str | None = None,
    ) -> None:
        self._given_keys = None if encryption_key is None else MasterKeys.read(encryption_key)
        self._clock = clock or _SYSTEM
        self._leases = Leases(lease_seconds, owner, self._clock)
        self._transcripts = TranscriptCache()
        self._largest: int | None = None
        self._open_store: Store | None = None
        self._opening = False

    @property
    def owner(self) -> str:
        """The name under which this checkpointer holds leases."""
        return self._leases.owner

    @property
    def lease_seconds(self) -> float:
        """How long a lease lasts without renewal."""
        return seconds(self._leases.length)

    @abstractmethod
    async def _connect(self) -> Store:
        """Open the store."""

    async def __aenter__(self) -> Self:
        if self._open_store is not None or self._opening:
            raise StoreError(f"{self!r} is open already")
        self._opening = True
        try:
            self._open_store = await self._connect()
        finally:
            self._opening = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store = self._open_store
        if store is not None:
            store.check_home()
            self._open_store = None
            self._transcripts.clear()  # at the next opening, the same path may be another database
            await self._leases.stop()
            await store.close()

    @property
    def master_keys(self) -> MasterKeys | None:
        """The master keys of this checkpointer: those it was given, else those in the environment."""
        return self._given_keys or MasterKeys.from_environment()

    @property
    def is_open(self) -> bool:
        """Whether the checkpointer is open."""
        return self._open_store is not None

    @property
    def engine(self) -> Engine:
        """The engine that runs transactions on the open database; the service uses it for its cases."""
        return self._store.engine

    @property
    def _store(self) -> Store:
        if self._open_store is None:
            raise StoreError(f'{self!r} is not open: use it in "async with"')
        return self._open_store

    def _now(self) -> int:
        if self._clock is _SYSTEM:
            return time.time_ns() // 1_000_000
        return milliseconds(self._clock)

    # Threads.

    async def load(self, thread_id: str) -> StoredThread | None:
        """The current state of a thread, or None if there is none."""
        known = self._transcripts.get(checked_id("thread_id", thread_id))
        loaded = await self._store.load(thread_id, 0 if known is None else known.since)
        if known is not None and (loaded is None or not known.matches(loaded)):
            self._transcripts.forget(thread_id)
            known, loaded = None, await self._store.load(thread_id)
        if loaded is None:
            return None
        stored = await stored_thread(thread_id, loaded, self._now(), () if known is None else known.messages)
        self._transcripts.add(thread_id, stored.messages, loaded, known)
        return stored

    async def commit(self, thread_id: str, step: Step, *, fence: int, acquire: bool = False) -> int:
        """Write a step and return the thread's fence after it; see `Checkpointer.commit`."""
        store, rows = self._store, self._rows(thread_id, step, fence, acquire)
        job = store.commit(rows)
        try:
            new_fence = await job
        except asyncio.CancelledError as cancelled:
            cancelled.__cause__ = None if job.cancelled() else job.exception()
            raise
        finally:
            self._leases.record(store, rows, job)
        if base.hook is not None:
            base.reached(point_of(step))
        return new_fence

    def begin_commit(
        self, thread_id: str, step: Step, *, fence: int, acquire: bool = False
    ) -> asyncio.Future[int]:
        """Begin to write a step; see `WritesBehind.begin_commit`."""
        store, rows = self._store, self._rows(thread_id, step, fence, acquire)
        job = store.commit(rows, behind=True)
        job.add_done_callback(partial(self._leases.record, store, rows))
        return job

    def _rows(self, thread_id: str, step: Step, fence: int, acquire: bool) -> Writing:
        leases, now = self._leases, self._now()
        rows = writing(thread_id, step, fence, acquire, leases.owner, now, now + leases.length)
        if self._largest is not None:
            check_size(rows, self._largest)
        if base.hook is not None:
            base.reached(f"before:{point_of(step)}")
        return rows

    @property
    def writes_behind(self) -> Self:
        """This checkpointer, because it supports write-behind: see `WritesBehind`."""
        return self

    async def threads(self, limit: int = 100, after: str | None = None) -> list[ThreadInfo]:
        """Threads by id; ``after`` is the last id of the page before."""
        checked_limit(limit)
        if after is not None:
            checked_id("after", after)
        return [thread_info(row) for row in await self._store.listing(limit, after)]

    async def fork(self, thread_id: str, new_thread_id: str, upto: int | None = None) -> None:
        """Make a new thread with the first ``upto`` messages of another; raises `ThreadNotFound`."""
        checked_id("thread_id", thread_id)
        checked_id("new_thread_id", new_thread_id)
        if upto is not None and (type(upto) is not int or upto < 0):
            raise StoreError(f"upto is a number of messages, not {upto!r}")
        await finish(self._store.fork(thread_id, new_thread_id, upto, self._now(), fresh_write_id()))

    async def delete(self, thread_id: str) -> None:
        """Delete a thread, if there is one, and its subagents' threads, with all their rows; raises `LeaseHeld`."""
        self._transcripts.forget(checked_id("thread_id", thread_id))
        while not await finish(self._store.remove(await family(self._store, thread_id), self._now())):
            pass  # the thread's fence grew while its subagents were looked up: look them up again

    # Requests.

    async def settle(
        self,
        thread_id: str,
        question_id: str,
        answer: Any,
        *,
        by: str | None = None,
        via: str | None = None,
        digest: str | None = None,
        round: int | None = None,
    ) -> StoredRequest:
        """Answer a request; see `Checkpointer.settle`."""
        settled = self._settled_as(thread_id, question_id, "answered")
        return await self._settle(settled._replace(answer=answer, by=by, via=via, digest=digest, round=round))

    async def cancel(
        self,
        thread_id: str,
        question_id: str,
        reason: str = "cancelled",
        *,
        by: str | None = None,
        via: str | None = None,
        digest: str | None = None,
        round: int | None = None,
    ) -> StoredRequest:
        """Cancel a request; raises as `settle` does."""
        settled = self._settled_as(thread_id, question_id, "cancelled")
        return await self._settle(settled._replace(reason=reason, by=by, via=via, digest=digest, round=round))

    async def _settle(self, by: Settled) -> StoredRequest:
        for name, value in (("by", by.by), ("via", by.via)):
            if value is not None:
                checked_id(name, value)
        row = await self._at_point("request.settled", self._store.settle, by)
        if row.status != by.status:  # its deadline had passed, so this call settled it as timed out
            raise HitlStaleAnswer(by.question_id, row.status)
        return stored_request(row)

    async def expire(self, thread_id: str, question_id: str) -> StoredRequest:
        """Settle a request as timed out if it is pending and past its deadline; returns its current state."""
        by = self._settled_as(thread_id, question_id, "timed_out")
        return stored_request(await self._at_point("request.settled", self._store.expire, by))

    async def expire_due(self, limit: int = 1000) -> list[StoredRequest]:
        """Settle up to ``limit`` pending requests that are past their deadlines as timed out; returns them."""
        expired: list[StoredRequest] = []
        left = checked_limit(limit)
        while left:
            base.reached("before:request.settled")
            count = min(_EXPIRED_AT_ONCE, left)
            found, rows = await finish(self._store.expire_due(self._now(), count, fresh_write_id()))
            base.reached("request.settled")
            expired += readable_requests(rows)
            left -= len(rows)
            if found < count:  # not `len(rows)`: other processes may settle some of them at the same time
                break
        return expired

    async def settled(
        self, thread_id: str, question_id: str, *, asked: HitlRequest | None = None
    ) -> StoredRequest:
        """Wait until a request is settled, by any process, and return it; see `Checkpointer.settled`."""
        first: StoredRequest | None = None
        with self._store.hub.waiting((thread_id, question_id)) as woken:
            while True:
                woken.clear()
                request = await self.request(thread_id, question_id)
                if request is None:
                    raise HitlNoPendingRequest(thread_id, question_id)
                if first is not None and request.request != first.request:  # a new round
                    return replace(first, status="superseded")
                if asked is not None and _is_another(request.request, asked):
                    return replace(request, request=asked, status="superseded", answer=None)
                if request.status != "pending":
                    return request
                first = request
                await woken.wait()

    async def request(self, thread_id: str, question_id: str) -> StoredRequest | None:
        """The current state of a request, or None if there is none."""
        checked_id("thread_id", thread_id)
        row = await self._store.request(thread_id, checked_id("question_id", question_id))
        return None if row is None else stored_request(row)

    async def pending(self, limit: int = 100, after: str | None = None) -> list[StoredRequest]:
        """Open requests of all threads, oldest first; ``after`` is a `StoredRequest.cursor` to go on from."""
        found: list[StoredRequest] = []
        left, place = checked_limit(limit), cursor_place(after)
        while True:
            rows = await self._store.open_page(left, place)
            found += readable_requests(rows)
            if len(rows) < left or len(found) == limit:
                return found
            # Some rows could not be read and were left out. Read more: a page that is not full has to mean the end.
            left, place = limit - len(found), (rows[-1].created_at, rows[-1].thread_id, rows[-1].question_id)

    async def save_pending_request(
        self, thread_id: str, request: HitlRequest | None, *, alone: bool = False
    ) -> None:
        """Store a request for a thread, without a lease; None cancels all pending requests of the thread.

        With ``alone`` it raises `HitlConcurrencyError` if another request is open on the thread.
        """
        checked_id("thread_id", thread_id)
        row = None if request is None else opened_row(request)
        point = "request.settled" if row is None else "request.opened"
        now, write_id = self._now(), fresh_write_id()
        await self._at_point(point, self._store.save_request, thread_id, row, now, write_id, alone)

    async def load_pending_request(self, thread_id: str) -> HitlRequest | None:
        """The thread's oldest pending request."""
        row = await self._store.oldest_open(checked_id("thread_id", thread_id))
        return None if row is None else stored_request(row).request

    def _settled_as(self, thread_id: str, question_id: str, status: str) -> Settled:
        checked_id("thread_id", thread_id)
        checked_id("question_id", question_id)
        return Settled(thread_id, question_id, status, self._now(), fresh_write_id())

    async def _at_point(self, point: str, work: Any, *args: Any) -> Any:
        base.reached(f"before:{point}")
        result = await finish(work(*args))
        base.reached(point)
        return result

    # Checkpoints; the rules are in `CheckpointKeeper`.

    async def save_checkpoint(
        self, checkpoint_id: str, agent_id: str, body: JsonObject, *, thread_id: str | None = None
    ) -> None:
        """Store a checkpoint as pending, or give the pending one a new body."""
        now = self._now()
        new = CheckpointRow(
            *_checked(checkpoint_id, agent_id, thread_id),
            body=encode_body(body),
            state="pending",
            claimed_by=None,
            claimed_until=None,
            retaken=0,
            created_at=now,
            updated_at=now,
            write_id=fresh_write_id(),
        )
        await finish(self._store.save_checkpoint(new))

    async def claim_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str, ttl_seconds: float
    ) -> StoredCheckpoint:
        """Claim a checkpoint for ``ttl_seconds``; see `CheckpointKeeper.claim_checkpoint`."""
        claim = self._holding(checkpoint_id, agent_id, thread_id, by, ttl_seconds)
        return _stored(await finish(self._store.claim_checkpoint(claim)))

    async def resolve_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str
    ) -> None:
        """Resolve a checkpoint that ``by`` has claimed."""
        held = self._holding(checkpoint_id, agent_id, thread_id, by)
        await finish(self._store.resolve_checkpoint(held))

    async def release_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str
    ) -> None:
        """Release a checkpoint that ``by`` has claimed."""
        held = self._holding(checkpoint_id, agent_id, thread_id, by)
        await finish(self._store.release_checkpoint(held))

    async def renew_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str, ttl_seconds: float
    ) -> None:
        """Renew the claim of ``by`` on a checkpoint, for ``ttl_seconds`` from now."""
        held = self._holding(checkpoint_id, agent_id, thread_id, by, ttl_seconds)
        await finish(self._store.renew_checkpoint(held))

    async def get_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None
    ) -> StoredCheckpoint | None:
        """The current state of a checkpoint, or None if there is none."""
        _checked(checkpoint_id, agent_id, thread_id)
        row = await self._store.checkpoint(checkpoint_id)
        if row is None or row.agent_id != agent_id or thread_id not in (None, row.thread_id):
            return None
        return _stored(row)

    async def list_checkpoints(
        self,
        agent_id: str,
        *,
        thread_id: str | None = None,
        state: CheckpointState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[StoredCheckpoint]:
        """An agent's checkpoints, oldest first; ``after`` is a `StoredCheckpoint.cursor` to go on from."""
        checked_id("agent_id", agent_id)
        if thread_id is not None:
            checked_id("thread_id", thread_id)
        if state is not None and state not in STATES:
            raise StoreError(
                f"a checkpoint's state is {', '.join(STATES[:-1])} or {STATES[-1]}, not {state!r}"
            )
        page = Page(
            agent_id, thread_id, state, checked_limit(limit), _FIRST if after is None else _place(after)
        )
        return [_stored(row) for row in await self._store.checkpoint_page(page)]

    async def delete_checkpoint(self, checkpoint_id: str, agent_id: str) -> None:
        """Delete a checkpoint, if there is one. Raises `CheckpointNotPendingError` while it is claimed."""
        _checked(checkpoint_id, agent_id, None)
        await finish(self._store.remove_checkpoint(checkpoint_id, agent_id, self._now()))

    def _holding(
        self, checkpoint_id: str, agent_id: str, thread_id: str | None, by: str, ttl_seconds: float = 1
    ) -> Holding:
        if not 0 < ttl_seconds <= _LONGEST_SECONDS:
            raise StoreError(
                f"ttl_seconds is a number of seconds above 0, up to 100 years, not {ttl_seconds}"
            )
        _checked(checkpoint_id, agent_id, thread_id)
        now = self._now()
        return Holding(
            checkpoint_id,
            agent_id,
            thread_id,
            by=checked_id("by", by),
            now=now,
            write_id=fresh_write_id(),
            until=now + math.ceil(ttl_seconds * 1000),
        )

    # Grants, for `askfirst.permissions.GrantStore`; times are seconds since 1970, by the caller's clock.

    async def save_grant(
        self, session: str, key: str, body: JsonObject, *, created_at: float, expires_at: float | None
    ) -> None:
        """Store a grant; it replaces a grant with the same key. The key is a text of any length.

        The same transaction removes the session's grants that have expired by ``created_at``.
        """
        grant = {
            "session": checked_id("session", session),
            "digest": _digest(key),
            "key": encode_text(key),
            "body": encode_body(body),
            "created_at": to_milliseconds(created_at),
            "expires_at": to_milliseconds(expires_at),
            "given_by": by if isinstance(by := body.get("given_by"), str) else None,
        }
        await finish(self._store.save_grant(grant))

    async def find_grants(
        self, session: str, keys: Sequence[str], now: float
    ) -> list[tuple[str, JsonObject]]:
        """The unexpired grants with these keys, in the order of the keys, with their bodies."""
        checked_id("session", session)
        by_digest = {_digest(key): key for key in keys}
        found = await self._store.find_grants(session, list(by_digest), to_milliseconds(now))
        return [(key, decode_body(found[it])) for it, key in by_digest.items() if it in found]

    async def list_grants(self, session: str, now: float) -> list[tuple[str, JsonObject]]:
        """The unexpired grants of a session, oldest first."""
        rows = await self._store.grants(checked_id("session", session), to_milliseconds(now))
        return [(decode_text(key) or "", decode_body(body)) for key, body in rows]

    async def delete_grant(self, session: str, key: str) -> bool:
        """Revoke a grant; False if there was none."""
        checked_id("session", session)
        return await finish(self._store.remove_grant(session, key, _digest(key), self._now()))


def _is_another(found: HitlRequest, asked: HitlRequest) -> bool:
    """Whether the request ``found`` is a later one under the id of the request ``asked``."""
    return found.created_at != asked.created_at or found.digest != asked.digest


async def family(store: Store, thread_id: str) -> dict[str, int | None]:
    """A thread and its subagents' threads, callers first, each with its fence (None if there is no such thread).

    Forks of a thread do not belong to it.
    """
    found: dict[str, int | None] = {}
    coming = [thread_id]
    for member in coming:  # the list grows while it is walked
        found[member], said = await store.said(member)
        ids = [child_thread_id(member, call_id) for call_id in _call_ids(said)]
        for start in range(0, len(ids), AT_ONCE):
            coming += await store.children(member, ids[start : start + AT_ONCE])
    return found


def _call_ids(bodies: Sequence[str]) -> Iterator[str]:
    """The ids of the tool calls in messages. Unreadable messages are skipped, so that their thread can be deleted."""
    for body in bodies:
        if '"tool_call"' in body:
            with suppress(InvalidMessage):
                yield from [call.id for call in cast(AssistantMessage, decode(body)).tool_calls]


def _checked(checkpoint_id: str, agent_id: str, thread_id: str | None) -> tuple[str, str, str | None]:
    checked_id("checkpoint_id", checkpoint_id)
    checked_id("agent_id", agent_id)
    return checkpoint_id, agent_id, None if thread_id is None else checked_id("thread_id", thread_id)


def _stored(row: CheckpointRow) -> StoredCheckpoint:
    return StoredCheckpoint(
        checkpoint_id=row.checkpoint_id,
        agent_id=row.agent_id,
        thread_id=row.thread_id,
        body=decode_body(row.body),
        state=cast(CheckpointState, row.state),
        claimed_by=row.claimed_by,
        claimed_until=seconds(row.claimed_until),
        created_at=seconds(row.created_at),
        updated_at=seconds(row.updated_at),
        retaken=bool(row.retaken),
    )


def _place(cursor: str) -> tuple[int, str]:
    """The sort key in a `StoredCheckpoint.cursor`: created at, checkpoint id."""
    created_at, colon, checkpoint_id = cursor.partition(":")
    try:
        place = int(created_at), checked_id("after", checkpoint_id)
    except (ValueError, StoreError):
        place = None
    if place is None or not colon or abs(place[0]) >= 2**62:
        raise StoreError(f"{cursor[:80]!r} is not a cursor of a checkpoint")
    return place


def _digest(key: str) -> str:
    """The digest by which a key is found, because a key may be too long for an index and may have any character."""
    try:
        return hashlib.sha256(key.encode()).hexdigest()
    except UnicodeEncodeError:
        raise StoreError(f"key {key[:40]!r} is not valid Unicode") from None
