"""Transactions on continuations: an outbox that the settling transaction writes, and workers take under a lease."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

from sqlalchemy import delete, select, update

from askfirst.store import tables
from askfirst.store.rows import ContinuationRow, RequestRow
from askfirst.store.statement import WAKE, Statement, Transaction, param, upsert

KEY = ("askfirst:continuations", "due")
"""What workers wait for in place of a request: it is woken whenever something becomes due."""
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
DELETE = Statement(delete(tables.continuations).where(_THIS))


def make_due(row: RequestRow, now: int, write_id: int) -> Transaction[None]:
    """Make due what has to go on because a request is settled, if anybody knows how: one row for each thread.

    A continuation that runs just now becomes due again: whoever runs it may have looked before the answer came.
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
        mine = row._replace(
            state="running",
            due_at=until,
            owner=owner,
            attempts=row.attempts + 1,
            updated_at=now,
            write_id=write_id,
        )
        if (yield SET, {**mine._asdict(), "seen": row.write_id}):
            taken.append(mine)
    return taken


def change(row: ContinuationRow, seen: int) -> Transaction[bool]:
    """Write a continuation as a worker leaves it; False if it was made due again, or taken over, since."""
    done = yield SET, {**row._asdict(), "seen": seen}
    if done and row.state == "due":
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
