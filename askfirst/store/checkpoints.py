"""Transactions on checkpoints: save, claim, resolve, list.

Each write reads the row, decides, and updates it only if its ``write_id`` is unchanged (compare-and-set).
Otherwise another writer was faster, and it reads again (lock-free: some writer always makes progress).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Select, String, and_, delete, insert, literal_column, select, tuple_, union_all, update

from askfirst.clock import seconds
from askfirst.errors import CheckpointNotFound, CheckpointNotPendingError, StoreError
from askfirst.store import tables
from askfirst.store.rows import STATES, CheckpointRow, Holding, Page
from askfirst.store.statement import Statement, Transaction, param

_C = tables.checkpoints.c
_THIS = _C.checkpoint_id == param("checkpoint_id")
_AS_READ = _C.write_id == param("seen")
_MOVED = ("state", "claimed_by", "claimed_until", "retaken", "updated_at", "write_id")
COLUMNS = tuple(_C[name] for name in CheckpointRow._fields)

CHECKPOINT = Statement(select(*COLUMNS).where(_THIS))
LOCKED = Statement(select(*COLUMNS).where(_THIS).with_for_update())
INSERT = Statement(
    insert(tables.checkpoints).values({name: param(name) for name in CheckpointRow._fields}).inline()
)
REPLACE = Statement(
    update(tables.checkpoints)
    .where(_THIS, _AS_READ)
    .values(body=param("body"), updated_at=param("updated_at"), write_id=param("write_id"))
)
MOVE = Statement(
    update(tables.checkpoints).where(_THIS, _AS_READ).values({name: param(name) for name in _MOVED})
)
DELETE = Statement(delete(tables.checkpoints).where(_THIS, _AS_READ))


def save(new: CheckpointRow) -> Transaction[CheckpointRow]:
    """Store a checkpoint, or replace the body of one that is pending."""
    while True:
        row = yield from get(new.checkpoint_id)
        if row is None:
            yield INSERT, new._asdict()  # of two racing inserts one gets a unique violation, and is run again
            return new
        if (row.agent_id, row.thread_id) != (new.agent_id, new.thread_id):
            raise StoreError(
                f"there is a checkpoint {new.checkpoint_id!r} already, of another agent or thread; "
                "save this one under an id of its own"
            )
        if row.state != "pending":
            raise _refused(row)
        if (yield REPLACE, {**new._asdict(), "seen": row.write_id}):
            return row._replace(body=new.body, updated_at=new.updated_at, write_id=new.write_id)


def claim(by: Holding) -> Transaction[CheckpointRow]:
    """Claim a checkpoint that is pending, or whose claim has lapsed."""

    def taken(row: CheckpointRow) -> CheckpointRow:
        lapsed = row.state == "resolving" and _lapsed(row, by.now)
        if row.state != "pending" and not lapsed:
            raise _refused(row)
        return row._replace(
            state="resolving", claimed_by=by.by, claimed_until=by.until, retaken=row.retaken or int(lapsed)
        )

    return _move(by, taken)


def resolve(by: Holding) -> Transaction[CheckpointRow]:
    """Mark a checkpoint as resolved, for good."""
    return _move(by, lambda row: _held(row, by)._replace(state="resolved", claimed_until=None))


def release(by: Holding) -> Transaction[CheckpointRow]:
    """Release the claim on a checkpoint: it is pending again."""
    return _move(
        by, lambda row: _held(row, by)._replace(state="pending", claimed_by=None, claimed_until=None)
    )


def renew(by: Holding) -> Transaction[CheckpointRow]:
    """Renew the claim on a checkpoint."""
    return _move(by, lambda row: _held(row, by)._replace(claimed_until=max(row.claimed_until or 0, by.until)))


def landed(checkpoint_id: str, write_id: int) -> Transaction[CheckpointRow | None]:
    """The check after an indeterminate commit: the checkpoint if this write changed it, else None."""
    rows = yield LOCKED, {"checkpoint_id": checkpoint_id}
    return CheckpointRow(*rows[0]) if rows and rows[0][-1] == write_id else None


def get(checkpoint_id: str) -> Transaction[CheckpointRow | None]:
    """A checkpoint as it stands now."""
    rows = yield CHECKPOINT, {"checkpoint_id": checkpoint_id}
    return CheckpointRow(*rows[0]) if rows else None


def remove(checkpoint_id: str, agent_id: str, now: int) -> Transaction[None]:
    """Delete a checkpoint. Raises `CheckpointNotPendingError` while it is claimed."""
    while True:
        row = yield from get(checkpoint_id)
        if row is None or row.agent_id != agent_id:
            return
        if row.state == "resolving" and not _lapsed(row, now):
            raise _refused(row)
        if (yield DELETE, {"checkpoint_id": checkpoint_id, "seen": row.write_id}):
            return


def _move(by: Holding, change: Callable[[CheckpointRow], CheckpointRow]) -> Transaction[CheckpointRow]:
    """The compare-and-set on a checkpoint's row; ``change`` raises if the row may not be changed so."""
    while True:
        row = yield from get(by.checkpoint_id)
        if row is None or row.agent_id != by.agent_id or by.thread_id not in (None, row.thread_id):
            raise CheckpointNotFound(by.checkpoint_id, by.agent_id, by.thread_id)
        moved = change(row)._replace(updated_at=by.now, write_id=by.write_id)
        params: dict[str, Any] = {**moved._asdict(), "seen": row.write_id}
        if (yield MOVE, params):
            return moved


