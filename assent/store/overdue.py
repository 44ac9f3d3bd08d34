"""What should have happened by now and has not: for those who look after a running system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ColumnElement, Integer, Select, and_, exists, func, literal_column, select

from assent.store.case_tables import callbacks, cases
from assent.store.statement import Statement, Transaction, param
from assent.store.tables import checkpoints, effects, requests, threads

_Q, _C, _B, _T, _E, _P = requests.c, cases.c, callbacks.c, threads.c, effects.c, checkpoints.c
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
IN_DOUBT = Statement(_oldest(_T.lease_until).where(_LAPSED, _STARTED))
STALLED = Statement(_oldest(_T.lease_until).where(_LAPSED, ~_STARTED))
CLAIMS = Statement(
    _oldest(_P.claimed_until).where(
        _P.state == literal_column("'resolving'", _P.state.type), _P.claimed_until <= _BEFORE
    )
)


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
    in_doubt: Late
    """Threads whose worker is gone, and whose tool bodies may or may not have run."""
    stalled: Late
    """Threads whose worker is gone, and nothing is in doubt."""
    claims: Late
    """Checkpoints whose holder is gone."""


def overdue(before: int, callbacks_before: int) -> Transaction[Overdue]:
    """What should have happened before these times."""
    late: list[Late] = []
    for statement in (REQUESTS, CASES, CALLBACKS, IN_DOUBT, STALLED, CLAIMS):
        params = {"before": callbacks_before if statement is CALLBACKS else before}
        rows = yield statement, params
        late.append(Late(*rows[0]))
    return Overdue(*late)
