"""What should have happened by now and has not: for those who look after a running system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ColumnElement, Integer, Select, and_, exists, func, literal_column, select

from assent.store.case_tables import callbacks, cases
from assent.store.statement import Statement, Transaction, param
from assent.store.tables import checkpoints, effects, requests, runs, threads

_Q, _C, _B, _T, _E, _P, _R = (
    requests.c,
    cases.c,
    callbacks.c,
    threads.c,
    effects.c,
    checkpoints.c,
    runs.c,
)
_BEFORE = param("before")
_LAPSED = and_(_T.lease_owner.is_not(None), _T.lease_until <= _BEFORE)
_STARTED = exists(
    select(literal_column("1", Integer)).where(_E.thread_id == _T.thread_id, _E.ended_at.is_(None))
)


def _oldest(column: ColumnElement[int | None]) -> Select[int, int | None]:
    return select(func.count(), func.min(column))


REQUESTS = Statement(
    _oldest(_Q.expires_at).where(
        _Q.status == literal_column("'pending'", _Q.status.type), _Q.expires_at <= _BEFORE
    )
)
CASES = Statement(
    _oldest(_C.expires_at).where(_C.is_open == literal_column("1", Integer), _C.expires_at <= _BEFORE)
)
CALLBACKS = Statement(_oldest(_B.due_at).where(_B.due_at <= _BEFORE))
FAILING = Statement(
    _oldest(_B.since).where(_B.due_at.is_not(None), _B.outcome == literal_column("'retry'", _B.outcome.type))
)
GAVE_UP = Statement(_oldest(_B.since).where(_B.outcome == literal_column("'gave_up'", _B.outcome.type)))
IN_DOUBT = Statement(_oldest(_T.lease_until).where(_LAPSED, _STARTED))
STALLED = Statement(_oldest(_T.lease_until).where(_LAPSED, ~_STARTED))
CLAIMS = Statement(
    _oldest(_P.claimed_until).where(
        _P.state == literal_column("'resolving'", _P.state.type), _P.claimed_until <= _BEFORE
    )
)


def _unresumed() -> Select[int, int | None]:
    """Threads at rest whose run has not ended, and on which nothing happened since a person answered.

    Settling a request writes nothing to its thread. Runs that have not ended have an index of their own, and each
    thread's requests stand under its id, so nothing is read of what is over.
    """
    open_still = requests.alias("open_still").c
    waiting = exists(
        select(literal_column("1", Integer)).where(
            open_still.thread_id == _T.thread_id,
            open_still.status == literal_column("'pending'", open_still.status.type),
        )
    )
    answered = (
        select(_Q.thread_id, func.min(_Q.settled_at).label("since"))
        .select_from(
            runs.join(threads, and_(_T.thread_id == _R.thread_id, _T.run_id == _R.run_id)).join(
                requests, _Q.thread_id == _R.thread_id
            )
        )
        .where(
            _R.ended_at.is_(None),
            _T.lease_owner.is_(None),
            _Q.status == literal_column("'answered'", _Q.status.type),
            _Q.settled_at >= _T.updated_at,
            _Q.settled_at <= _BEFORE,
            ~waiting,
        )
        .group_by(_Q.thread_id)
        .subquery("answered")
    )
    return _oldest(answered.c.since).select_from(answered)


UNRESUMED = Statement(_unresumed())


@dataclass(frozen=True, slots=True)
class Late:
    """How many there are, and since when the oldest is late, in milliseconds since 1970."""

    count: int
    since: int | None


class Overdue(NamedTuple):
    """What is late, by kind."""

    requests: Late
    """Agents' open requests past their deadline."""
    cases: Late
    """Open cases past theirs."""
    callbacks: Late
    """Callbacks that nobody makes."""
    failing: Late
    """Callbacks that were tried and failed, and will be tried again."""
    gave_up: Late
    """Callbacks that failed for days and are tried no more."""
    in_doubt: Late
    """Threads whose worker is gone, and whose tool bodies may or may not have run."""
    stalled: Late
    """Threads whose worker is gone, and nothing is in doubt."""
    claims: Late
    """Checkpoints whose holder is gone."""
    unresumed: Late
    """Threads whose people have answered, and that nobody has gone on with since."""


def overdue(before: int, slow_before: int) -> Transaction[Overdue]:
    """What should have happened before these times; callbacks and resuming may take longer than the rest."""
    late: list[Late] = []
    for statement in (REQUESTS, CASES, CALLBACKS, FAILING, GAVE_UP, IN_DOUBT, STALLED, CLAIMS, UNRESUMED):
        params = {"before": slow_before if statement in (CALLBACKS, UNRESUMED) else before}
        rows = yield statement, params
        late.append(Late(*rows[0]))
    return Overdue(*late)
