"""Transactions on threads: a step, loading, listing, forking, deleting; the effects ledger; lease renewal.

Every write to a thread begins with one compare-and-set on the thread's row (its fence and lease). That
statement also locks the row, so no other writer can come between it and the rest of the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    Integer,
    and_,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    literal_column,
    null,
    or_,
    select,
    update,
)

from askfirst.account import os_account
from askfirst.clock import seconds
from askfirst.errors import LeaseHeld, LeaseLost, StoreError, ThreadNotFound
from askfirst.ids import child_thread_id, first_fence
from askfirst.messages import ToolCall, decode
from askfirst.store import audit, case_tables, requests, tables, thread_state
from askfirst.store.audit import Entry
from askfirst.store.rows import AT_ONCE, Loaded, Row, Writing
from askfirst.store.statement import WAKE, Statement, Transaction, param, upsert

# Effects: the ledger of tool bodies, begun before they run and ended with their results.


_E = tables.effects.c
_THREAD = _E.thread_id == param("thread_id")

START_EFFECT = upsert(
    tables.effects,
    update=("tool_name", "digest", "effect", "attempt", "started_at", "ended_at", "granted"),
)
END_EFFECT = Statement(
    update(tables.effects)
    .where(_THREAD, _E.tool_call_id == param("tool_call_id"))
    .values(ended_at=param("now"))
)

_COPIED = ("tool_call_id", "tool_name", "digest", "attempt", "started_at")
# A call's idempotency key contains its thread, so on a fork even an idempotent effect would be a new one.
_ELSEWHERE = case((_E.effect == literal("none"), _E.effect), else_=literal("once"))
COPY_EFFECTS = Statement(
    insert(tables.effects).from_select(
        ["thread_id", *_COPIED, "effect", "ended_at"],
        select(param("new_thread_id", tables.ID), *(_E[name] for name in _COPIED), _ELSEWHERE, null()).where(
            _THREAD, _E.tool_call_id == param("tool_call_id")
        ),
    )
)


def in_doubt(call: ToolCall) -> dict[str, Any]:
    """The ledger row of a call that is in doubt although its body was not begun on this thread (see `fork`)."""
    return {
        "tool_call_id": call.id,
        "tool_name": call.name,
        "digest": "",
        "effect": "once",
        "attempt": 1,
    }


def start_effects(begun: Sequence[Mapping[str, Any]], key: Mapping[str, Any], now: int) -> Transaction[None]:
    """Record in the effects ledger that tool bodies begin, for the first time or again."""
    fresh = {"thread_id": key["thread_id"], "started_at": now, "ended_at": None, "granted": None}
    rows = [{**fresh, **row} for row in begun]
    if rows:
        yield START_EFFECT, rows if len(rows) > 1 else rows[0]


def end_effects(tool_call_ids: Sequence[str], key: Mapping[str, Any], now: int) -> Transaction[None]:
    """Record in the effects ledger that tool bodies have ended."""
    rows = [{"thread_id": key["thread_id"], "tool_call_id": it, "now": now} for it in tool_call_ids]
    if rows:
        yield END_EFFECT, rows if len(rows) > 1 else rows[0]


# Renewing leases (the heartbeat). A renewal never waits: it skips locked rows, and has a connection of its own.


_LEASED = tables.threads.c
_HELD = and_(
    _LEASED.lease_owner == param("owner"), _LEASED.thread_id.in_([param(f"id{n}") for n in range(AT_ONCE)])
)
# SKIP LOCKED: a transaction may hold a row's lock for a minute, and all leases of the batch would lapse meanwhile.
FREE = Statement(select(_LEASED.thread_id).where(_HELD).with_for_update(skip_locked=True))
RENEW = Statement(update(tables.threads).where(_HELD).values(lease_until=param("lease_until")))
HELD = Statement(select(_LEASED.thread_id).where(_HELD))


class Renewed(NamedTuple):
    """Which leases were renewed, and which are lost. Any other is still held, but its row is locked at the moment."""

    done: frozenset[str]
    lost: frozenset[str]


@dataclass(frozen=True, slots=True)
class Renewal:
    """The transaction that renews an owner's leases on up to `AT_ONCE` threads.

    Engines recognise it by its type and reserve a connection for it, so that leases do not lapse when all other
    connections are in use.
    """

    owner: str
    thread_ids: Sequence[str]
    lease_until: int

    def __call__(self) -> Transaction[Renewed]:
        """The transaction."""
        free = frozenset((yield from self._ids(FREE, self.thread_ids)))
        if free:
            yield RENEW, {**self._params(list(free)), "lease_until": self.lease_until}
        others = [it for it in self.thread_ids if it not in free]
        if not others:
            return Renewed(free, frozenset())
        return Renewed(free, frozenset(others).difference((yield from self._ids(HELD, others))))

    def _ids(self, statement: Statement, thread_ids: Sequence[str]) -> Transaction[list[str]]:
        rows = yield statement, self._params(thread_ids)
        return [thread_id for (thread_id,) in rows]

    def _params(self, thread_ids: Sequence[str]) -> Mapping[str, Any]:
        padded = [*thread_ids, *[thread_ids[-1]] * (AT_ONCE - len(thread_ids))]
        return {"owner": self.owner, **{f"id{n}": it for n, it in enumerate(padded)}}


_T, _M = tables.threads.c, tables.messages.c
_THIS = _T.thread_id == param("thread_id")
ATTEMPTS = 3
"""How often `load` tries again when the thread was deleted and made again while it was read."""

_RENEWED: dict[Any, Any] = {
    _T.next_seq: _T.next_seq + param("count"),
    _T.lease_owner: param("lease_owner"),
    _T.lease_until: param("lease_until"),
    _T.run_id: func.coalesce(param("run_id", tables.ID), _T.run_id),
    _T.write_id: param("write_id"),
    _T.updated_at: param("now"),
    _T.fence: param("new_fence"),
}
_AT_FENCE = and_(_THIS, _T.fence == param("fence"))
_FREE = or_(_T.lease_owner.is_(None), _T.lease_until <= param("now"))

ADVANCE = Statement(
    update(tables.threads).where(_AT_FENCE, _T.lease_owner == param("owner")).values(_RENEWED)
)
ACQUIRE = Statement(update(tables.threads).where(_AT_FENCE, _FREE).values(_RENEWED))

# It locks the parent's row: a worker that takes over the parent either sees the child, or the child is not made.
STEADY = Statement(
    update(tables.threads)
    .where(
        _T.thread_id == param("parent"), _T.fence == param("parent_fence"), _T.lease_owner == param("owner")
    )
    .values({_T.updated_at: param("now")})
)

_0 = literal_column("0", Integer)
_ABSENT = ~exists(select(literal_column("1", Integer)).where(_THIS))


def _create(values: dict[str, Any]) -> Statement:
    """Insert a thread unless it exists. Of two racing inserts one gets a unique violation, and is run again."""
    columns = {name: value.label(name) for name, value in values.items()}
    source = select(*columns.values()).where(_ABSENT)
    return Statement(insert(tables.threads).from_select(list(columns), source))


def _value(name: str) -> Any:
    return param(name, _T[name].type)


CREATE = _create(
    {name: _value(name) for name in ("thread_id", "parent", "fence", "lease_owner", "lease_until")}
    | {name: _value(name) for name in ("run_id", "write_id")}
    | {
        "next_seq": param("count", _T.next_seq.type),
        "created_at": param("now", _T.created_at.type),
        "updated_at": param("now", _T.updated_at.type),
    }
)

THREAD = Statement(select(_T.lease_owner, _T.lease_until).where(_THIS))
LOCKED = Statement(
    select(_T.fence, _T.lease_owner, _T.lease_until, _T.write_id, _T.next_seq).where(_THIS).with_for_update()
)

# The thread's length before this write. The statements of a transaction may be run as one (see `Engine.write`);
# then none sees the others' changes, so this works whether or not the claim's new ``next_seq`` is visible.
_COUNTED = case((_T.write_id == param("write_id"), param("count", _T.next_seq.type)), else_=_0)
_END = func.coalesce(select(_T.next_seq - _COUNTED).where(_THIS).scalar_subquery(), _0)
APPEND = Statement(
    insert(tables.messages)
    .values(
        thread_id=param("thread_id"),
        seq=_END + param("place", _M.seq.type),
        run_id=param("run_id"),
        role=param("role"),
        body=param("body"),
    )
    .inline()
)
MESSAGES = Statement(
    select(_M.body)
    .where(_M.thread_id == param("thread_id"), _M.seq >= param("since"), _M.seq < param("upto"))
    .order_by(_M.seq)
)
RECORD_RUN = upsert(tables.runs, update=("status", "iteration", "usage", "ended_at"))
_PAGE = (
    select(_T.thread_id, _T.parent, _T.next_seq, _T.created_at, _T.updated_at)
    .order_by(_T.thread_id)
    .limit(param("limit", _T.next_seq.type))
)
FIRST_THREADS = Statement(_PAGE)
MORE_THREADS = Statement(_PAGE.where(_T.thread_id > param("after")))
COPY = Statement(
    insert(tables.messages).from_select(
        ["thread_id", "seq", "run_id", "role", "body"],
        select(param("new_thread_id", tables.ID), _M.seq, _M.run_id, _M.role, _M.body).where(
            _M.thread_id == param("thread_id"), _M.seq < param("upto")
        ),
    )
)
_BEFORE = and_(_M.thread_id == param("thread_id"), _M.seq < param("upto"))
_LAST_SAID = select(func.max(_M.seq)).where(_BEFORE, _M.role == literal("assistant")).scalar_subquery()
TAIL = Statement(select(_M.body).where(_BEFORE, _M.seq >= _LAST_SAID).order_by(_M.seq))
_ALL = (tables.continuations, tables.effects, tables.requests, tables.messages, tables.runs, tables.threads)
DELETE = tuple(Statement(delete(table).where(table.c.thread_id == param("thread_id"))) for table in _ALL)
_C = case_tables.cases.c
WITHDRAW = Statement(
    update(case_tables.cases)
    .where(_C.thread_id == param("thread_id"), _C.is_open == literal_column("1", Integer))
    .values(withdrawn=literal_column("1", Integer))
)

FENCE = Statement(select(_T.fence).where(_THIS))
SAID = Statement(select(_M.body).where(_M.thread_id == param("thread_id"), _M.role == literal("assistant")))
CHILDREN = Statement(
    select(_T.thread_id).where(
        _T.parent == param("parent"), _T.thread_id.in_([param(f"id{n}") for n in range(AT_ONCE)])
    )
)


def commit(step: Writing) -> Transaction[int]:
    """Write a step atomically, and return the fence after it."""
    yield from _claim(step)
    key = {"thread_id": step.thread_id, "run_id": step.run_id}
    count = len(step.messages)
    if count:
        same = {**key, "write_id": step.write_id, "count": count}
        rows = [
            {**same, "place": place, "role": role, "body": body}
            for place, (role, body) in enumerate(step.messages)
        ]
        yield APPEND, rows if count > 1 else rows[0]
    if step.opened:
        yield from requests.open_all(step.opened, key, step.now, step.write_id)
    if step.settled:
        yield from requests.end(step.settled, key, step.now, step.write_id)
    if step.started:
        yield from start_effects(step.started, key, step.now)
    if step.ended:
        yield from end_effects(step.ended, key, step.now)
    if step.run is not None:
        yield RECORD_RUN, {**key, "started_at": step.now, **step.run}
    return step.new_fence


def _claim(step: Writing) -> Transaction[None]:
    """The compare-and-set on fence and lease that begins every step. Raises `LeaseHeld` or `LeaseLost`."""
    params = {
        "thread_id": step.thread_id,
        "owner": step.owner,
        "fence": step.fence,
        "new_fence": step.new_fence,
        "count": len(step.messages),
        "lease_owner": None if step.release else step.owner,
        "lease_until": 0 if step.release else step.lease_until,
        "run_id": None if step.run is None else step.run_id,
        "write_id": step.write_id,
        "now": step.now,
    }
    if step.acquire and step.fence == 0:
        if step.parent is not None and step.parent_fence:
            yield from _check_parent(step.parent, step)
        made = yield CREATE, {**params, "parent": step.parent, "fence": step.new_fence}
        if made:
            return
    done = yield (ACQUIRE if step.acquire else ADVANCE), params
    if not done:
        yield from _refuse(step)


def _check_parent(parent: str, step: Writing) -> Transaction[None]:
    held = {"parent": parent, "parent_fence": step.parent_fence, "owner": step.owner, "now": step.now}
    if not (yield STEADY, held):
        raise LeaseLost(parent, step.parent_fence)


def _refuse(step: Writing) -> Transaction[None]:
    rows = yield THREAD, {"thread_id": step.thread_id}
    if rows and step.acquire:
        owner, until = rows[0]
        if owner is not None and until > step.now:
            raise LeaseHeld(step.thread_id, owner, seconds(int(until)))
    raise LeaseLost(step.thread_id, step.fence)


def landed(step: Writing) -> Transaction[int | None]:
    """The check after an indeterminate commit of a step: the fence after the step, or None if it was not committed.

    It takes the thread's row lock, which the first attempt holds while it may still commit.
    """
    rows = yield LOCKED, {"thread_id": step.thread_id}
    return step.new_fence if rows and rows[0][3] == step.write_id else None


def load(thread_id: str, since: int = 0) -> Transaction[Loaded | None]:
    """A thread's rows as of one moment, with the messages from ``since`` on.

    The state is read by one statement, which sees one moment; messages are append-only, so they may be read
    afterwards.
    """
    from_there = {"thread_id": thread_id, "since": since}
    for _ in range(ATTEMPTS):
        rows = yield thread_state.STATE, from_there
        loaded = thread_state.loaded(thread_id, since, rows)
        if loaded is None or len(loaded.bodies) == max(0, loaded.next_seq - since):
            return loaded
        bodies = yield MESSAGES, {**from_there, "upto": loaded.next_seq}
        if len(bodies) == loaded.next_seq - since:
            loaded.bodies = [body for (body,) in bodies]
            return loaded
    raise StoreError(f"thread {thread_id!r} lacks some of its messages")


def listing(limit: int, after: str | None) -> Transaction[list[tuple[Any, ...]]]:
    """A page of threads, by id."""
    return (yield (FIRST_THREADS if after is None else MORE_THREADS), {"limit": limit, "after": after})


def fork(thread_id: str, new_thread_id: str, upto: int | None, now: int, write_id: int) -> Transaction[bool]:
    """Copy the first messages of a thread to a new thread, which is leased to nobody.

    A call that has no result in the copy, but whose body was begun on the original thread (ended or not), is in
    doubt on the new one: it may have taken effect. A subagent's call counts as begun if the subagent has a
    thread, because on the new thread it would start again under another thread id.
    """
    rows = yield LOCKED, {"thread_id": thread_id}  # or it could be deleted before the copy
    if not rows:
        raise ThreadNotFound(thread_id)
    length = rows[0][4]
    count = length if upto is None else min(upto, length)
    new = {"thread_id": new_thread_id, "parent": thread_id, "count": count, "now": now, "write_id": write_id}
    first = {**new, "fence": first_fence()}
    made = yield CREATE, {**first, "lease_owner": None, "lease_until": 0, "run_id": None}
    if not made:
        raise StoreError(f"there is a thread {new_thread_id!r} already")
    if count:
        copied = {"thread_id": thread_id, "new_thread_id": new_thread_id, "upto": count}
        yield COPY, copied
        for call in _unresolved((yield TAIL, copied)):
            begun = yield COPY_EFFECTS, {**copied, "tool_call_id": call.id}
            if not begun and (yield from children(thread_id, [child_thread_id(thread_id, call.id)])):
                yield from start_effects([in_doubt(call)], {"thread_id": new_thread_id}, now)
    return True


def _unresolved(rows: Sequence[tuple[str]]) -> list[ToolCall]:
    """The unresolved calls of the last assistant message, given that message and those after it."""
    messages = [decode(body) for (body,) in rows]
    resolved = {message.tool_call_id for message in messages if message.role == "tool"}
    return [
        call
        for message in messages
        if message.role == "assistant"
        for call in message.tool_calls
        if call.id not in resolved
    ]


def forked(new_thread_id: str, write_id: int) -> Transaction[bool | None]:
    """The check after an indeterminate commit of `fork`: True if it was committed, else None."""
    rows = yield LOCKED, {"thread_id": new_thread_id}
    return True if rows and rows[0][3] == write_id else None


def save_request(
    thread_id: str, request: Row, now: int, write_id: int, *, alone: bool = False
) -> Transaction[None]:
    """Open a request outside of any step. If the same request is pending already, nothing changes.

    With ``alone`` it raises `HitlConcurrencyError` if another request of the thread can still be answered.
    """
    key = {"thread_id": thread_id, "run_id": None}
    known = yield from requests.latest(thread_id, request["question_id"])
    if known is not None and known.status == "pending" and known.payload == request["payload"]:
        return
    fresh = {**key, "parent": None, "count": 0, "now": now, "write_id": write_id}
    yield CREATE, {**fresh, "fence": first_fence(), "lease_owner": None, "lease_until": 0}
    yield LOCKED, key
    if alone:
        yield from requests.check_alone(thread_id, request["question_id"], now)
    yield from requests.open_all([request], key, now, write_id)


def said(thread_id: str) -> Transaction[tuple[int | None, list[str]]]:
    """A thread's fence (None if there is no such thread) and its assistant messages."""
    key = {"thread_id": thread_id}
    rows = yield FENCE, key
    if not rows:
        return None, []
    bodies = yield SAID, key
    return rows[0][0], [body for (body,) in bodies]


