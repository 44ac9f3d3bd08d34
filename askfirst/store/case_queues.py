"""Transactions on queues of cases, worked off under leases: callbacks (an outbox), notices, calls that have run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Integer, and_, delete, exists, func, insert, literal_column, select, update

from askfirst.store import audit, budgets, cases
from askfirst.store.audit import Entry
from askfirst.store.case_rows import CallbackRow, CaseRow
from askfirst.store.case_tables import callbacks, failed_notices
from askfirst.store.case_tables import cases as case_table
from askfirst.store.case_tables import usage as usage_table
from askfirst.store.rows import RequestRow
from askfirst.store.statement import Statement, Transaction, param
from askfirst.store.tables import effects

# Callbacks: an outbox, taken by workers under a lease and retried.
#
# Keys take turns. A key's row in `usage` says when its next callback is due; that is its place in the queue.


AT_ONCE = 40
"""Concurrent callbacks of a worker."""
PER_KEY = 4
"""Concurrent callbacks of one key."""
_MOST_FULL = AT_ONCE // PER_KEY
_CB, _U = callbacks.c, usage_table.c
_BIG = _CB.due_at.type
_OF_KEY = _CB.key_id == param("key_id")
CALLBACK_COLUMNS = tuple(_CB[name] for name in CallbackRow._fields)
TURNS = Statement(
    select(_U.key_id)
    .where(_U.callback_at <= param("now"), _U.key_id.not_in([param(f"full{n}") for n in range(_MOST_FULL)]))
    .order_by(_U.callback_at)
    .limit(param("limit", _BIG))
)
TURN = Statement(select(_U.callback_at).where(_U.key_id == param("key_id")).with_for_update())
DUE = Statement(
    select(*CALLBACK_COLUMNS)
    .where(_OF_KEY, _CB.due_at <= param("now"))
    .order_by(_CB.key_id, _CB.due_at)
    .limit(param("limit", _BIG))
)
NEXT = Statement(select(func.min(_CB.due_at)).where(_OF_KEY, _CB.due_at.is_not(None)))
SET_TURN = Statement(
    update(usage_table).where(_U.key_id == param("key_id")).values(callback_at=param("callback_at"))
)
SET_CALLBACK = Statement(
    update(callbacks)
    .where(_CB.callback_id == param("callback_id"), _CB.write_id == param("seen"))
    .values({name: param(name) for name in ("attempts", "due_at", "outcome", "write_id")})
)


def take_callbacks(
    now: int, until: int, limit: int, busy: Mapping[str, int], write_id: int
) -> Transaction[list[CallbackRow]]:
    """Take callbacks that are due, of each key no more than its share; ``busy`` has how many are being made.

    The lease lasts until ``until``; after that they are due again. Keys that wait longest come first.
    """
    taken: list[CallbackRow] = []
    full = [key_id for key_id, count in busy.items() if count >= PER_KEY][:_MOST_FULL]
    turns = yield TURNS, {"now": now, "limit": limit, **_padded(full)}
    for (key_id,) in turns:
        if len(taken) < limit:
            most = min(PER_KEY - busy.get(key_id, 0), limit - len(taken))
            taken += yield from _take_of(key_id, now, until, most, write_id)
    return taken


def _take_of(key_id: str, now: int, until: int, most: int, write_id: int) -> Transaction[list[CallbackRow]]:
    """A key's share; the key moves to the end of the queue, or waits until its next callback is due."""
    taken: list[CallbackRow] = []
    yield TURN, {"key_id": key_id}
    for row in map(CallbackRow._make, (yield DUE, {"key_id": key_id, "now": now, "limit": most})):
        mine = row._replace(attempts=row.attempts + 1, due_at=until, write_id=write_id)
        if (yield SET_CALLBACK, {**mine._asdict(), "seen": row.write_id}):
            taken.append(mine)
    [(due_at,)] = yield NEXT, {"key_id": key_id}
    yield SET_TURN, {"key_id": key_id, "callback_at": None if due_at is None else max(due_at, now)}
    return taken


def callback_done(
    row: CallbackRow, due_at: int | None, outcome: str | None, *, counts: bool = True
) -> Transaction[bool]:
    """Record the outcome of an attempt, and when the next is due; False if the lease was lost.

    Without ``counts`` no attempt was made.
    """
    if due_at is not None:
        yield from budgets.callback_due(row.key_id, due_at)
    attempts = row.attempts if counts else row.attempts - 1
    params = {**row._asdict(), "attempts": attempts, "due_at": due_at, "outcome": outcome}
    return bool((yield SET_CALLBACK, {**params, "seen": row.write_id}))


def _padded(full: Sequence[str]) -> dict[str, str]:
    return {f"full{n}": full[n] if n < len(full) else "" for n in range(_MOST_FULL)}


# Notices of new cases: taken under a lease, and again if that process dies or fails.
#
# Failures are recorded for operators, and retried for as long as the case is open.


_C, _N = case_table.c, failed_notices.c
_THIS = _C.case_id == param("case_id")
_ONE = literal_column("1", Integer)
UNTOLD = Statement(
    select(*cases.COLUMNS)
    .where(_C.is_open == _ONE, _C.tell_at <= param("now"))
    .order_by(_C.is_open, _C.tell_at)
    .limit(1)
)
SET_TELL_AT = Statement(
    update(case_table).where(_THIS, _C.tell_at == param("seen")).values(tell_at=param("tell_at"))
)