def _held(row: CheckpointRow, by: Holding) -> CheckpointRow:
    if row.state != "resolving" or row.claimed_by != by.by:
        raise _refused(row)
    return row


def _lapsed(row: CheckpointRow, now: int) -> bool:
    return row.claimed_until is None or row.claimed_until <= now


def _refused(row: CheckpointRow) -> CheckpointNotPendingError:
    return CheckpointNotPendingError(row.checkpoint_id, row.state, row.claimed_by, seconds(row.claimed_until))


# Listing checkpoints, oldest first, by one statement for each way to ask.


_BIG = _C.created_at.type
_PLACE = (_C.created_at, _C.checkpoint_id)
_LIMIT = param("limit", _BIG)
_AFTER = and_(
    _C.created_at >= param("created_at"),  # for the index; the row comparison below is the exact place
    tuple_(*_PLACE) > tuple_(param("created_at", _BIG), param("checkpoint_id", tables.ID)),
)


def _in_state(of: Any, state: Any) -> Select[*tuple[Any, ...]]:
    """The oldest in one state: a range of an index."""
    return select(*COLUMNS).where(of, _C.state == state, _AFTER).order_by(*_PLACE).limit(_LIMIT)


def _in_any_state(of: Any) -> Select[*tuple[Any, ...]]:
    """The oldest of the oldest in each state."""
    in_each = [_in_state(of, literal_column(f"'{state}'", String)).subquery() for state in STATES]
    found = union_all(*(select(rows) for rows in in_each)).subquery()
    columns = [found.c[name] for name in CheckpointRow._fields]
    return select(*columns).order_by(found.c.created_at, found.c.checkpoint_id).limit(_LIMIT)


_OF_AGENT = _C.agent_id == param("agent_id")
# By thread first, as a thread has few checkpoints. Written so, no database scans all checkpoints of the agent
# instead.
_OF_THREAD = and_(
    _C.thread_id == param("thread_id"), _C.agent_id.between(param("agent_id"), param("agent_id"))
)
OF_AGENT = Statement(_in_any_state(_OF_AGENT))
OF_AGENT_IN_STATE = Statement(_in_state(_OF_AGENT, param("state")))
OF_THREAD = Statement(_in_any_state(_OF_THREAD))
OF_THREAD_IN_STATE = Statement(_in_state(_OF_THREAD, param("state")))


def checkpoint_page(page: Page) -> Transaction[list[CheckpointRow]]:
    """A page of an agent's checkpoints, all from one moment."""
    if page.thread_id is None:
        statement = OF_AGENT if page.state is None else OF_AGENT_IN_STATE
    else:
        statement = OF_THREAD if page.state is None else OF_THREAD_IN_STATE
    created_at, checkpoint_id = page.after
    place = {"created_at": created_at, "checkpoint_id": checkpoint_id}
    rows = yield statement, {**page._asdict(), **place}
    return [CheckpointRow(*row) for row in rows]