def children(parent: str, thread_ids: Sequence[str]) -> Transaction[list[str]]:
    """Those of up to `AT_ONCE` thread ids that exist and have this parent."""
    rows = yield CHILDREN, {"parent": parent, **_padded(thread_ids)}
    return [thread_id for (thread_id,) in rows]


def remove(fences: Mapping[str, int | None], now: int) -> Transaction[bool]:
    """Delete threads with all their rows. Raises `LeaseHeld` if one of them is leased.

    ``fences`` are the fences at which the threads were found (compare-and-set): if one has moved since, nothing
    is deleted and the result is False.
    """
    for thread_id, fence in fences.items():
        rows = yield LOCKED, {"thread_id": thread_id}
        if rows and rows[0][1] is not None and rows[0][2] > now:
            raise LeaseHeld(thread_id, rows[0][1], seconds(int(rows[0][2])))
        if (rows[0][0] if rows else None) != fence:
            return False
    entries: list[Entry] = []
    for thread_id, fence in fences.items():
        entries += yield from _remove({"thread_id": thread_id}, now)
        if fence is not None:
            entries.append(Entry("thread.deleted", thread_id, os_account(), now))
    yield from audit.append(entries)
    return True


def _remove(key: Row, now: int) -> Transaction[list[Entry]]:
    entries: list[Entry] = []
    for (question_id,) in (yield requests.OPEN_IDS, key):
        yield WAKE, {**key, "question_id": question_id}
        entries.append(audit.request_withdrawn(key["thread_id"], question_id, now))
    for statement in DELETE:
        yield statement, key
    # Cases last: a process that makes a case of a request has either committed by now, or finds the request deleted.
    yield WITHDRAW, key
    return entries


def _padded(thread_ids: Sequence[str]) -> dict[str, str]:
    """Ids as `AT_ONCE` parameters; the last id is repeated to fill them up."""
    padded = [*thread_ids, *[thread_ids[-1]] * (AT_ONCE - len(thread_ids))]
    return {f"id{n}": it for n, it in enumerate(padded)}
