"""Transactions on continuations: an outbox that the settling transaction writes, and workers take under a lease."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

from sqlalchemy import Integer, and_, delete, exists, func, literal, literal_column, select, update

from askfirst.store import tables
from askfirst.store.case_tables import cases as case_table
from askfirst.store.rows import ContinuationRow, RequestRow
from askfirst.store.statement import WAKE, Statement, Transaction, param, upsert
from askfirst.store.wakeups import SIGNAL

KEY = (f"{SIGNAL}continuations", "due")
"""What workers wait for in place of a request: it is woken whenever something becomes due."""
UNDONE = ("due", "running", "failed")
"""The states of what has not gone on."""
_C = tables.continuations.c
_THIS = _C.thread_id == param("thread_id")
COLUMNS = tuple(_C[name] for name in ContinuationRow._fields)
_CHANGED = (
    "resumer",
    "state",
    "due_at",
    "attempts",
    "error",
    "owner",
    "settled_at",
    "updated_at",
    "write_id",
)

MAKE_DUE = upsert(tables.continuations, update=_CHANGED)
DUE = Statement(
    select(*COLUMNS)
    .where(_C.due_at.is_not(None), _C.due_at <= param("now"))
    .order_by(_C.due_at, _C.thread_id)
    .limit(param("limit", _C.due_at.type))
)
NEXT = Statement(select(_C.due_at).where(_C.due_at.is_not(None)).order_by(_C.due_at).limit(1))
SET = Statement(
    update(tables.continuations)
    .where(_THIS, _C.write_id == param("seen"))
    .values(
        {
            name: param(name)
            for name in ("state", "due_at", "attempts", "error", "owner", "updated_at", "write_id")
        }
    )
)
ONE = Statement(select(*COLUMNS).where(_THIS))
LOCKED = Statement(select(*COLUMNS).where(_THIS).with_for_update())
PAGE = Statement(
    select(*COLUMNS)
    .where(_C.state != param("hidden"))
    .order_by(_C.updated_at.desc(), _C.thread_id)
    .limit(param("limit", _C.due_at.type))
)
_R, _A = tables.requests.c, case_table.c
_LATER = tables.requests.alias("later").c
OF_CASE = Statement(
    select(
        *COLUMNS,
        exists(
            select(literal_column("1", Integer)).where(
                _LATER.thread_id == _R.thread_id, _LATER.created_at > _R.settled_at
            )
        ),
    )
    .select_from(
        case_table.join(
            tables.requests,
            and_(_R.thread_id == _A.thread_id, _R.question_id == _A.question_id, _R.round == _A.round),
        ).join(tables.continuations, _C.thread_id == _R.resumes)
    )
    .where(_A.case_id == param("case_id"), _R.settled_at.is_not(None))
)
COUNTS = Statement(
    select(_C.state, func.count())
    .where(_C.state.in_([literal(state) for state in UNDONE]))
    .group_by(_C.state)
)
DELETE = Statement(delete(tables.continuations).where(_THIS))


def make_due(row: RequestRow, now: int, write_id: int) -> Transaction[None]:
    """Make the continuations of settled requests due, if they name a resumer: one row for each thread.

    A continuation that is running becomes due again: its worker may have read the thread before the answer came.
    """
    if row.resumer is None or row.resumes is None:
        return
    yield (
        MAKE_DUE,
        {
            "thread_id": row.resumes,
            "resumer": row.resumer,
            "state": "due",
            "due_at": now,
            "attempts": 0,
            "error": None,
            "owner": None,
            "settled_at": now,
            "updated_at": now,
            "write_id": write_id,
        },
    )
    yield WAKE, {"thread_id": KEY[0], "question_id": KEY[1]}


def take(
    owner: str, now: int, until: int, limit: int, write_id: int, resumers: Sequence[str]
) -> Transaction[list[ContinuationRow]]:
    """Take what is due, or whose lease has lapsed, until ``until``; only what these resumers know."""
    taken: list[ContinuationRow] = []
    for row in starmap(ContinuationRow, (yield DUE, {"now": now, "limit": 4 * limit})):
        if row.resumer not in resumers or len(taken) == limit:
            continue
        mine = _running(row, owner, now, until, write_id)
        if (yield SET, {**mine._asdict(), "seen": row.write_id}):
            taken.append(mine)
    return taken


def take_one(
    thread_id: str, owner: str, now: int, until: int, write_id: int, resumers: Sequence[str]
) -> Transaction[ContinuationRow | None]:
    """Take one thread's continuation if it is due, was handed over, or its lease has lapsed; else None."""
    rows = yield ONE, {"thread_id": thread_id}
    if not rows:
        return None
    row = ContinuationRow(*rows[0])
    handed_over = row.state == "due" and row.owner is not None
    if row.resumer not in resumers or row.due_at is None or (row.due_at > now and not handed_over):
        return None
    mine = _running(row, owner, now, until, write_id)
    return mine if (yield SET, {**mine._asdict(), "seen": row.write_id}) else None