class FailedNotice(NamedTuple):
    """A notice that failed: the number of attempts, since when, and the last error's type."""

    case_id: str
    tries: int
    since: int
    error: str


_COLUMNS = tuple(_N[name] for name in FailedNotice._fields)
_VALUES = {name: param(name) for name in FailedNotice._fields}
FAILED = Statement(select(*_COLUMNS).where(_N.case_id == param("case_id")).with_for_update())
INSERT = Statement(insert(failed_notices).values(_VALUES).inline())
UPDATE = Statement(
    update(failed_notices)
    .where(_N.case_id == param("case_id"))
    .values(tries=param("tries"), error=param("error"))
)
FORGET = Statement(delete(failed_notices).where(_N.case_id == param("case_id")))
ALL_FAILED = Statement(
    select(*_COLUMNS)
    .select_from(failed_notices.join(case_table, _C.case_id == _N.case_id))
    .where(_C.is_open == _ONE)
    .order_by(_N.since)
    .limit(param("limit", _C.created_at.type))
)


def take_untold(now: int, until: int) -> Transaction[tuple[CaseRow, RequestRow | None] | None]:
    """Take an open case whose notice is due, with its request, under a lease until ``until``."""
    for row in map(CaseRow._make, (yield UNTOLD, {"now": now})):
        if (yield SET_TELL_AT, {"case_id": row.case_id, "seen": row.tell_at, "tell_at": until}):
            return row._replace(tell_at=until), (yield from cases.request_of(row))
    return None


def told(row: CaseRow) -> Transaction[bool]:
    """Record that a notice was sent; False if the lease was lost."""
    if not (yield SET_TELL_AT, {"case_id": row.case_id, "seen": row.tell_at, "tell_at": None}):
        return False
    yield FORGET, {"case_id": row.case_id}
    return True


def not_told(
    row: CaseRow, error: str, now: int, first: int, longest: int
) -> Transaction[FailedNotice | None]:
    """Record that a notice failed; it is retried after ``first`` milliseconds, then twice as long each time up to
    ``longest`` (back-off). None if the lease was lost."""
    known = yield FAILED, {"case_id": row.case_id}
    notice = FailedNotice(*known[0]) if known else FailedNotice(row.case_id, 0, now, error)
    notice = notice._replace(tries=notice.tries + 1, error=error)
    again = now + min(first * 2 ** min(notice.tries - 1, 30), longest)
    if not (yield SET_TELL_AT, {"case_id": row.case_id, "seen": row.tell_at, "tell_at": again}):
        return None
    yield (UPDATE if known else INSERT), notice._asdict()
    return notice


def all_failed(limit: int) -> Transaction[list[FailedNotice]]:
    """Open cases whose notices failed, oldest first."""
    return [FailedNotice(*row) for row in (yield ALL_FAILED, {"limit": limit})]


_CASES, _E = case_table.c, effects.c
_LATER = case_table.alias("later")
_IS_TRUE, _IS_FALSE = literal_column("1", Integer), literal_column("0", Integer)


class EndedEffect(NamedTuple):
    """What the ledger says of a tool body that has ended."""

    tool_name: str
    digest: str
    attempt: int
    started_at: int
    ended_at: int


EntryOf = Callable[[CaseRow, EndedEffect], Entry]

_BODY = and_(
    _E.thread_id == _CASES.thread_id, _E.tool_call_id == _CASES.question_id, _E.ended_at.is_not(None)
)
# A call that was asked about again ran by the answer to its last round.
_ASKED_AGAIN = exists(
    select(_IS_TRUE).where(
        _LATER.c.thread_id == _CASES.thread_id,
        _LATER.c.question_id == _CASES.question_id,
        _LATER.c.round > _CASES.round,
    )
)
ENDED = Statement(
    select(_CASES.case_id)
    .select_from(case_table.join(effects, _BODY))
    .where(_CASES.awaits_effect == _IS_TRUE, _CASES.ended_at >= param("since"), ~_ASKED_AGAIN)
    .limit(param("limit", _CASES.ended_at.type))
)
EFFECT = Statement(
    select(*(_E[name] for name in EndedEffect._fields)).where(
        _E.thread_id == param("thread_id"),
        _E.tool_call_id == param("question_id"),
        _E.ended_at.is_not(None),
    )
)
NOTED = Statement(
    update(case_table)
    .where(_CASES.case_id == param("case_id"), _CASES.awaits_effect == _IS_TRUE)
    .values(awaits_effect=_IS_FALSE)
)


def executed(since: int, limit: int) -> Transaction[list[str]]:
    """Cases that ended since then whose calls have run, and that have no audit row of it yet."""
    return [case_id for (case_id,) in (yield ENDED, {"since": since, "limit": limit})]


def effect_of(row: CaseRow) -> Transaction[EndedEffect | None]:
    """What the ledger says of the call that a case was about, once its body has ended."""
    found = yield EFFECT, row._asdict()
    return EndedEffect(*found[0]) if found else None


def note_executed(case_id: str, entry_of: EntryOf) -> Transaction[bool]:
    """Write the audit row of a call that has run; False if it has not, or the row is there."""
    row = yield from cases.locked(case_id)
    if row is None or not row.awaits_effect:
        return False
    effect = yield from effect_of(row)
    if effect is None:
        return False
    yield NOTED, {"case_id": case_id}
    if row.planned:
        yield from cases.update_messages_again(case_id, effect.ended_at, row.write_id)
    yield from audit.append((entry_of(row, effect),))
    return True
