"""Transactions on deliveries: an outbox of messages to people, taken under a lease; and who listens to buttons.

A message is planned with its case, sent at least once, and updated when its case has ended. Every change compares
``write_id``, so that of two processes one makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import NamedTuple

from sqlalchemy import Integer, and_, insert, literal, literal_column, or_, select, update

from askfirst.store import audit, cases
from askfirst.store.audit import Entry
from askfirst.store.case_rows import CaseRow, DeliveryRow, TokenRow
from askfirst.store.case_tables import case_tokens, deliveries, listeners
from askfirst.store.case_tables import cases as case_table
from askfirst.store.rows import RequestRow
from askfirst.store.statement import Statement, Transaction, param

_D, _C, _L, _T = deliveries.c, case_table.c, listeners.c, case_tokens.c
_BIG = _D.since.type
_ONE = literal_column("1", Integer)
COLUMNS = tuple(_D[name] for name in DeliveryRow._fields)
UPDATES = ("updating", "again")
"""The states of a message that is to be updated: with how its case ended, and again with what came of it."""
_SET = ("state", "due_at", "attempts", "error", "sent", "sent_at", "write_id")
_THIS = _D.delivery_id == param("delivery_id")
UNPLANNED = Statement(
    select(_C.case_id)
    .where(_C.is_open == _ONE, _C.planned == _ONE)
    .order_by(_C.planned, _C.is_open, _C.created_at)
    .limit(param("limit", _BIG))
)
PLANNED = Statement(
    update(case_table)
    .where(_C.case_id == param("case_id"), _C.planned == _ONE)
    .values(planned=literal_column("2", Integer))
)
INSERT = Statement(insert(deliveries).values({name: param(name) for name in DeliveryRow._fields}).inline())
DUE = Statement(
    select(*COLUMNS)
    .where(_D.name == param("name"), _D.due_at <= param("now"))
    .order_by(_D.name, _D.due_at)
    .limit(param("limit", _BIG))
)
SET = Statement(
    update(deliveries).where(_THIS, _D.write_id == param("seen")).values({name: param(name) for name in _SET})
)
ONE = Statement(select(*COLUMNS).where(_THIS))
OF_CASE = Statement(select(*COLUMNS).where(_D.case_id == param("case_id")).order_by(_D.since, _D.delivery_id))
_FAILING = or_(
    _D.state == literal("failed"),
    and_(_D.error.is_not(None), _D.state.in_([literal(each) for each in ("due", "sending", *UPDATES)])),
)
_LATE = and_(_D.due_at.is_not(None), _D.due_at <= param("before"))
TROUBLED = Statement(
    select(*COLUMNS).where(or_(_FAILING, _LATE)).order_by(_D.since).limit(param("limit", _BIG))
)
PAGE = Statement(select(*COLUMNS).order_by(_D.since.desc()).limit(param("limit", _BIG)))
TOKEN = Statement(
    select(_T.token_hash).where(_T.case_id == param("case_id"), _T.token_hash == param("token_hash"))
)
LISTENER = Statement(select(_L.owner, _L.until).where(_L.name == param("name")).with_for_update())
LISTEN = Statement(
    insert(listeners).values({name: param(name) for name in ("name", "owner", "until")}).inline()
)
LISTEN_ON = Statement(
    update(listeners).where(_L.name == param("name")).values(owner=param("owner"), until=param("until"))
)

RowsOf = Callable[[CaseRow, RequestRow | None], Sequence[DeliveryRow]]
TokenOf = Callable[[DeliveryRow, CaseRow], TokenRow]


class Taken(NamedTuple):
    """A message that this process has taken: to be sent, or to be updated, with its case as it stands."""

    row: DeliveryRow
    case: CaseRow
    request: RequestRow | None
    first: str | None
    """Where the first message about the case in this place is, as JSON."""


# Planning.


def unplanned(limit: int) -> Transaction[list[str]]:
    """Open cases whose messages are not planned yet, oldest first."""
    return [case_id for (case_id,) in (yield UNPLANNED, {"limit": limit})]


def plan(case_id: str, rows_of: RowsOf) -> Transaction[int]:
    """Store what is to be sent about a case, once; returns how many messages."""
    row = yield from cases.locked(case_id)
    if row is None or row.planned != 1:
        return 0
    yield PLANNED, {"case_id": case_id}
    if not row.is_open:
        return 0
    known = {each.delivery_id for each in (yield from of_case(case_id))}
    rows = [
        each for each in rows_of(row, (yield from cases.request_of(row))) if each.delivery_id not in known
    ]
    for each in rows:
        yield INSERT, each._asdict()
    return len(rows)


# Sending and updating.


def is_due(name: str, now: int) -> Transaction[bool]:
    """Whether a message of a delivery is due."""
    return bool((yield DUE, {"name": name, "now": now, "limit": 1}))


def take(
    name: str, now: int, until: int, limit: int, write_id: int, token_of: TokenOf
) -> Transaction[list[Taken]]:
    """Take messages of a delivery that are due, under a lease until ``until``; those of ended cases are dropped.

    The token of a message's link is stored with the lease. Of several reminders that fell due while nobody worked,
    the last one is sent.
    """
    taken: list[Taken] = []
    for row in starmap(DeliveryRow, (yield DUE, {"name": name, "now": now, "limit": limit})):
        case = yield from cases.get(row.case_id)
        if case is None:
            yield from _set(row, row._replace(state="dropped", due_at=None, write_id=write_id))
            continue
        is_update = row.state in UPDATES
        others = yield from of_case(row.case_id)
        if not is_update and (not case.is_open or case.expires_at <= now or _is_superseded(row, others, now)):
            yield from _set(row, row._replace(state="dropped", due_at=None, write_id=write_id))
            continue
        mine = row._replace(
            state=row.state if is_update else "sending",
            due_at=until,
            attempts=row.attempts + 1,
            write_id=write_id,
        )
        if not (yield from _set(row, mine)):
            continue
        if not is_update:
            yield from _add_token(token_of(mine, case))
        taken.append(Taken(mine, case, (yield from cases.request_of(case)), _first(row, others)))
    return taken


def _is_superseded(row: DeliveryRow, others: Sequence[DeliveryRow], now: int) -> bool:
    return row.kind == "reminder" and any(
        other.kind == "reminder"
        and other.place == row.place
        and other.state == "due"
        and row.since < other.since
        and (other.due_at or now) <= now
        for other in others
    )


def _first(row: DeliveryRow, others: Sequence[DeliveryRow]) -> str | None:
    return next(
        (
            other.sent
            for other in others
            if other.place == row.place and other.kind == "review" and other.delivery_id != row.delivery_id
        ),
        None,
    )


def _add_token(token: TokenRow) -> Transaction[None]:
    if not (yield TOKEN, {"case_id": token.case_id, "token_hash": token.token_hash}):
        yield from cases.add_token([token], ())


def _set(seen: DeliveryRow, row: DeliveryRow) -> Transaction[bool]:
    return bool((yield SET, {**row._asdict(), "seen": seen.write_id}))


def sent(row: DeliveryRow, sent: str, now: int, write_id: int, entry: Entry) -> Transaction[bool]:
    """Note that a message was sent, and where it is; it is to be updated at once if its case has ended meanwhile.

    False if the lease was lost, and somebody else has sent it, too.
    """
    case = yield from cases.locked(row.case_id)
    is_open = case is not None and bool(case.is_open)
    done = row._replace(
        state="sent" if is_open else "updating",
        due_at=None if is_open else now,
        attempts=0,
        error=None,
        sent=sent,
        sent_at=now,
        write_id=write_id,
    )
    if not (yield from _set(row, done)):
        return False
    yield from audit.append([entry])
    return True


def failed(row: DeliveryRow, error: str, again: int | None, write_id: int) -> Transaction[bool]:
    """Record that an attempt failed. The next one is at ``again``; None gives up. False if the lease was lost."""
    state = "failed" if again is None else row.state if row.state in UPDATES else "due"
    return (yield from _set(row, row._replace(state=state, due_at=again, error=error, write_id=write_id)))


def updated(row: DeliveryRow, write_id: int) -> Transaction[bool]:
    """Record that a message was updated with the end of its case. False if it is to be updated once more."""
    done = row._replace(state="done", due_at=None, attempts=0, error=None, write_id=write_id)
    return (yield from _set(row, done))


def noted(delivery_id: str, write_id: int) -> Transaction[bool | None]:
    """The check after an indeterminate commit."""
    rows = yield ONE, {"delivery_id": delivery_id}
    return True if rows and DeliveryRow(*rows[0]).write_id == write_id else None


def retry(delivery_id: str, now: int, write_id: int) -> Transaction[DeliveryRow | None]:
    """Make a message that failed due now; None if there is no such message, or nothing is left to do for it."""
    rows = yield ONE, {"delivery_id": delivery_id}
    row = DeliveryRow(*rows[0]) if rows else None
    if row is None or row.state not in ("due", "failed", *UPDATES):
        return None
    state = "due" if row.sent is None else row.state if row.state in UPDATES else "updating"
    again = row._replace(state=state, due_at=now, attempts=0, write_id=write_id)
    return again if (yield from _set(row, again)) else None


# Looking.


def of_case(case_id: str) -> Transaction[list[DeliveryRow]]:
    """All messages about a case."""
    return list(starmap(DeliveryRow, (yield OF_CASE, {"case_id": case_id})))


def troubled(before: int, limit: int) -> Transaction[list[DeliveryRow]]:
    """Messages that failed, and messages due before the time ``before`` that no process has taken; oldest first."""
    return list(starmap(DeliveryRow, (yield TROUBLED, {"before": before, "limit": limit})))


def page(limit: int) -> Transaction[list[DeliveryRow]]:
    """The latest messages."""
    return list(starmap(DeliveryRow, (yield PAGE, {"limit": limit})))


# Who listens to the buttons of a messenger.


def listen(name: str, owner: str, now: int, until: int) -> Transaction[bool]:
    """Take or renew the lease on a messenger's buttons; False while another process has it."""
    rows = yield LISTENER, {"name": name}
    if not rows:
        yield LISTEN, {"name": name, "owner": owner, "until": until}  # a race ends in a unique violation
        return True
    [(holder, ends)] = rows
    if holder != owner and ends > now:
        return False
    yield LISTEN_ON, {"name": name, "owner": owner, "until": until}
    return True


def stop_listening(name: str, owner: str) -> Transaction[None]:
    """Release the lease, if it is this process's."""
    rows = yield LISTENER, {"name": name}
    if rows and rows[0][0] == owner:
        yield LISTEN_ON, {"name": name, "owner": owner, "until": 0}