def _running(row: ContinuationRow, owner: str, now: int, until: int, write_id: int) -> ContinuationRow:
    """A continuation that a worker takes: one more attempt, under a lease until ``until``."""
    return row._replace(
        state="running",
        due_at=until,
        owner=owner,
        attempts=row.attempts + 1,
        updated_at=now,
        write_id=write_id,
    )


def hand_over(
    to: str, now: int, until: int, limit: int, write_id: int, resumers: Sequence[str] | None
) -> Transaction[list[ContinuationRow]]:
    """Mark what is due as handed over to a task queue, and as due again at ``until`` unless somebody takes it first.

    Its owner is then ``to`` and the number of the write that made it due, which stays the same while handing over
    fails and is tried again. With no resumers named it is for all of them.
    """
    handed: list[ContinuationRow] = []
    for row in starmap(ContinuationRow, (yield DUE, {"now": now, "limit": 4 * limit})):
        if (resumers is not None and row.resumer not in resumers) or len(handed) == limit:
            continue
        tried = row.state == "failed" and row.owner is not None and row.owner.startswith(f"{to} ")
        changed = row._replace(
            state="due",
            due_at=until,
            owner=row.owner if tried else f"{to} {row.write_id:016x}",
            updated_at=now,
            write_id=write_id,
        )
        if (yield SET, {**changed._asdict(), "seen": row.write_id}):
            handed.append(changed)
    return handed


def change(row: ContinuationRow, seen: int) -> Transaction[bool]:
    """Write a continuation as a worker leaves it; False if it was made due again, or taken over, since."""
    done = yield SET, {**row._asdict(), "seen": seen}
    if done and row.state in ("due", "failed") and row.due_at is not None:  # they look when to try it
        yield WAKE, {"thread_id": KEY[0], "question_id": KEY[1]}
    return bool(done)


def changed(thread_id: str, write_id: int) -> Transaction[bool | None]:
    """The check after an indeterminate commit of `change`."""
    rows = yield LOCKED, {"thread_id": thread_id}
    return True if rows and ContinuationRow(*rows[0]).write_id == write_id else None


def next_due() -> Transaction[int | None]:
    """When the next continuation is due, or its lease lapses."""
    rows = yield NEXT, {}
    return rows[0][0] if rows else None


def one(thread_id: str) -> Transaction[ContinuationRow | None]:
    """A thread's continuation."""
    rows = yield ONE, {"thread_id": thread_id}
    return ContinuationRow(*rows[0]) if rows else None


def page(limit: int, *, with_done: bool) -> Transaction[list[ContinuationRow]]:
    """Continuations, those that changed last first."""
    rows = yield PAGE, {"limit": limit, "hidden": "" if with_done else "done"}
    return [ContinuationRow(*row) for row in rows]


def of_case(case_id: str) -> Transaction[ContinuationRow | None]:
    """The continuation of a case's thread, as the case sees it; None if its request names no resumer.

    A thread has one row for all of its requests. If the thread has asked again since the case was settled, it was
    resumed with this case's answer, whatever the state of the later request.
    """
    for *row, has_asked_again in (yield OF_CASE, {"case_id": case_id}):
        found = ContinuationRow(*row)
        return found._replace(state="done", due_at=None, error=None) if has_asked_again else found
    return None


def counts() -> Transaction[dict[str, int]]:
    """The numbers of continuations that are not done, by state."""
    found = yield COUNTS, {}
    return dict.fromkeys(UNDONE, 0) | dict(found)
